"""Gymnasium's worlds seen from a device: what the bare worlds tell, one copy each way, snapshots handed through.

The device here is the CPU: the copies are the same ones, but that nothing is pinned and nothing waits.
"""

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from stride.envs_fast.vec_env import CPU
from stride.envs_gym.gym_env import GymEnv
from stride.envs_gym.on_device import OnDevice

N = 3


class Blinking(gym.Env):
    """Random pictures beside a number, episodes of 4 steps."""

    observation_space = gym.spaces.Dict(
        {"eye": gym.spaces.Box(0, 255, (6, 8, 3), np.uint8), "level": gym.spaces.Box(0, 1, (1,), np.float32)}
    )
    action_space = gym.spaces.MultiDiscrete([2, 3])

    def look(self):
        picture = self.np_random.integers(0, 256, (6, 8, 3), np.uint8)
        return {"eye": picture, "level": self.np_random.random(1, np.float32)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.look(), {}

    def step(self, action):
        self.count += 1
        return self.look(), float(action.sum()), self.count == 4, False, {}


gym.register("stride-test/Blinking-v0", Blinking)
WORLDS = [
    ("CartPole-v1", {}),
    ("Pendulum-v1", {"max_episode_steps": 7}),
    ("Blackjack-v1", {}),
    ("stride-test/Blinking-v0", {}),
    *(("stride-test/Counting-v0", {"kind": kind}) for kind in ("dict", "discrete", "multi_discrete")),
]


def actions(space, rng) -> torch.Tensor:
    if isinstance(space, gym.spaces.Box):
        return torch.from_numpy(rng.uniform(-1, 1, (N, *space.shape)).astype(np.float32))
    top = space.n if isinstance(space, gym.spaces.Discrete) else space.nvec
    return torch.from_numpy(rng.integers(0, top, (N, *(space.shape or ()))))


def leaves(tree):
    return tree.items() if isinstance(tree, dict) else [("", tree)]


def assert_same(mine, theirs):
    """All of a Step that has a meaning, in other memory."""
    over = theirs.terminated | theirs.truncated
    for field in mine._fields:
        for (name, a), (_, b) in zip(leaves(getattr(mine, field)), leaves(getattr(theirs, field)), strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape and a.data_ptr() != b.data_ptr()
            ended = field in ("final_obs", "episode_return", "episode_length")
            assert torch.equal(a[over] if ended else a, b[over] if ended else b), (field, name)
    return int(over.sum())


@pytest.mark.parametrize(("env_id", "kwargs"), WORLDS)
def test_they_tell_what_the_bare_worlds_tell(env_id, kwargs):
    bare, seen = GymEnv(env_id, N, kwargs), OnDevice(GymEnv(env_id, N, kwargs), CPU)
    facts = ("num_envs", "observation_space", "action_space", "time_limit", "resume", "reward_threshold", "wrong")
    assert [getattr(seen, name) for name in facts] == [getattr(bare, name) for name in facts]
    rng, ended = np.random.default_rng(0), 0
    for seed in (4, 5):
        for (_, a), (_, b) in zip(leaves(seen.reset(seed)), leaves(bare.reset(seed)), strict=True):
            assert torch.equal(a, b)
        for _ in range(40):
            action = actions(bare.action_space, rng)
            ended += assert_same(seen.step(action), bare.step(action))
    assert ended > N
    seen.close()


def test_a_step_writes_where_the_last_one_did():
    envs = OnDevice(GymEnv("CartPole-v1", N), CPU)
    obs, step = envs.reset(0), envs.step(torch.zeros(N, dtype=torch.int64))
    assert step is envs.step(torch.zeros(N, dtype=torch.int64))
    assert obs.data_ptr() == step.obs.data_ptr()


class Crossings(TorchDispatchMode):
    """The bytes of every copy that need not be waited for."""

    def __init__(self):
        super().__init__()
        self.bytes = []

    def __torch_dispatch__(self, operation, types, arguments=(), keywords=None):
        if operation is torch.ops.aten.copy_.default and True in arguments[2:]:
            self.bytes.append(arguments[0].nbytes)
        return operation(*arguments, **(keywords or {}))


def test_a_step_crosses_in_one_copy_each_way():
    """Final observations come along where an episode has ended, and only there."""
    envs = OnDevice(GymEnv("stride-test/Blinking-v0", 2), CPU)
    picture, level, line = 2 * 3 * 6 * 8, 2 * 4, 64
    seen = -(-picture // line) * line + -(-level // line) * line
    with Crossings() as crossings:
        envs.reset(0)
    assert crossings.bytes == [seen + 5 * line]
    for count in range(1, 9):
        with Crossings() as crossings:
            step = envs.step(torch.zeros(2, 2, dtype=torch.int64))
        ended = count % 4 == 0
        assert step.terminated.all() == ended
        assert crossings.bytes == [2 * 2 * 8, seen + 5 * line + ended * seen]


def test_actions_of_the_wrong_shape_or_type():
    envs = OnDevice(GymEnv("CartPole-v1", N), CPU)
    envs.reset(0)
    for action in (torch.zeros(1, dtype=torch.int64), torch.zeros(N), torch.zeros(N, 1, dtype=torch.int64)):
        with pytest.raises(ValueError, match=r"takes actions torch.int64\[3\], got torch"):
            envs.step(action)


@pytest.mark.parametrize("strategy", ["exact", "seam"])
def test_snapshots_are_the_worlds_own(strategy, monkeypatch):
    """Taken there and gone on with here, and the other way; where episodes cannot be restored, they are cut."""
    if strategy == "seam":
        monkeypatch.setattr("stride.envs_gym.snapshot.SEAM", ("stride-test/Counting",))
    env_id, rng = "stride-test/Counting-v0", np.random.default_rng(1)
    bare, seen = GymEnv(env_id, N, {"length": 5}), OnDevice(GymEnv(env_id, N, {"length": 5}), CPU)
    assert seen.resume == strategy
    for envs in (bare, seen):
        envs.reset(2)
        for _ in range(7):
            envs.step(torch.zeros(N, dtype=torch.int64))
    bare_again, seen_again = GymEnv(env_id, N, {"length": 5}), OnDevice(GymEnv(env_id, N, {"length": 5}), CPU)
    bare_again.load_state_dict(seen.state_dict())
    seen_again.load_state_dict(bare.state_dict())
    cut = 0
    for _ in range(12):
        action = actions(bare.action_space, rng)
        mine, theirs = seen_again.step(action), bare_again.step(action)
        assert_same(mine, theirs)
        cut += int(mine.truncated.sum())
        if strategy == "exact":
            assert_same(mine, bare.step(action))
    assert cut == (N if strategy == "seam" else 0)
