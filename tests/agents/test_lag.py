"""`lag: 1`: whose actions a rollout holds, how they are corrected, when a GPU plays it, and who refuses it."""

import pytest
import torch
from driven import advance, agent_for, continued
from fused_cases import GPU, TINY
from replay_log import same
from same_as_eager import learning_on_gpu, on_fused_gpu
from worlds import weights

from stride.agents.engines.fused_gpu.ahead import Beside
from stride.agents.engines.fused_gpu.play import FusedPlay
from stride.agents.experience.nouns import tree_map
from stride.agents.networks.actor_critic import Lagging
from stride.config.loader import load_config
from stride.utils.user_error import UserError

ROLLOUT = ("n_envs=4", "n_steps=16", "batch_size=32", "n_epochs=2", "policy_lr=0.01", "hidden_dims=[16]")
KINDS = {
    "plain": ("CartPole-v1:ppo",),
    "normalised": ("CartPole-v1:ppo", "normalize_obs=true", "normalize_reward=true"),
    "lstm": ("CartPole-v1:ppo", "policy=lstm", "normalize_obs=true"),
    "numbers, cut by a limit": ("Pendulum-v1:ppo", "normalize_obs=true", "max_episode_steps=7"),
}


def lagging(kind="plain", lag=1, engine="auto"):
    name, *given = KINDS[kind]
    return agent_for(name, *ROLLOUT, *given, f"lag={lag}", f"engine={engine}")


def numbers(policy):
    """Weights and statistics, copied."""
    return {name: x.clone() for name, x in policy.state_dict().items()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_rollout_is_played_by_the_actor_of_one_iteration_before_and_judged_as_it_chose(kind, monkeypatch):
    """By its own weights, statistics and memory: its log-probabilities are those of the moment it acted."""
    agent, before, acted, chosen, judged = lagging(kind), [], [], [], []
    head, sample, judge = agent.lagging.policy.head, agent.lagging.policy.head.sample, Lagging.log_prob
    play = agent.engine.play.collect

    def collect(learner, steps):
        before.append(numbers(agent.policy))
        acted.append(numbers(agent.collector.policy))
        play(learner, steps)

    def noted(parameters, u):
        chosen.append((tree_map(torch.clone, parameters), sample(parameters, u)))
        return chosen[-1][1]

    agent.engine.play.collect, head.sample = collect, noted
    monkeypatch.setattr(Lagging, "log_prob", lambda *given: judged.append(judge(*given)) or judged[-1])
    advance(agent, 4)
    assert same(acted[0], before[0]) and len(chosen) == 64 and len(judged) == 4
    for k in range(1, 4):
        assert same(acted[k], before[k - 1]) and not same(acted[k], before[k])
    for k in range(4):
        exact = torch.stack([head.log_prob(p, action) for p, action in chosen[16 * k : 16 * (k + 1)]])
        torch.testing.assert_close(judged[k], exact, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", [*KINDS, "by kernels of a GPU"])
def test_the_first_iteration_is_that_of_no_lag_to_the_bit_and_the_third_is_another(kind):
    if kind in KINDS:
        lags, prompt = lagging(kind), lagging(kind, 0, "eager")
    else:
        lags, prompt = (learning_on_gpu("CartPole-v1:ppo", *TINY, "policy_lr=0.01", f"lag={lag}") for lag in (1, 0))
    advance(lags, 1), advance(prompt, 1)
    assert torch.equal(weights(lags.policy), weights(prompt.policy))
    assert lags.metrics.flush()["train/lag/ratio/max"] == 1.0
    advance(lags, 2), advance(prompt, 2)
    assert not torch.equal(weights(lags.policy), weights(prompt.policy))
    row = lags.metrics.flush()
    assert 0.9 < row["train/lag/ratio/mean"] < 1.05 < row["train/lag/ratio/max"] and 0 < row["train/lag/clipped"] < 1
    assert "train/lag/ratio/mean" not in prompt.metrics.flush()


def test_the_copy_is_saved_and_never_learnt():
    agent = advance(lagging("normalised"), 3)
    ours = {id(parameter) for group in agent.optimizer.param_groups for parameter in group["params"]}
    assert not ours & {id(parameter) for parameter in agent.lagging.parameters()}
    other = continued(agent, lagging("normalised"))
    assert same(numbers(other.collector.policy), numbers(agent.collector.policy))
    assert not same(numbers(other.collector.policy), numbers(other.policy))


@pytest.mark.parametrize(("algorithm", "lag", "line"), [("reinforce", 1, "lag belongs to ppo"), ("ppo", 2, "lag")])
def test_who_cannot_lag_says_so(algorithm, lag, line):
    with pytest.raises(UserError, match=line):
        load_config("CartPole-v1", algorithm, [f"lag={lag}"])


# --- `engine: fused_gpu`


def test_rollouts_are_played_beside_the_updates_but_the_first(monkeypatch):
    """That they give the bits of rollouts before the updates is a row of test_same_as_eager.py."""
    agent, alone = on_fused_gpu("CartPole-v1:ppo", *GPU, "lag=1", "hidden_dims=[16,16]", beside=Beside), []
    collect = FusedPlay.collect
    monkeypatch.setattr(FusedPlay, "collect", lambda self, *given: alone.append(given) or collect(self, *given))
    advance(agent, 3)
    assert len(alone) == 1
    agent.loads += 1
    advance(agent, 2)
    assert len(alone) == 2
