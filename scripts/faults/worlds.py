"""A CartPole that goes wrong when told to: raises, hangs, dies, answers what it should not. For environments.py.

Told by $STRIDE_FAULT, so that a worker process hears of it, too: {what, world, process, told}. The world of that number
(of those made in the process of that name) goes wrong in its 83rd step or in the first reset after that, and writes
into the file `told` before.
"""

import json
import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv

VARIABLE = "STRIDE_FAULT"
ENV_ID = "stride-fault/Trouble-v0"
AT = 83
HANGS, DIES = ("hangs", "hangs in reset"), {"ends its process": 3, "is killed": -9, "crashes": -11}
RAISES = ("raises", "raises in reset")
ANSWERS = ("observes too much", "observes too little", "observes a number", "observes words", "observes nothing",
           "answers four things", "answers nothing", "pays words", "pays two rewards",
           "observes too little in reset", "answers nothing in reset")  # fmt: skip
FAULTS = (*RAISES, *HANGS, *DIES, *ANSWERS)

_made: list["Trouble"] = []


class Trouble(CartPoleEnv):
    """Knows its number and how many steps it has made in its life."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.place, self.lived = len(_made), 0
        _made.append(self)

    def step(self, action: Any) -> Any:
        self.lived += 1
        answer = super().step(action)
        fault = self.fault(False) if self.lived == AT else {}
        return wrong(fault, answer) if fault else answer

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        answer = super().reset(seed=seed, options=options)
        fault = self.fault(True) if self.lived >= AT else {}
        return wrong(fault, answer) if fault else answer

    def fault(self, resetting: bool) -> dict[str, Any]:
        """What is to go wrong here and now; {} for nothing."""
        told = json.loads(os.environ.get(VARIABLE, "{}"))
        here = told and told["world"] == self.place and told["process"] == multiprocessing.current_process().name
        return told if here and told["what"].endswith(" in reset") == resetting else {}


def wrong(fault: dict[str, Any], answer: tuple[Any, ...]) -> Any:
    """Does it, or gives the answer as it should not be."""
    Path(fault["told"]).write_text("here")
    obs, *rest = answer
    match fault["what"].removesuffix(" in reset"):
        case "raises":
            raise ZeroDivisionError("the sky fell")
        case "hangs":
            time.sleep(1000)
        case "ends its process":
            os._exit(DIES["ends its process"])
        case "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "observes too much":
            return np.append(obs, obs[:1]), *rest
        case "observes too little":
            return obs[:1], *rest
        case "observes a number":
            return 0.0, *rest
        case "observes words":
            return "left", *rest
        case "observes nothing":
            return None, *rest
        case "answers four things":
            return answer[:4]
        case "pays words":
            return obs, "much", *rest[1:]
        case "pays two rewards":
            return obs, np.ones(2), *rest[1:]
    return None


gymnasium.register(ENV_ID, Trouble, max_episode_steps=50)
