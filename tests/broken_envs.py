"""A sound little world, and worlds broken on purpose, each in one way: BROKEN says what must be found, and where."""

import os
import random
import re
import signal
import tempfile
import time

import gymnasium
import numpy as np
from gymnasium import spaces

from stride.envs_gym.check import finding as parts


class Sound(gymnasium.Env):
    """A point on a line, to be held in the middle; what tests make of it breaks one thing each."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012  (as everybody writes it)
    observation_space = spaces.Box(-2, 2, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, render_mode=None, size=1.0):
        self.render_mode, self.size = render_mode, size

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.speed, self.age = float(self.np_random.uniform(-0.5, 0.5)), 0.0, 0
        return self.observe(), {}

    def step(self, action):
        self.age += 1
        self.speed = 0.8 * self.speed + 0.1 * self.push(action) + 0.05 * float(self.noise())
        self.place = float(np.clip(self.place + self.speed, -1.5, 1.5))
        return self.observe(), self.reward(), abs(self.place) > self.size, False, {}

    def noise(self):
        return self.np_random.standard_normal()

    def push(self, action):
        return int(action) - 1

    def observe(self):
        return np.array([self.place, np.clip(self.speed, -2, 2)], np.float32)

    def reward(self):
        return 1.0 - self.place**2

    def render(self):
        return np.full((8, 8, 3), 100, np.uint8)


class OldStep(Sound):
    def step(self, action):
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, info


class OldReset(Sound):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class WithoutSeed(Sound):
    def reset(self):
        return super().reset()


class NoEnv:
    """Of nobody's class."""


class OldGym(type("Env", (), {"__module__": "gym.core"})):
    """What the old package's Env looks like."""


class WithoutSpace(Sound):
    observation_space = None


class CannotBeMade(Sound):
    def __init__(self, render_mode=None):
        raise RuntimeError("no licence")


class TextFlag(Sound):
    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, str(terminated), truncated, info


class TextReward(Sound):
    def reward(self):
        return str(super().reward())


class NoInfo(Sound):
    def step(self, action):
        return *super().step(action)[:4], None


class Words(Sound):
    observation_space = spaces.Dict({"text": spaces.Text(8), "place": Sound.observation_space})

    def observe(self):
        return {"text": "left", "place": super().observe()}


class FloatImage(Sound):
    observation_space = spaces.Box(0, 1, (8, 8, 3), np.float32)

    def observe(self):
        return np.full((8, 8, 3), abs(self.place) / 2, np.float32)


class FromOne(Sound):
    action_space = spaces.Discrete(3, start=1)

    def push(self, action):
        return int(action) - 2


class NanObservation(Sound):
    def observe(self):
        return np.array([self.place, np.nan if self.place < 0 and self.age else 0.0], np.float32)


class InfObservation(Sound):
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def observe(self):
        return np.array([self.place, np.inf if self.age == 7 else 0.0], np.float32)


class OutsideBounds(Sound):
    observation_space = spaces.Box(-0.1, 0.1, (2,), np.float32)


class OutsideDiscrete(Sound):
    observation_space = spaces.Discrete(3)

    def observe(self):
        return int(np.clip(round(3 * abs(self.place)), 0, 3))


class OtherShape(Sound):
    def observe(self):
        return super().observe()[: 1 if self.age > 3 else 2]


class LacksPart(Sound):
    observation_space = spaces.Dict({"place": Sound.observation_space, "age": spaces.Discrete(9)})

    def observe(self):
        return {"place": super().observe()}


class FloatForBytes(Sound):
    observation_space = spaces.Box(0, 255, (2, 2, 3), np.uint8)

    def observe(self):
        return np.full((2, 2, 3), abs(self.place), np.float32)


class Float64(Sound):
    def observe(self):
        return super().observe().astype(np.float64)


class ConstantObservation(Sound):
    def observe(self):
        return np.zeros(2, np.float32)


class ConstantPart(Sound):
    def observe(self):
        return np.array([self.place, 0.7], np.float32)


class HugeObservation(Sound):
    observation_space = spaces.Box(-1e6, 1e6, (2,), np.float32)

    def observe(self):
        return super().observe() * np.array([1, 1e5], np.float32)


