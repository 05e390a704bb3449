"""A sound little world, and worlds broken on purpose, each in one way: BROKEN says what must be found, and where."""

import os
import re
import signal
import tempfile
import time
from functools import partial

import gymnasium
import numpy as np
from gymnasium import spaces

from stride.envs_gym.check.finding import (
    CONSTANT,
    END,
    FAULT,
    FORM,
    GYMNASIUM,
    MEMORY,
    NOTE,
    PICTURES,
    PLAY,
    SEED,
    WARNING,
)

BROKEN: dict[str, tuple[str, str, str]] = {}  # name of a class below: (level, where it is found, as what)


class Sound(gymnasium.Env):
    """A point on a line, to be held in the middle; what tests make of it breaks one thing each."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012  (as everybody writes it)
    observation_space = spaces.Box(-2, 2, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, render_mode=None, size=1.0):
        self.render_mode, self.size = render_mode, size

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.begin(seed)
        return self.observe(), {}

    def begin(self, seed):
        self.place, self.speed, self.age = float(self.np_random.uniform(-0.5, 0.5)), 0.0, 0

    def step(self, action):
        self.age += 1
        self.speed = 0.8 * self.speed + 0.1 * self.push(action) + 0.05 * float(self.noise())
        self.place = float(np.clip(self.place + self.speed, -1.5, 1.5))
        return self.observe(), self.reward(), self.terminated(), self.truncated(), self.info()

    def push(self, action):
        return int(action) - 1

    def noise(self):
        return self.np_random.standard_normal()

    def observe(self):
        return np.array([self.place, np.clip(self.speed, -2, 2)], np.float32)

    def reward(self):
        return 1.0 - self.place**2

    def terminated(self):
        return abs(self.place) > self.size

    def truncated(self):
        return False

    def info(self):
        return {}

    def render(self):
        return np.full((8, 8, 3), 100, np.uint8)


class Continuous(Sound):
    """Takes two numbers, and is sound as well."""

    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def push(self, action):
        return float(action[0] + 0.5 * action[1])


class WritesOneBuffer(Sound):
    buffer = None

    def observe(self):
        self.buffer = np.zeros(2, np.float32) if self.buffer is None else self.buffer
        self.buffer[:] = super().observe()
        return self.buffer


class ReadsItsObservation(Sound):
    def observe(self):
        self.state = np.array([self.place, self.speed], np.float32)
        return self.state

    def step(self, action):
        self.place, self.speed = map(float, self.state)
        return super().step(action)


class SeedsNumPy(Sound):
    def begin(self, seed):
        if seed is not None:
            np.random.seed(seed)
        super().begin(seed)

    def noise(self):
        return np.random.standard_normal()


class KeepsItsPath(Sound):
    def info(self):
        self.path = [*self.path, self.place] if self.age > 1 else [self.place]
        return {"path": list(self.path)}


def raising(error, age=0):
    """A method that raises, in steps of this age."""

    def method(self, *arguments, **keywords):
        if self.age >= age:
            raise error
        return 0

    return method


def broken(level, name, where, finding, base=Sound, **changes):
    """Adds a class to this module: `base` with these attributes and methods, of which so much must be found."""
    globals()[name] = type(name, (base,), {"__module__": __name__, **changes})
    BROKEN[name] = level, where, finding


fault, warning, note = (partial(broken, level) for level in (FAULT, WARNING, NOTE))
reset = Sound.reset
box = partial(spaces.Box, dtype=np.float32)
floats = partial(np.array, dtype=np.float32)
OLD_GYM = type("Env", (), {"__module__": "gym.core"})  # the old package's

# fmt: off
# what has no form that can be played
fault("OldStep", FORM, "old-step", step=lambda self, action: (*Sound.step(self, action)[:3], {}))
fault("OldReset", FORM, "old-reset", reset=lambda self, *, seed=None, options=None: reset(self, seed=seed)[0])
fault("WithoutSeed", FORM, "reset-without-seed", reset=lambda self: reset(self))
fault("NoEnv", FORM, "not-gymnasium", base=object)
fault("OldGym", FORM, "not-gymnasium", base=OLD_GYM)
fault("WithoutSpace", FORM, "space-missing", observation_space=None)
fault("CannotBeMade", FORM, "cannot-be-made", __init__=raising(RuntimeError("no licence")), age=0)
fault("TextFlag", FORM, "flag-not-bool", terminated=lambda self: str(Sound.terminated(self)))
fault("TextReward", FORM, "reward-not-number", reward=lambda self: str(Sound.reward(self)))
fault("NoInfo", FORM, "info-not-dict", info=lambda self: None)
warning("Words", FORM, "unfit-for-stride",
        observation_space=spaces.Dict({"text": spaces.Text(8), "place": Sound.observation_space}),
        observe=lambda self: {"text": "left", "place": Sound.observe(self)})
warning("FloatImage", FORM, "float-image", observation_space=box(0, 1, (8, 8, 3)),
        observe=lambda self: np.full((8, 8, 3), abs(self.place) / 2, np.float32))
warning("InfiniteActions", FORM, "action-bounds-infinite", Continuous, action_space=box(-np.inf, np.inf, (2,)))
note("FromOne", FORM, "discrete-start", action_space=spaces.Discrete(3, start=1),
     push=lambda self, action: int(action) - 2)
note("OtherRange", FORM, "action-not-normalised", Continuous, action_space=box(0, 40, (2,)),
     push=lambda self, action: float(action.sum() / 40 - 1))

# observations
fault("NanObservation", PLAY, "observation-nan",
      observe=lambda self: floats([self.place, np.nan if self.place < 0 and self.age else 0.0]))
fault("OutsideBounds", PLAY, "observation-outside", observation_space=box(-0.1, 0.1, (2,)))
fault("OutsideDiscrete", PLAY, "observation-outside", observation_space=spaces.Discrete(3),
      observe=lambda self: int(np.clip(round(3 * abs(self.place)), 0, 3)))
fault("OtherShape", PLAY, "observation-form", observe=lambda self: Sound.observe(self)[: 1 if self.age > 3 else 2])
fault("LacksPart", PLAY, "observation-form",
      observation_space=spaces.Dict({"place": Sound.observation_space, "age": spaces.Discrete(9)}),
      observe=lambda self: {"place": Sound.observe(self)})
fault("FloatForBytes", PLAY, "observation-dtype", observation_space=spaces.Box(0, 255, (2, 2, 3), np.uint8),
      observe=lambda self: np.full((2, 2, 3), abs(self.place), np.float32))
fault("OneBuffer", SEED, "observation-overwritten", WritesOneBuffer)
warning("HandsOutState", SEED, "observation-is-state", ReadsItsObservation)
warning("Float64", PLAY, "observation-dtype", observe=lambda self: Sound.observe(self).astype(np.float64))
warning("ConstantObservation", PLAY, "observation-constant", observe=lambda self: np.zeros(2, np.float32))
warning("HugeObservation", PLAY, "observation-scale", observation_space=box(-1e6, 1e6, (2,)),
        observe=lambda self: Sound.observe(self) * floats([1, 1e5]))
warning("TinyObservation", PLAY, "observation-tiny", observe=lambda self: Sound.observe(self) * np.float32(1e-5))
note("ConstantPart", PLAY, "observation-part-constant", observe=lambda self: floats([self.place, 0.7]))

# rewards
fault("NanReward", PLAY, "reward-nan", reward=lambda self: float("nan") if self.place < 0 else 1.0)
warning("HugeReward", PLAY, "reward-scale", reward=lambda self: 1e5 * Sound.reward(self))
warning("TinyReward", PLAY, "reward-tiny", reward=lambda self: 1e-6 * Sound.reward(self))
warning("ZeroReward", CONSTANT, "reward-never-seen", reward=lambda self: 0.0)
warning("SameReturn", CONSTANT, "return-never-differs", reward=lambda self: 1.0, terminated=lambda self: False,
        truncated=lambda self: self.age >= 6)
warning("OneButton", CONSTANT, "constant-action-is-best",  # whatever the state
        step=lambda self, action: (Sound.step(self, action)[0], float(action == 2), False, self.age >= 10, {}))
note("SparseReward", PLAY, "reward-sparse", reward=lambda self: float(self.age == 45))

# ends
fault("ClockAsEnd", PLAY, "time-limit-as-terminated", terminated=lambda self: self.age >= 20)
fault("StaysEnded", PLAY, "reset-does-not-restart", ended=False,
      terminated=lambda self: setattr(self, "ended", self.ended or Sound.terminated(self)) or self.ended)
fault("Endures", PLAY, "raises", terminated=lambda self: False,  # only as long as its episodes are short
      push=raising(ZeroDivisionError("the sky fell"), age=16))
warning("ClockBesideFalls", PLAY, "time-limit-as-terminated",
        terminated=lambda self: Sound.terminated(self) or self.age >= 12)
warning("OwnTimeLimit", PLAY, "hidden-time-limit", truncated=lambda self: self.age >= 12 and not self.terminated())
warning("Endless", PLAY, "never-ends", terminated=lambda self: False)
note("BothFlags", PLAY, "flags-together", truncated=lambda self: self.terminated())

# randomness, and what one episode or world leaves to another
fault("GlobalRandom", SEED, "differs-under-seed", noise=lambda self: np.random.standard_normal())
fault("WallClock", SEED, "differs-under-seed", noise=lambda self: (time.perf_counter_ns() % 1000) / 1000)
fault("GlobalReseeded", SEED, "shared-state", SeedsNumPy)
fault("ClassState", SEED, "shared-state", trail=[],
      push=lambda self, action: self.trail.append(int(action)) or int(action) - 1,
      reward=lambda self: Sound.reward(self) - 0.01 * (len(self.trail) % 50))
fault("ClassTotal", SEED, "shared-state", total=[],
      reward=lambda self: self.total.append(1) or Sound.reward(self) - 0.01 * len(self.total))
warning("Remembers", SEED, "reset-remembers", tired=0.0,
        push=lambda self, action: setattr(self, "tired", self.tired + 0.01) or int(action) - 1 - self.tired)
warning("SameStart", SEED, "same-start-every-episode",
        begin=lambda self, seed: Sound.begin(self, seed) or (seed is None and setattr(self, "place", 0.25)))
warning("DefaultSeed", SEED, "same-start-every-episode",
        reset=lambda self, *, seed=3, options=None: reset(self, seed=seed))
note("CountsItself", SEED, "class-attribute-changes", steps=0,
     push=lambda self, action: setattr(type(self), "steps", type(self).steps + 1) or int(action) - 1)
note("Determined", SEED, "nothing-random", noise=lambda self: 0.0,
     begin=lambda self, seed: Sound.begin(self, seed) or setattr(self, "place", 0.25))

# actions
fault("IgnoresActions", CONSTANT, "actions-ignored", push=lambda self, action: 0)
warning("IgnoresPart", CONSTANT, "action-part-ignored", Continuous, push=lambda self, action: float(action[0]))
warning("ClipsActions", CONSTANT, "action-range-clipped", Continuous,
        push=lambda self, action: float(np.clip(action, -0.1, 0.1).sum()))
note("Twins", CONSTANT, "actions-alike", action_space=spaces.Discrete(4),
     push=lambda self, action: min(int(action), 2) - 1)

# memory and infos, pictures, copies and the end
fault("Leaks", MEMORY, "memory-grows",
      observe=lambda self: vars(self).setdefault("history", []).append(Sound.observe(self)) or self.history[-1].copy())
fault("SharedInfo", GYMNASIUM, "gymnasium-checker", shared={}, info=lambda self: self.shared)
warning("GrowingInfo", PLAY, "info-grows", KeepsItsPath, terminated=lambda self: False,
        truncated=lambda self: self.age >= 400)
warning("SeedMethod", GYMNASIUM, "gymnasium-warning", seed=lambda self, seed=None: [seed])
warning("RenderRaises", PICTURES, "render-fails", render=raising(ValueError("no font")))
warning("RenderFloats", PICTURES, "render-fails", render=lambda self: np.zeros((8, 8, 3)))
warning("CloseRaises", END, "close-fails", closes=0,
        close=lambda self: setattr(self, "closes", self.closes + 1) or 1 / (2 - self.closes))
note("LargeInfo", PLAY, "info-large", info=lambda self: {"picture": np.zeros((64, 64, 3))})
note("NeverDrawn", PICTURES, "no-render", metadata={})
note("Unpicklable", END, "not-picklable",
     __init__=lambda self, render_mode=None: vars(self).update(
         render_mode=render_mode, size=1.0, file=tempfile.TemporaryFile()))  # noqa: SIM115
# fmt: on


class Prints(Sound):
    def push(self, action):
        print("place", self.place)
        return super().push(action)


class Hangs(Sound):
    def push(self, action):
        return time.sleep(60 if self.age == 5 else 0) or super().push(action)


class HangsInMachineCode(Sound):
    """And keeps Python's lock."""

    def begin(self, seed):
        re.match(r"(a+)+$", "a" * 40 + "b")


class Dies(Sound):
    def push(self, action):
        return os.kill(os.getpid(), signal.SIGSEGV if self.age == 5 else 0) or super().push(action)


class DiesDrawing(Sound):
    def render(self):
        os.kill(os.getpid(), signal.SIGKILL)


class Exits(Sound):
    def push(self, action):
        return os._exit(7) if self.age == 5 else super().push(action)


gymnasium.register("Sound-v0", Sound, max_episode_steps=60)
