"""A world model with `stoch: 0`, step by step; exact resume, refusals. What it learns is in test_probes.py."""

import pytest
import torch
from driven import advance, agent_for, continued
from probe_envs import RememberedReward
from refusals import refusal
from torch import nn
from worlds import driven, generator

from stride.agents.dreamer import Dreamer
from stride.agents.model_learning import model_loss
from stride.agents.networks.normed import initialize
from stride.agents.networks.world_model import DeterministicModel, ModelSizes
from stride.agents.planet import PlaNet
from stride.config.diff import changes
from stride.config.loader import load_config
from stride.config.schema import DreamerConfig, PlaNetConfig

STEPS, WORLDS = 6, 3
CELLS = {"dense": ModelSizes(deter=8, stoch=0, width=6), "blocks": ModelSizes(deter=8, stoch=0, width=6, blocks=4)}
SMALL = dict(
    n_envs=4, deter=16, width=16, stoch=0, depth=4, bins=21, batch_size=4, batch_length=6, horizon=4,
    learning_starts=64, train_ratio=12, max_timesteps=10**5, buffer_size=4000, lr_warmup=10,
)  # fmt: skip


def dreamer():
    return driven(Dreamer(DreamerConfig(algo_id="dreamer", imagined_starts=8, **SMALL), RememberedReward(4)))


def planet():
    return driven(PlaNet(PlaNetConfig(algo_id="planet", candidates=12, elites=4, **SMALL), RememberedReward(4)))


BOTH = pytest.mark.parametrize("made", [dreamer, planet])


@pytest.mark.parametrize("sizes", CELLS.values(), ids=CELLS)
def test_a_state_is_recognised_where_something_is_seen_and_imagined_where_it_is_withheld(sizes):
    model = DeterministicModel(2, 5, sizes, 0.01)
    initialize(model, generator())
    tokens, action = torch.randn(STEPS, WORLDS, 7, generator=generator(1)).split((5, 2), -1)
    is_first, u = torch.rand(2, STEPS, WORLDS, generator=generator(2))
    is_first = is_first < 0.3
    is_first[0] = True
    states, guess = model.observe(tokens, action, is_first, u[..., None])
    assert guess is None and states.features.shape == (STEPS, WORLDS, 8) and states.stoch.shape[-1] == 0
    kinds = set()
    for t in range(STEPS):
        for i in range(WORLDS):
            before = model.initial(1) if t == 0 else type(states)(*(x[t - 1, i][None] for x in states))
            seen = (u[t, i] >= 0.5) | is_first[t, i]
            expected = model.recognise(before, action[t, i][None], is_first[t, i][None], tokens[t, i][None], None)
            if not seen:
                expected = model.imagine(before, action[t, i][None], None)
            torch.testing.assert_close(states.deter[t, i], expected.deter[0])
            kinds.add((bool(is_first[t, i]), bool(u[t, i] >= 0.5)))
    assert len(kinds) == 4, "withheld, seen, and beginnings of both kinds"


@BOTH
def test_it_has_no_divergence_and_all_of_the_model_learns(made):
    agent = advance(made(), 40)
    names = {*agent.metrics.flush()}
    assert {"train/loss/observation", "train/loss/reward", "train/loss/going_on"} <= names
    assert not names & {"train/loss/prior", "train/loss/posterior", "train/model/kl"}
    batch = agent.memory.sequences(8, 6)
    u = torch.rand(6, 8, 1, generator=generator())
    for layer in agent.policy.modules():  # silent heads let no gradient through
        if isinstance(layer, nn.Linear) and not layer.weight.any():
            nn.init.normal_(layer.weight, std=0.05, generator=generator(1))
    agent.optimizer.zero_grad()
    model_loss(agent.policy, batch, u, agent.live).loss.backward()
    assert all(p.grad is not None and p.grad.any() for p in agent.policy.model.rssm.parameters())


@BOTH
def test_dreams_go_on_from_a_state_that_is_recognised(made):
    policy = made().policy
    state = policy.recognise(torch.zeros(3, 1), policy.initial(3), torch.ones(3, dtype=torch.bool), None)
    dream = policy.dream(state, torch.zeros(3, 5, dtype=torch.int64))
    assert dream.reward.shape == (3, 5) and dream.reward.isfinite().all()


@BOTH
def test_a_resumed_agent_is_the_uninterrupted_one_to_the_bit(made):
    straight, half = advance(made(), 40), advance(made(), 25)
    resumed = advance(continued(half, made()), 15)
    expected, state = straight.state_dict(), resumed.state_dict()
    assert half.progress["updates"] > 0 and all(torch.equal(state[name], x) for name, x in expected.items())


def test_each_refusal_is_a_line_that_says_what_to_do():
    def load(*words):
        return load_config("CartPole-v1", "dreamer", [*words, "max_timesteps=1e5"])

    for key in ("classes=4", "unimix=0.1", "free_nats=0.5", "prior_coef=0.5", "posterior_coef=0.5"):
        assert f"{key.partition('=')[0]} has no effect with stoch: 0" in refusal(load, "stoch=0", key)
    assert "stoch must be at least 0" in refusal(load, "stoch=-1")
    assert "stoch null -> 0: the saved state was made for the old value" in refusal(changes, load(), load("stoch=0"))
    assert "does not support stoch: 0; engine=auto takes eager" in refusal(
        agent_for, "CartPole-v1:dreamer", "stoch=0", "engine=fused_cpu"
    )
