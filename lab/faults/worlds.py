"""A CartPole that goes wrong when told to: raises, leaves, hangs, dies, answers badly. For environments.

Told by $STRIDE_FAULT, so that a worker process hears of it, too: {what, world, process, told, at, seeded}. The world of
that number (of those made in the process of that name; or "every" one) goes wrong from its `at`th step on, 83 where
nothing is said, in the middle of an episode (the first after it was seeded so many times, if that is said), or in the
next reset, picture or farewell, and writes into the file `told` before.
"""

import json
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn, TypedDict

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv

VARIABLE = "STRIDE_FAULT"
ENV_ID = "stride-fault/Trouble-v0"
AT, LONGEST = 83, 49  # steps: of a life, and of an episode that goes on
LEAVES = ("raises", "raises in colours", "raises what cannot speak", "calls sys.exit", "calls sys.exit with words",
          "raises KeyboardInterrupt", "raises GeneratorExit", "raises what is no Exception", "recurses for ever",
          "raises StopIteration", "runs out of memory")  # fmt: skip
RAISES = (*LEAVES, "raises in reset", "calls sys.exit in reset", "raises KeyboardInterrupt in reset")
CLOSES = ("raises in close", "calls sys.exit in close", "raises KeyboardInterrupt in close")
HANGS = ("hangs", "hangs in reset")
SPINS = ("computes for ever", "waits for a lock", "waits for a word")
DIES = {"ends its process": 3, "ends its process well": 0, "is killed": -9, "crashes": -11}
OBSERVES: dict[str, object] = {
    "observes a number": 0.0, "observes words": "left", "observes nothing": None, "observes objects": [None] * 4,
    "observes complex numbers": np.zeros(4, np.complex64), "observes a dict": {"a": 1.0},
}  # fmt: skip
PAYS: dict[str, object] = {
    "pays words": "much", "pays a number in words": "1", "pays nothing": None, "pays two rewards": np.ones(2),
    "pays a list": [1.0], "pays a complex number": 1j, "pays a dict": {},
}  # fmt: skip
ENDS: dict[str, object] = {"ends in words": "False", "ends with half a chance": 0.5, "ends twice": np.ones(2, bool)}
ANSWERS = (*OBSERVES, *PAYS, *ENDS, "observes too much", "observes too little", "answers four things",
           "answers six things", "answers nothing", "observes too little in reset",
           "answers nothing in reset")  # fmt: skip
NUMBERS: dict[str, float] = {"NaN": np.nan, "infinity": np.inf, "-infinity": -np.inf, "1e300": 1e300}
UNSOUND = (*(f"pays {name}" for name in NUMBERS), *(f"observes {name}" for name in NUMBERS))
_UNMADE = ("raises", "calls sys.exit", "raises KeyboardInterrupt", "raises in colours", "raises what is no Exception",
           "has no observation space", "has no action space", "sees nothing", "does nothing")  # fmt: skip
MAKING = tuple(f"{what} in the making" for what in _UNMADE)
HARMLESS = ("sets an alarm",)
FAULTS = (*RAISES, *HANGS, *SPINS, *DIES, *ANSWERS, *CLOSES, *UNSOUND, *HARMLESS)
PLACES = ("reset", "close", "the making", "the picture")

_made: list["Trouble"] = []


class Fault(TypedDict, total=False):
    """What $STRIDE_FAULT tells, as the module says."""

    what: str
    world: int | str
    process: str
    told: str
    at: int
    seeded: int


class TroubleError(ValueError):
    """Cannot speak."""

    def __str__(self) -> NoReturn:
        raise RuntimeError


