"""Stride as a library: `run = stride.train("CartPole-v1:ppo", seed=3)`, `stride.load("@last").agent.predict(batch)`.

What a name stands for is loaded when first used: docs/python.md.
"""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

if sys.platform == "win32":  # fcntl, fork and POSIX signals are missing there; every command imports this file first
    print("error: Stride does not run on native Windows; install it inside WSL2 (wsl --install)", file=sys.stderr)
    sys.exit(2)

HOME = os.path.dirname(os.path.realpath(__file__))
if not os.path.isdir(os.path.join(HOME, "agents")):  # a checkout: agents/, config/, ... are beside this folder
    __path__ = [HOME, os.path.dirname(HOME)]

if TYPE_CHECKING:  # for editors and type checkers
    from stride.agents.experience.rollout_buffer import RolloutBuffer as RolloutBuffer
    from stride.agents.networks.encoders import RunningNorm as RunningNorm
    from stride.environments import async_pool as async_pool
    from stride.environments import env_info as env_info
    from stride.environments import make_envs as make_envs
    from stride.envs_fast.vec_env import Step as Step
    from stride.envs_fast.vec_env import VecEnv as VecEnv
    from stride.envs_gym.recorder import Recorder as Recorder
    from stride.report.metrics_file import MetricsFile as MetricsFile
    from stride.runs import load as load
    from stride.runs import train as train

NAMES = {
    "MetricsFile": "stride.report.metrics_file:MetricsFile",
    "Recorder": "stride.envs_gym.recorder:Recorder",
    "RolloutBuffer": "stride.agents.experience.rollout_buffer:RolloutBuffer",
    "RunningNorm": "stride.agents.networks.encoders:RunningNorm",
    "Step": "stride.envs_fast.vec_env:Step",
    "VecEnv": "stride.envs_fast.vec_env:VecEnv",
    "async_pool": "stride.environments:async_pool",
    "env_info": "stride.environments:env_info",
    "load": "stride.runs:load",
    "make_envs": "stride.environments:make_envs",
    "train": "stride.runs:train",
}


def __getattr__(name: str) -> object:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = NAMES[name].partition(":")
    return vars(import_module(module))[attribute]


def __dir__() -> list[str]:
    return sorted({*globals(), *NAMES})
