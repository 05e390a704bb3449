"""Stride as a library: `stride.load("@last").agent.act(obs)`. What a name stands for is loaded when first used."""

from importlib import import_module

NAMES = {"load": "agents.playing.loading:load_run"}


def __getattr__(name: str) -> object:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = NAMES[name].partition(":")
    return vars(import_module(module))[attribute]


def __dir__() -> list[str]:
    return sorted({*globals(), *NAMES})
