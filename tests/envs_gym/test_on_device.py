"""Gymnasium's worlds seen from a device: what the bare worlds tell, one copy each way, snapshots handed through.

The device here is the CPU: the copies are the same ones, but that nothing is pinned and nothing waits.
"""

import pytest
import torch
from playing import bits, hand_over, leaves, random_actions, record
from torch.utils._python_dispatch import TorchDispatchMode

from stride.envs_fast.vec_env import CPU
from stride.envs_gym.gym_env import GymEnv
from stride.envs_gym.on_device import OnDevice

N = 3
COUNTING = "stride-test/Counting-v0"
WORLDS = [
    ("CartPole-v1", {}),
    ("Pendulum-v1", {"max_episode_steps": 7}),
    ("Blackjack-v1", {}),
    ("stride-test/Camera-v0", {"named": True, "length": 4}),
    *((COUNTING, {"kind": kind}) for kind in ("dict", "discrete", "multi_discrete")),
    (COUNTING, {"action": "multi"}),
]


@pytest.mark.parametrize(("env_id", "kwargs"), WORLDS)
def test_they_answer_what_the_bare_worlds_do_in_other_memory(env_id, kwargs):
    bare, moved = GymEnv(env_id, N, kwargs), OnDevice(GymEnv(env_id, N, kwargs), CPU)
    facts = ("num_envs", "observation_space", "action_space", "time_limit", "resume", "reward_threshold", "wrong")
    assert [getattr(moved, name) for name in facts] == [getattr(bare, name) for name in facts]
    ended = 0
    for seed in (4, 5):
        for (_, mine), (_, other) in zip(leaves(moved.reset(seed)), leaves(bare.reset(seed)), strict=True):
            assert torch.equal(mine, other) and mine.data_ptr() != other.data_ptr()
        for action in random_actions(bare, 40):
            step = bare.step(action)
            assert bits(moved.step(action)) == bits(step)
            ended += int((step.terminated | step.truncated).sum())
    assert ended > N
    moved.close()


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
    envs = OnDevice(GymEnv("stride-test/Camera-v0", 2, {"named": True, "length": 4}), CPU)
    picture, level, line = 2 * 3 * 6 * 8, 2 * 4, 64
    seen = -(-picture // line) * line + -(-level // line) * line
    with Crossings() as crossings:
        envs.reset(0)
    assert crossings.bytes == [seen + 5 * line]
    for count in range(1, 9):
        with Crossings() as crossings:
            step = envs.step(torch.zeros(2, dtype=torch.int64))
        ended = count % 4 == 0
        assert step.terminated.all() == ended
        assert crossings.bytes == [2 * 8, seen + 5 * line + ended * seen]


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
    bare, bare_again = (GymEnv(COUNTING, N, {"length": 5}) for _ in range(2))
    moved, moved_again = (OnDevice(GymEnv(COUNTING, N, {"length": 5}), CPU) for _ in range(2))
    assert moved.resume == strategy
    actions = random_actions(bare, 19)
    for envs in (bare, moved):
        envs.reset(2)
        record(envs, actions[:7])
    hand_over(moved, bare_again), hand_over(bare, moved_again)
    result = record(moved_again, actions[7:])
    assert record(bare_again, actions[7:]) == result
    assert (record(bare, actions[7:]) == result) is (strategy == "exact")
