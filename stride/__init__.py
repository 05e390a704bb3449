"""Stride as a library: `run = stride.train("CartPole-v1:ppo", seed=3)`, `stride.load("@last").agent.predict(batch)`.

What a name stands for is loaded when first used: docs/python.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for editors
    from report.metrics_file import MetricsFile as MetricsFile
    from stride.runs import load as load
    from stride.runs import train as train

NAMES = {"MetricsFile": "report.metrics_file:MetricsFile", "load": "stride.runs:load", "train": "stride.runs:train"}


def __getattr__(name: str) -> object:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = NAMES[name].partition(":")
    return vars(import_module(module))[attribute]


def __dir__() -> list[str]:
    return sorted({*globals(), *NAMES})
