"""`lag: 1` by the kernels of `engine: fused_gpu`, on this processor: eager's numbers, whoever plays and learns."""

import pytest
import torch
from driven import advance, agent_for, continued
from fused_cases import assert_near, digest
from fused_gpu_cases import TINY, N, T, assert_same, fused, gpu_agent, played, player, trained, with_engine
from host_kernels import compile_host
from tape import Tape, taped

from stride.agents.engines.choice import RECIPES
from stride.agents.engines.fused_gpu.ahead import Beside
from stride.agents.engines.fused_gpu.engine import fused_gpu
from stride.agents.engines.fused_gpu.learn import FusedLearn, Updates
from stride.agents.engines.fused_gpu.play import FusedPlay

PROMPT = ("CartPole-v1:ppo", *TINY, "policy_lr=0.01")
LAGS = (*PROMPT, "lag=1")
TOLD = ("train/lag/ratio/mean", "train/lag/ratio/max", "train/lag/clipped", "train/advantage/mean")


def test_it_learns_what_eager_learns_and_tells_the_same_of_the_lag():
    """The second and third rollout are played by an actor that is six updates older than what is learnt."""
    mine, eager = fused(*LAGS), agent_for(*LAGS, "engine=eager")
    for iteration in range(3):
        advance(mine, 1), advance(eager, 1)
        assert_near(mine, eager)
        assert_near(mine.lagging, eager.lagging)
        told, expected = mine.metrics.flush(), eager.metrics.flush()
        assert told.keys() == expected.keys()
        assert all(told[name] == pytest.approx(expected[name], rel=1e-4, abs=1e-5) for name in TOLD)
        assert (told["train/lag/ratio/max"] == 1.0) == (iteration == 0)


def test_the_first_iteration_is_that_of_no_lag_to_the_bit_and_the_third_is_another():
    lags, prompt = fused(*LAGS), fused(*PROMPT)
    advance(lags, 1), advance(prompt, 1)
    assert digest(lags) == digest(prompt)
    advance(lags, 2), advance(prompt, 2)
    assert digest(lags) != digest(prompt)


def test_a_continued_run_is_the_same_run():
    straight, half = advance(fused(*LAGS), 4), advance(fused(*LAGS), 2)
    resumed = advance(continued(half, fused(*LAGS)), 2)
    assert digest(straight) == digest(resumed)
    assert_near(straight.lagging, resumed.lagging, within=0.0)


def test_the_actor_of_one_iteration_before_plays():
    """In one launch, what the collector plays by it; and not what the present one would play."""
    plain, other, present = (gpu_agent("CartPole", "lag=1", "policy_lr=0.05") for _ in range(3))
    for agent in (plain, other, present):
        advance(agent, 2)
    present.collector.policy = present.policy
    plain.collector.collect(T, plain.memory)
    for agent in (other, present):
        player(agent).collect(agent, T)
    assert_same(played(other), played(plain))
    assert plain.memory.table.action.numel() == N * T
    assert not torch.equal(present.memory.table.action, plain.memory.table.action)


class Late(Beside):
    """The second stream of a GPU that does nothing before somebody waits for it."""

    def __init__(self, device):
        super().__init__(device)
        self.begun = []

    def begin(self, work):
        self.begun.append(work)

    def wait(self):
        while self.begun:
            self.begun.pop()()


def overlapping(make):
    """An agent whose rollouts are played beside its updates, by this stream; None: before them."""
    agent = gpu_agent("CartPole", "lag=1", "hidden_dims=[16,16]", "n_epochs=1", "policy_lr=0.01")
    agent.engine = fused_gpu(RECIPES[type(agent)], agent, None, make)
    return agent


@pytest.mark.parametrize("make", [Beside, Late])
def test_playing_beside_the_updates_gives_the_bits_of_playing_before_them(make, monkeypatch):
    """Whether it is done at once or at the last moment; and from a checkpoint on, which knows nothing of it."""
    one, two, other, alone = overlapping(None), overlapping(make), overlapping(make), []
    collect = FusedPlay.collect
    monkeypatch.setattr(FusedPlay, "collect", lambda self, *given: alone.append(given[0]) or collect(self, *given))
    for _ in range(2):
        assert_same(trained(two, 1), trained(one, 1))
    continued(two, other)
    assert_same(trained(two, 2), trained(one, 2))
    assert_same(trained(other, 2), trained(one, 0))
    assert [alone.count(agent) for agent in (one, two, other)] == [4, 1, 1], "the first rollout after a start or a load"
    assert one.progress == two.progress == other.progress


def test_the_wrong_iterations_actor_is_noticed(monkeypatch):
    """The rollout is begun before the actor that lags has become the one that is learnt from."""
    one, two = overlapping(None), overlapping(Beside)
    begin, two.engine.learn.beside, prepare = two.engine.learn.beside, None, Updates.prepare

    def too_soon(updates):
        if updates.recipe.agent is two:
            begin(two)
        prepare(updates)

    monkeypatch.setattr(Updates, "prepare", too_soon)
    assert_same(trained(two, 2), trained(one, 2))  # as the first two actors are the same
    with pytest.raises(AssertionError):
        assert_same(trained(two, 1), trained(one, 1))


@pytest.mark.slow
def test_fifty_updates_stay_with_torch():
    """Thirteen iterations of four, of which all but the first are corrected."""
    long = ("CartPole-v1:ppo", "n_envs=8", "n_steps=64", "batch_size=0.25", "n_epochs=1", "policy_lr=1e-3")
    mine, eager = fused(*long, "clip_range=0.2", "lag=1"), agent_for(*long, "clip_range=0.2", "lag=1", "engine=eager")
    advance(mine, 13), advance(eager, 13)
    assert mine.progress["updates"] == 52
    assert_near(mine, eager)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["Pendulum, rolling", "Acrobot, one trunk"])
def test_every_kind_of_net_and_of_statistics_learns_as_eager_does(case):
    """Who played is judged by its own statistics; one net says both of them."""
    mine, eager = (gpu_agent(case, "lag=1", "policy_lr=1e-3", "n_epochs=1") for _ in range(2))
    mine.engine = mine.engine._replace(learn=FusedLearn(RECIPES[type(mine)], compile_host))
    for _ in range(4):
        advance(mine, 1), advance(eager, 1)
        assert_near(mine, eager)
        continued(eager, mine)


@pytest.mark.slow
def test_a_rollout_says_of_its_actions_what_they_are_judged_by():
    agent = with_engine(gpu_agent("FrozenLake", "lag=1", "n_epochs=1", "policy_lr=0.01"), None)
    for _ in range(3):
        advance(agent, 1)
        updates = agent.engine.learn.updates
        ratio = (updates.log_prob - agent.engine.play.log_prob.flatten()).exp()
        torch.testing.assert_close(updates.played.ratio, ratio, rtol=0, atol=5e-7)
    assert (updates.played.ratio != 1.0).any()


@pytest.mark.slow
def test_what_a_graph_replays_is_what_the_launches_do():
    plain, graph = (gpu_agent("FrozenLake", "lag=1", "n_epochs=1", compile=taped(compile_host))
                    for _ in range(2))  # fmt: skip
    with_engine(plain, None), with_engine(graph, Tape)
    assert_same(trained(graph, 4), trained(plain, 4))