class Trouble(CartPoleEnv):
    """Knows its number and how many steps it has made in its life."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.place, self.lived, self.age, self.seeded, self.over = len(_made), 0, 0, 0, False
        _made.append(self)
        if fault := self.fault("the making"):
            wrong(fault, (None,))
            empty = gymnasium.spaces.Box(-1.0, 1.0, (0,), np.float32)
            match fault["what"].removesuffix(" in the making"):
                case "has no observation space":
                    del self.observation_space
                case "has no action space":
                    del self.action_space
                case "sees nothing":
                    self.observation_space = empty
                case "does nothing":
                    self.action_space = empty

    def step(self, action: object) -> Any:
        self.lived, self.age = self.lived + 1, self.age + 1
        answer = super().step(action)
        fault = self.fault("")
        if not fault or self.over or answer[2] or self.age >= LONGEST or self.lived < fault.get("at", AT):
            return answer
        if self.seeded < fault.get("seeded", 0):
            return answer
        self.over = True
        return wrong(fault, answer)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        answer = super().reset(seed=seed, options=options)
        self.age, self.seeded = 0, self.seeded + (seed is not None)
        fault = self.fault("reset")
        return wrong(fault, answer) if fault and self.lived >= fault.get("at", AT) else answer

    def render(self) -> Any:
        if fault := self.fault("the picture"):
            return wrong(fault, (None,))
        return super().render()

    def close(self) -> None:
        super().close()
        fault = self.fault("close")
        if fault and self.lived >= fault.get("at", AT):
            wrong(fault, (None,))

    def fault(self, place: str) -> Fault:
        """What is to go wrong here; {} for nothing."""
        told: Fault = json.loads(os.environ.get(VARIABLE, "{}"))
        here = told and told["world"] in (self.place, "every") and told["process"] in process_names()
        where = next((each for each in PLACES if told and told["what"].endswith(f" in {each}")), "")
        return told if here and where == place else {}


def process_names() -> tuple[str, ...]:
    return multiprocessing.current_process().name, "every"


def wrong(fault: Fault, answer: tuple[Any, ...]) -> Any:
    """Does it, or gives the answer as it should not be."""
    Path(fault["told"]).write_text("here")  # first: there may be no afterwards
    obs, *rest = answer
    what = fault["what"]
    for place in PLACES:
        what = what.removesuffix(f" in {place}")
    if what in OBSERVES:
        return OBSERVES[what], *rest
    if what in PAYS:
        return obs, PAYS[what], *rest[1:]
    if what in ENDS:
        return obs, rest[0], ENDS[what], *rest[2:]
    verb, _, number = what.partition(" ")
    if number in NUMBERS:
        seen = np.array([0.0, NUMBERS[number], 0.0, 0.0])
        return (seen, *rest) if verb == "observes" else (obs, NUMBERS[number], *rest[1:])
    misbehave(what)
    match what:
        case "observes too much":
            return np.append(obs, obs[:1]), *rest
        case "observes too little":
            return obs[:1], *rest
        case "answers four things":
            return answer[:4]
        case "answers six things":
            return *answer, 0
        case "sets an alarm":
            signal.signal(signal.SIGALRM, lambda number, frame: None)
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            time.sleep(0.005)
            return answer
    return None


def misbehave(what: str) -> None:
    """Leave, hang or die, if that is what is wrong."""
    match what:
        case "raises":
            raise ZeroDivisionError("the sky fell")
        case "raises in colours":
            raise ValueError("one\ntwo\r\x1b[31mthree\x07\u202e")
        case "raises what cannot speak":
            raise TroubleError
        case "calls sys.exit":
            sys.exit(0)  # would pass for a good end
        case "calls sys.exit with words":
            sys.exit("enough\nof this")
        case "raises KeyboardInterrupt":
            raise KeyboardInterrupt
        case "raises GeneratorExit":
            raise GeneratorExit
        case "raises what is no Exception":
            raise type("Refusal", (BaseException,), {})("no")
        case "recurses for ever":
            misbehave(what)
        case "raises StopIteration":
            raise StopIteration
        case "runs out of memory":
            raise MemoryError
        case "hangs":
            time.sleep(1000)
        case "computes for ever":
            while True:
                pass
        case "waits for a lock":
            multiprocessing.Event().wait()
        case "waits for a word":
            os.read(os.pipe()[0], 1)
        case "ends its process" | "ends its process well":
            os._exit(DIES[what])
        case "is killed" | "crashes":
            os.kill(os.getpid(), -DIES[what])


gymnasium.register(ENV_ID, Trouble, max_episode_steps=LONGEST + 1)
