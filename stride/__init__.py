"""Stride as a library: `run = stride.train("CartPole-v1:ppo", seed=3)`, `stride.load("@last").agent.predict(batch)`.

What a name stands for is loaded when first used: docs/python.md.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING

HOME = os.path.dirname(os.path.realpath(__file__))
if not os.path.isdir(os.path.join(HOME, "agents")):  # a checkout: agents/, config/, ... are beside this folder
    __path__ = [HOME, os.path.dirname(HOME)]

if TYPE_CHECKING:  # for editors
    from stride.report.metrics_file import MetricsFile as MetricsFile
    from stride.runs import load as load
    from stride.runs import train as train

NAMES = {
    "MetricsFile": "stride.report.metrics_file:MetricsFile",
    "load": "stride.runs:load",
    "train": "stride.runs:train",
}


def __getattr__(name: str) -> object:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = NAMES[name].partition(":")
    return vars(import_module(module))[attribute]


def __dir__() -> list[str]:
    return sorted({*globals(), *NAMES})
