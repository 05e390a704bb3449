"""CudaEnv, its kernels compiled for this processor: NumbaEnv's worlds to the bit, their snapshots, what it refuses.

Its contract is held beside NumbaEnv's in test_contract.py.
"""

from copy import deepcopy

import numpy as np
import pytest
import torch
from playing import bits, hand_over, leaves, random_actions
from reachable import IDS, actions, on_host
from replay_log import same

from stride.agents.engines.choice import build_agent
from stride.agents.engines.fused_cpu.engine import why_not_here
from stride.config.schema import PPOConfig
from stride.envs_fast import registry
from stride.envs_fast.vec_env import wrong_action
from stride.utils.user_error import NumbersError, UserError

LIMIT, N = 23, 70


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize(("there", "back"), [(on_host, registry.make), (registry.make, on_host)])
def test_a_snapshot_continues_on_either_device_bit_for_bit(env_id, there, back):
    kwargs = {"episode_length": 5} if env_id == "Bandit-v0" else {}
    first = there(env_id, N, seed=(3 << 32) + 7, max_episode_steps=LIMIT, **kwargs)
    tape = random_actions(first, 60)
    first.advance(tape[:31])
    second = back(env_id, N, max_episode_steps=LIMIT, **kwargs)
    state = hand_over(first, second)
    assert state["ages"].any()  # in the middle of episodes
    for (_, mine), (_, other) in zip(leaves(second.obs), leaves(first.obs), strict=True):
        assert torch.equal(mine, other)
    steps = first.advance(tape[31:])
    assert bits(second.advance(tape[31:])) == bits(steps)
    assert (steps.terminated | steps.truncated).sum() >= N
    kept = first.state_dict()
    assert same(kept, second.state_dict())
    before = deepcopy(kept)
    first.advance(tape)
    assert same(kept, before), "a snapshot is a copy"
    assert {value.device.type for value in kept.values() if isinstance(value, torch.Tensor)} == {"cpu"}


@pytest.mark.parametrize(
    ("env_id", "wrong", "kind", "line"),
    [
        ("CartPole-v1", 2, ValueError, "an invalid action; actions are 0 to 1$"),
        ("FrozenLake-v1", -1, ValueError, "an invalid action; actions are 0 to 3$"),
        ("Pendulum-v1", float("nan"), NumbersError, "actions are numbers; -1 to 1 spans the bounds$"),
    ],
)
def test_a_wrong_action_raises_a_flag_that_whoever_looks_turns_into_a_line(env_id, wrong, kind, line):
    env = on_host(env_id, 6, seed=0)
    state = env.state_dict()
    action = torch.zeros_like(actions(env, np.random.default_rng(0), 6))
    env.step(action)
    assert not env.wrong.any()
    action[4] = wrong
    for look in (env.state_dict, env.close, lambda: env.reset(1)):
        step = env.step(action)
        assert all(leaf.isfinite().all() for _, leaf in leaves(step.obs))
        env.step(torch.zeros_like(action))
        assert env.wrong.tolist() == [1]  # still
        with pytest.raises(kind, match=line):
            look()
        assert not env.wrong.any()
        look()
    env.step(action)
    assert isinstance(wrong_action(env), kind)
    assert not env.wrong.any()
    env.step(action)
    env.load_state_dict(state)  # no wrong action outlives the worlds it was given to
    env.close()


def test_workers_are_of_the_cpu():
    with pytest.raises(UserError, match="workers are CPU threads; on cuda:0, workers must be 1, got 2"):
        registry.make("CartPole-v1", 4, workers=2, device=torch.device("cuda:0"))


def test_actions_of_another_device_are_refused():
    env = on_host("CartPole-v1", 6, seed=0)
    for act, shape in ((env.step, (6,)), (env.advance, (2, 6))):
        with pytest.raises(ValueError, match=r"on cpu, got torch.int64\[.*6\] on meta"):
            act(torch.zeros(shape, dtype=torch.int64, device="meta"))


def test_nothing_moves_in_memory():
    """What a graph has captured stays where it is: through resets, snapshots and another price of actions."""
    env = on_host("MountainCarContinuous-v0", 4, seed=0)

    def addresses():
        tensors = [x for x in env.simulation if isinstance(x, torch.Tensor)]
        return [x.data_ptr() for x in (*tensors, env.wrong, *env.last.arrays)]

    before = addresses()
    env.step(torch.zeros(4, 1))
    env.reset(8)
    env.charge_as_gymnasium()
    env.load_state_dict(env.state_dict())
    assert addresses() == before


def test_the_fused_engine_of_the_cpu_refuses_them_by_name():
    assert "cuda:0" in why_not_here(torch.device("cuda:0"))
    config = PPOConfig(env_id="CartPole-v1", algo_id="ppo", n_envs=8, n_steps=40, batch_size=80)
    agent = build_agent(config, on_host("CartPole-v1", 8))
    assert agent.engine.reason == "updates only: its kernels cannot play environments on a GPU"
    assert agent.engine.play.name != "fused_cpu"