class TinyObservation(Sound):
    def observe(self):
        return super().observe() * np.float32(1e-5)


class OneBuffer(Sound):
    buffer = None

    def observe(self):
        self.buffer = np.zeros(2, np.float32) if self.buffer is None else self.buffer
        self.buffer[:] = super().observe()
        return self.buffer


class HandsOutState(Sound):
    def observe(self):
        self.state = np.array([self.place, self.speed], np.float32)
        return self.state

    def step(self, action):
        self.place, self.speed = map(float, self.state)
        return super().step(action)


class NanReward(Sound):
    def reward(self):
        return float("nan") if self.place < 0 else 1.0


class ZeroReward(Sound):
    def reward(self):
        return 0.0


class SparseReward(Sound):
    def reward(self):
        return float(self.age == 45)


class HugeReward(Sound):
    def reward(self):
        return 1e5 * super().reward()


class TinyReward(Sound):
    def reward(self):
        return 1e-6 * super().reward()


class SameReturn(Sound):
    def step(self, action):
        obs, _, _, _, info = super().step(action)
        return obs, 1.0, False, self.age >= 6, info


class OneButton(Sound):
    """Action 2 pays, whatever the state; everybody plays for ten steps."""

    def step(self, action):
        obs, _, _, _, info = super().step(action)
        return obs, float(action == 2), False, self.age >= 10, info


class ClockAsEnd(Sound):
    def step(self, action):
        obs, reward, _, _, info = super().step(action)
        return obs, reward, self.age >= 20, False, info


class ClockBesideFalls(Sound):
    def step(self, action):
        obs, reward, fallen, _, info = super().step(action)
        return obs, reward, fallen or self.age >= 12, False, info


class OwnTimeLimit(Sound):
    def step(self, action):
        obs, reward, fallen, _, info = super().step(action)
        return obs, reward, fallen, not fallen and self.age >= 12, info


class Endless(Sound):
    def step(self, action):
        obs, reward, _, _, info = super().step(action)
        return obs, reward, False, False, info


class BothFlags(Sound):
    def step(self, action):
        obs, reward, fallen, _, info = super().step(action)
        return obs, reward, fallen, fallen, info


class StaysEnded(Sound):
    ended = False

    def step(self, action):
        obs, reward, fallen, truncated, info = super().step(action)
        self.ended = self.ended or fallen
        return obs, reward, self.ended, truncated, info


class GlobalRandom(Sound):
    def noise(self):
        return np.random.standard_normal()


class PythonsRandom(Sound):
    def noise(self):
        return random.gauss(0, 1)


class GlobalReseeded(GlobalRandom):
    def reset(self, *, seed=None, options=None):
        if seed is not None:
            np.random.seed(seed)
        return super().reset(seed=seed)


class WallClock(Sound):
    def noise(self):
        return (time.perf_counter_ns() % 1000) / 1000


class ClassState(Sound):
    trail = []  # noqa: RUF012  (that is the mistake)

    def step(self, action):
        self.trail.append(int(action))
        obs, reward, fallen, truncated, info = super().step(action)
        return obs, reward - 0.01 * (len(self.trail) % 50), fallen, truncated, info


class MutableDefault(Sound):
    def __init__(self, render_mode=None, wind=[0.0]):  # noqa: B006  (that is the mistake)
        super().__init__(render_mode)
        self.wind = wind

    def reset(self, *, seed=None, options=None):
        self.wind[0] = 0.0
        return super().reset(seed=seed)

    def push(self, action):
        self.wind[0] += 0.1 * (int(action) - 1)
        return super().push(action) + self.wind[0]


class CountsItself(Sound):
    steps = 0

    def step(self, action):
        CountsItself.steps += 1
        return super().step(action)


class Remembers(Sound):
    tired = 0.0

    def push(self, action):
        self.tired += 0.01
        return super().push(action) - self.tired


class SameStart(Sound):
    def reset(self, *, seed=None, options=None):
        answer = super().reset(seed=seed)
        if seed is None:
            self.place = 0.25
            answer = self.observe(), {}
        return answer


