"""`engine: graphed` with a tape in the place of CUDA's graphs: what it captures, refuses and does again.

That it trains as eager does is in test_same_as_eager.py; that CUDA captures the same operations is for
lab/gpu_check.py to show.
"""

from functools import partial

import pytest
import torch
from driven import advance, agent_for, with_optimizer
from fused_cases import GRAPHED
from same_as_eager import as_on_a_device, on_tape, train
from tape import Tape, TapedEnv
from worlds import NAN, Scripted, driven, random_tables, weights

from stride.agents.engines.graphed import CudaGraph, graphed
from stride.agents.ppo import PPO
from stride.agents.sockets import eager
from stride.config.schema import PPOConfig
from stride.envs_gym.make import make_envs
from stride.utils.user_error import UserError


@pytest.fixture(autouse=True)
def device():
    with as_on_a_device():
        yield


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("case", ["schedules", "target_kl", "lstm", "rmsprop", "numbers", "pqn"])
def test_cuda_replays_what_eager_does(case):
    agents, worlds = [], partial(make_envs, device=torch.device("cuda"))
    for engine in (lambda agent: eager(), graphed):
        agent = agent_for(*GRAPHED[case], "device=cuda", worlds=worlds)
        agent.engine = engine(agent)
        agents.append(train(with_optimizer(agent), 6))
    assert agents[0].progress == agents[1].progress
    for mine, theirs in zip(*(agent.parameters() for agent in agents), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_updates_end_by_target_kl_in_replays():
    agent = train(on_tape(*GRAPHED["target_kl"]), 2)
    agent.metrics.flush()
    assert 0 < train(agent, 3).metrics.flush()["train/policy/kl_stopped"] < 1


def test_a_replay_that_meets_no_number_learns_nothing():
    reward, terminated, truncated = random_tables(56, 4, 0)
    reward[35, 2] = NAN  # in the fifth rollout
    config = PPOConfig(n_envs=4, n_steps=8, hidden_dims=(8,), policy_lr=1e-2, max_timesteps=10**6, nan_guard="skip")
    tables = reward, terminated, truncated
    plain, other = driven(PPO(config, Scripted(*tables))), driven(PPO(config, TapedEnv(Scripted(*tables))))
    other.engine = graphed(other, Tape)
    for iterations, learns in ((4, True), (1, False), (2, True)):
        before = weights(other.policy)
        advance(plain, iterations), advance(other, iterations)
        assert torch.equal(weights(other.policy), weights(plain.policy))
        assert learns != torch.equal(weights(other.policy), before)
    assert other.engine.learn._repeated._graph.replays == 5 and other.progress == plain.progress


def test_a_tape_refuses_to_wait():
    tape = Tape(torch.device("cpu"))
    with pytest.raises(AssertionError, match="waits for the device"):
        tape.capture(lambda: torch.ones(()).item())


def test_what_cuda_refuses_to_capture_is_one_line(monkeypatch):
    def refuse(*arguments, **options):
        raise torch.AcceleratorError("CUDA error: operation not permitted when stream is capturing\nCompile with ..")

    for name in ("Stream", "CUDAGraph"):
        monkeypatch.setattr(torch.cuda, name, lambda *arguments: None)
    monkeypatch.setattr(torch.cuda, "graph", refuse)
    with pytest.raises(UserError, match=r"not permitted when stream is capturing\); engine: eager trains it$"):
        CudaGraph(torch.device("cuda:0")).capture(lambda: None)
