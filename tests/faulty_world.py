"""A small world that does what it should not when told to: `faulty_world:Faulty-v0` with env_kwargs what and at."""

import os
import signal
import sys
import threading
import time
from contextlib import suppress

import gymnasium
import numpy as np
from gymnasium import spaces

REWARDS = {"reward nan": np.nan, "reward inf": np.inf, "reward text": "1", "reward none": None, "reward 1e38": 1e38}
REWARDS["reward pair"] = [1.0, 2.0]
NUMBERS = {"obs nan": np.nan, "obs 1e300": 1e300}


class Refusal(BaseException):
    """Not an Exception."""


class MuteError(ValueError):
    def __str__(self):
        raise RuntimeError("cannot speak")


class Faulty(gymnasium.Env):
    """Episodes of eight steps; from step `at` of its life on it goes wrong."""

    def __init__(self, what="", at=0):
        self.what, self.at, self.lived = what, at, 0
        self.observation_space = spaces.Box(-np.inf, np.inf, (0,) if what == "zero" else (3,), np.float32)
        self.action_space = spaces.Box(-1, 1, (0,), np.float32) if what == "zero actions" else spaces.Discrete(2)
        if what == "many actions":
            self.action_space = spaces.Discrete(10**12)
        if what == "no space":
            del self.observation_space
        self.fails("init")

    def fails(self, where):
        what, _, place = self.what.partition("@")
        if (place or "step") != where or self.lived < self.at:
            return
        match what:
            case "raise":
                raise ZeroDivisionError("the sky fell")
            case "colours":
                raise ValueError("one\ntwo\r\x1b[31mthree\x07" + "x" * 1000)
            case "mute":
                raise MuteError
            case "exit":
                sys.exit(0)
            case "interrupt":
                raise KeyboardInterrupt
            case "refuse":
                raise Refusal("no")
            case "generator":
                raise GeneratorExit
            case "recurse":
                self.fails(where)
            case "alarm" if self.lived == self.at:
                signal.signal(signal.SIGALRM, lambda number, frame: None)
                signal.setitimer(signal.ITIMER_REAL, 0.001)
                time.sleep(0.002)
            case "hang":
                time.sleep(60)
            case "spin":
                while True:
                    pass
            case "lock":
                threading.Event().wait(60)
            case "go away" if self.lived == self.at:
                os.chdir("/")
            case "close stdout" if self.lived == self.at:
                sys.stdout.close()
            case "close 1" if self.lived == self.at:
                with suppress(OSError):  # another world was first
                    os.close(1)
            case "os exit" if "FAULTY" not in os.environ:
                os._exit(0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        self.fails("reset")
        return self.observe(), {}

    def observe(self):
        if self.what in NUMBERS and self.lived >= self.at:
            return np.array([0.0, NUMBERS[self.what], 0.0])
        return np.full(3, self.age / 8, np.float32)

    def step(self, action):
        self.lived += 1
        self.age += 1
        self.fails("step")
        obs, over = self.observe(), self.age >= 8
        if self.lived < self.at:
            return obs, 1.0, over, False, {}
        over = {"over text": "False", "over none": None, "over two": 2}.get(self.what, over)
        obs = {"obs words": "left", "obs short": obs[:2], "obs none": None}.get(self.what, obs)
        return obs, REWARDS.get(self.what, 1.0), over, False, {}

    def close(self):
        self.fails("close")


gymnasium.register("Faulty-v0", Faulty)