class Determined(Sound):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0.25
        return self.observe(), {}

    def noise(self):
        return 0.0


class IgnoresActions(Sound):
    def push(self, action):
        return 0


class Twins(Sound):
    action_space = spaces.Discrete(4)

    def push(self, action):
        return min(int(action), 2) - 1


class Continuous(Sound):
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def push(self, action):
        return float(action[0] + 0.5 * action[1])


class IgnoresPart(Continuous):
    def push(self, action):
        return float(action[0])


class ClipsActions(Continuous):
    def push(self, action):
        return float(np.clip(action, -0.1, 0.1).sum())


class InfiniteActions(Continuous):
    action_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)


class OtherRange(Continuous):
    action_space = spaces.Box(0, 40, (2,), np.float32)

    def push(self, action):
        return float(action.sum() / 40 - 1)


class Leaks(Sound):
    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.history = []

    def observe(self):
        self.history.append(super().observe())
        return self.history[-1].copy()


class GrowingInfo(Sound):
    def step(self, action):
        obs, reward, _, _, info = super().step(action)
        self.path = [*self.path, self.place] if self.age > 1 else [self.place]
        return obs, reward, False, self.age >= 400, {**info, "path": list(self.path)}


class LargeInfo(Sound):
    def step(self, action):
        return *super().step(action)[:4], {"picture": np.zeros((64, 64, 3))}


class Raises(Sound):
    def step(self, action):
        if self.age == 15:
            raise ZeroDivisionError("the sky fell")
        return super().step(action)


class Endures(Raises):
    """Only as long as its episodes are short."""

    def step(self, action):
        obs, reward, _, truncated, info = super().step(action)
        return obs, reward, False, truncated, info


class RenderRaises(Sound):
    def render(self):
        raise ValueError("no font")


class RenderFloats(Sound):
    def render(self):
        return np.zeros((8, 8, 3))


class NeverDrawn(Sound):
    metadata = {}  # noqa: RUF012


class CloseRaises(Sound):
    closed = False

    def close(self):
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True


class Unpicklable(Sound):
    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.file = tempfile.TemporaryFile()  # noqa: SIM115


class DefaultSeed(Sound):
    def reset(self, *, seed=3, options=None):
        return super().reset(seed=seed)


class SeedMethod(Sound):
    def seed(self, seed=None):
        return [seed]


class SharedInfo(Sound):
    info = {}  # noqa: RUF012  (that is the mistake)

    def step(self, action):
        return *super().step(action)[:4], self.info


class Prints(Sound):
    def step(self, action):
        print("place", self.place)
        return super().step(action)


class Hangs(Sound):
    def step(self, action):
        if self.age == 5:
            time.sleep(60)
        return super().step(action)


class HangsInMachineCode(Sound):
    """And keeps Python's lock."""

    def reset(self, *, seed=None, options=None):
        re.match(r"(a+)+$", "a" * 40 + "b")
        return super().reset(seed=seed)


class Dies(Sound):
    def step(self, action):
        if self.age == 5:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().step(action)


class DiesDrawing(Sound):
    def render(self):
        os.kill(os.getpid(), signal.SIGKILL)


class Exits(Sound):
    def step(self, action):
        if self.age == 5:
            os._exit(7)
        return super().step(action)


