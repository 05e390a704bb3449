"""Stride as a library: `import stride`, and what its names stand for is loaded when it is first used.

    agent = stride.load("@last").agent
    action = agent.act(obs)
"""

from importlib import import_module

NAMES = {"load": "agents.playing.loading:load_run"}


def __getattr__(name: str) -> object:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = NAMES[name].partition(":")
    return vars(import_module(module))[attribute]


def __dir__() -> list[str]:
    return sorted({*globals(), *NAMES})