FAULTS = {  # class: (where it is found, as what)
    OldStep: (parts.FORM, "old-step"),
    OldReset: (parts.FORM, "old-reset"),
    WithoutSeed: (parts.FORM, "reset-without-seed"),
    NoEnv: (parts.FORM, "not-gymnasium"),
    OldGym: (parts.FORM, "not-gymnasium"),
    WithoutSpace: (parts.FORM, "space-missing"),
    CannotBeMade: (parts.FORM, "cannot-be-made"),
    TextFlag: (parts.FORM, "flag-not-bool"),
    TextReward: (parts.FORM, "reward-not-number"),
    NoInfo: (parts.FORM, "info-not-dict"),
    NanObservation: (parts.PLAY, "observation-nan"),
    InfObservation: (parts.PLAY, "observation-nan"),
    OutsideBounds: (parts.PLAY, "observation-outside"),
    OutsideDiscrete: (parts.PLAY, "observation-outside"),
    OtherShape: (parts.PLAY, "observation-form"),
    LacksPart: (parts.PLAY, "observation-form"),
    FloatForBytes: (parts.PLAY, "observation-dtype"),
    NanReward: (parts.PLAY, "reward-nan"),
    ClockAsEnd: (parts.PLAY, "time-limit-as-terminated"),
    StaysEnded: (parts.PLAY, "reset-does-not-restart"),
    Endures: (parts.PLAY, "raises"),
    OneBuffer: (parts.SEED, "observation-overwritten"),
    GlobalRandom: (parts.SEED, "differs-under-seed"),
    PythonsRandom: (parts.SEED, "differs-under-seed"),
    WallClock: (parts.SEED, "differs-under-seed"),
    GlobalReseeded: (parts.SEED, "shared-state"),
    ClassState: (parts.SEED, "shared-state"),
    MutableDefault: (parts.SEED, "shared-state"),
    IgnoresActions: (parts.CONSTANT, "actions-ignored"),
    Leaks: (parts.MEMORY, "memory-grows"),
    SharedInfo: (parts.GYMNASIUM, "gymnasium-checker"),
}
WARNINGS = {
    Words: (parts.FORM, "unfit-for-stride"),
    FloatImage: (parts.FORM, "float-image"),
    InfiniteActions: (parts.FORM, "action-bounds-infinite"),
    Float64: (parts.PLAY, "observation-dtype"),
    ConstantObservation: (parts.PLAY, "observation-constant"),
    HugeObservation: (parts.PLAY, "observation-scale"),
    TinyObservation: (parts.PLAY, "observation-tiny"),
    HugeReward: (parts.PLAY, "reward-scale"),
    TinyReward: (parts.PLAY, "reward-tiny"),
    ClockBesideFalls: (parts.PLAY, "time-limit-as-terminated"),
    OwnTimeLimit: (parts.PLAY, "hidden-time-limit"),
    Endless: (parts.PLAY, "never-ends"),
    GrowingInfo: (parts.PLAY, "info-grows"),
    HandsOutState: (parts.SEED, "observation-is-state"),
    Remembers: (parts.SEED, "reset-remembers"),
    SameStart: (parts.SEED, "same-start-every-episode"),
    ZeroReward: (parts.CONSTANT, "reward-never-seen"),
    SameReturn: (parts.CONSTANT, "return-never-differs"),
    OneButton: (parts.CONSTANT, "constant-action-is-best"),
    IgnoresPart: (parts.CONSTANT, "action-part-ignored"),
    ClipsActions: (parts.CONSTANT, "action-range-clipped"),
    RenderRaises: (parts.PICTURES, "render-fails"),
    RenderFloats: (parts.PICTURES, "render-fails"),
    CloseRaises: (parts.END, "close-fails"),
    DefaultSeed: (parts.SEED, "same-start-every-episode"),
    SeedMethod: (parts.GYMNASIUM, "gymnasium-warning"),
}
NOTES = {
    FromOne: (parts.FORM, "discrete-start"),
    OtherRange: (parts.FORM, "action-not-normalised"),
    ConstantPart: (parts.PLAY, "observation-part-constant"),
    SparseReward: (parts.PLAY, "reward-sparse"),
    BothFlags: (parts.PLAY, "flags-together"),
    LargeInfo: (parts.PLAY, "info-large"),
    CountsItself: (parts.SEED, "class-attribute-changes"),
    Determined: (parts.SEED, "nothing-random"),
    Twins: (parts.CONSTANT, "actions-alike"),
    NeverDrawn: (parts.PICTURES, "no-render"),
    Unpicklable: (parts.END, "not-picklable"),
}
BROKEN = {
    kind: (level, *rest)
    for level, kinds in (("fault", FAULTS), ("warning", WARNINGS), ("note", NOTES))
    for kind, rest in kinds.items()
}
gymnasium.register("Sound-v0", Sound, max_episode_steps=60)
