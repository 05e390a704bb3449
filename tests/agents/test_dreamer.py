"""Dreamer and PlaNet: returns by hand, what gets gradients and what must not, and how they act."""

import math
from fractions import Fraction

import gymnasium as gym
import numpy as np
import pytest
import torch
from driven import advance
from probe_envs import ChosenReward, Probe, RememberedReward
from replay_log import same, through_file
from worlds import NAN, Scripted, driven, random_tables, weights

from stride.agents.dreamer import Dreamer, ReturnRange, arrival_returns
from stride.agents.experience.collector import Collector
from stride.agents.experience.nouns import tree_map
from stride.agents.model_learning import Ends, going_on_loss, model_loss
from stride.agents.planet import PlaNet
from stride.agents.trained.player import Player
from stride.config.loader import load_config
from stride.config.schema import DreamerConfig, PlaNetConfig
from stride.utils.user_error import UserError

SMALL = dict(
    algo_id="dreamer", n_envs=4, deter=16, width=16, stoch=3, classes=4, depth=4, bins=21, batch_size=4,
    batch_length=6, imagined_starts=8, horizon=4, learning_starts=64, train_ratio=12, max_timesteps=10**5,
    buffer_size=4000, lr_warmup=10,
)  # fmt: skip
PLANNED = {**SMALL, "algo_id": "planet", "candidates": 12, "elites": 4}
del PLANNED["imagined_starts"]


def dreamer(worlds=ChosenReward, **options):
    config = DreamerConfig(**{**SMALL, **options})
    return driven(Dreamer(config, worlds(config.n_envs)))


def planet(worlds=ChosenReward, **options):
    config = PlaNetConfig(**{**PLANNED, **options})
    return driven(PlaNet(config, worlds(config.n_envs)))


BOTH = pytest.mark.parametrize("made", [dreamer, planet])


# --- pure functions


def test_returns_by_hand():
    reward, discount = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 0.0, 0.5])
    value = torch.tensor([10.0, 20.0, 30.0])
    # R2 = 3 + .5 * 30 = 18; R1 = 2 + 0; R0 = 1 + .5 (.2 * 10 + .8 * 2) = 2.8
    assert arrival_returns(reward, discount, value, 0.8).tolist() == pytest.approx([2.8, 2.0, 18.0])


def test_range_by_hand_and_what_is_not_finite_teaches_nothing():
    span = ReturnRange()
    for expected in (0.1 * 90, 9 + 0.1 * (90 - 9)):
        assert span.learn(torch.arange(101.0), 0.1).item() == pytest.approx(expected)
    for bad in (NAN, math.inf):
        assert span.learn(torch.tensor([1.0, bad, 5.0]), 0.1).item() == pytest.approx(expected)
    assert ReturnRange().learn(torch.ones(8), 0.5).item() == 1, "small returns are not blown up"


def test_ends_by_hand():
    ends, chances = Ends(), torch.tensor([[0.1, 0.2], [0.7, 0.0]])
    nothing = ends.learn(chances, torch.zeros(2, 2, dtype=torch.bool))
    assert all(math.isnan(value) for value in nothing.values())
    two = ends.learn(chances, torch.tensor([[False, True], [True, False]]))
    assert two["train/model/end_recall"].item() == pytest.approx(0.45)
    assert two["train/model/end_ratio"].item() == pytest.approx((0.99 * 1.0 + 1.0) / 2)
    again = ends.learn(chances * NAN, torch.ones(2, 2, dtype=torch.bool))
    assert again["train/model/end_recall"].item() == pytest.approx(0.45)


def test_ends_that_count_often_are_expected_as_often_as_they_are():
    """By hand; and what minimises the loss is the share of ends there were, whatever an end counts."""
    ended = torch.tensor([True, False])
    assert going_on_loss(torch.zeros(2), ended, 1.0).tolist() == pytest.approx([math.log(2)] * 2)
    assert going_on_loss(torch.zeros(2), ended, 3.0).tolist() == pytest.approx([3 * math.log(4 / 3), math.log(4)])
    ended = torch.arange(20) < 2
    for weight in (1.0, 20.0):
        logit = torch.tensor(math.log(0.9 / 0.1), requires_grad=True)
        going_on_loss(logit.expand(20), ended, weight).sum().backward()
        assert logit.grad.item() == pytest.approx(0, abs=1e-5)


# --- sequences


class Counted(Probe):
    """Seen is the age; an episode of three steps pays 1, 2, 3."""

    length = 3

    def observe(self):
        return self.age / 10

    def reward(self, action):
        return self.age + 1


def remembered(made, worlds, steps=24):
    agent = made(worlds)
    agent.collect(steps)
    return agent, agent.memory.sequences(4, 6)


@pytest.mark.parametrize("ends_by_limit", [False, True])
def test_replayed_values_are_returns_of_what_was_paid(monkeypatch, ends_by_limit):
    """With V = 5 everywhere: lambda 1 leaves the rewards to the end, or to the sequence's, and V where it is cut."""
    monkeypatch.setattr(Counted, "ends_by_limit", ends_by_limit)
    agent, batch = remembered(lambda w: dreamer(w, return_lambda=1.0, gamma=0.5), Counted)
    two_hot, targets = agent.policy.model.two_hot, []
    two_hot.mean = lambda logits: torch.full(logits.shape[:-1], 5.0)
    two_hot.loss = lambda logits, target: targets.append(target.clone()) or torch.ones_like(target)
    states = model_loss(agent.policy, batch, agent.draw().posterior, agent.live).states
    targets.clear()
    loss, _ = agent.replay_loss(batch, states)
    expected, following = torch.zeros(5, 4), torch.full((4,), 5.0)
    for t in reversed(range(5)):
        expected[t] = batch.reward[t + 1] + 0.5 * torch.where(batch.terminated[t + 1], 0.0, following)
        following = torch.where(batch.is_first[t + 1], 5.0, expected[t])
    last = batch.is_first[1:]  # nothing follows the last instant of an episode
    torch.testing.assert_close(targets[0][~last], expected[~last])
    assert last.any() and loss.item() == pytest.approx(2 * (~last).float().mean().item()), "critic and slow critic"


@BOTH
def test_a_sequence_begins_with_nothing_known(made):
    """Neither the action before it counts, as before any episode, nor whether its first row opened one."""
    agent, batch = remembered(made, Counted)
    u = torch.rand(6, 4, 3, generator=torch.Generator().manual_seed(0))
    before = model_loss(agent.policy, batch, u, agent.live)
    action, first = torch.where(batch.is_first, 1 - batch.action, batch.action), batch.is_first.clone()
    action[0], first[0] = 1 - batch.action[0], ~first[0]
    after = model_loss(agent.policy, batch._replace(action=action, is_first=first), u, agent.live)
    assert torch.equal(before.states.deter, after.states.deter)
    action[1] = torch.where(batch.is_first[1], action[1], 1 - action[1])
    other = model_loss(agent.policy, batch._replace(action=action), u, agent.live)
    assert not torch.equal(before.states.deter, other.states.deter)


@BOTH
@pytest.mark.parametrize("worlds", [Counted, RememberedReward])
def test_the_state_acted_on_is_the_state_learnt_from(made, worlds):
    """The carry of a step equals what the scan makes of the same rows, given the same draws and weights."""
    agent = made(worlds, learning_starts=10**6)
    carries, draws, noise = [], [], agent.collector.noise
    agent.collector.noise = lambda steps: (draws.append(noise(steps)), draws[-1])[1]
    for _ in range(12):
        agent.collect(1)
        carries.append(tree_map(torch.clone, agent.collector.carry))
    row, policy = tree_map(lambda x: x[:12], agent.memory.table), agent.policy
    assert row.is_first[0].all() and row.is_first[1:].any(), "episodes begin meanwhile"
    offset = 0 if made is dreamer else 1 + policy.actions.draws  # where an answer's uniforms for its state stand
    u = torch.cat(draws)[..., offset : offset + 3]
    action = policy.actions(torch.cat((torch.zeros_like(row.action[:1]), row.action[:11])))
    senses = policy.model.senses
    states, _ = policy.model.rssm.observe(senses(senses.look(row.obs)), action, row.is_first, u)
    torch.testing.assert_close(torch.stack([carry.deter for carry in carries]), states.deter)
    assert torch.equal(torch.stack([carry.stoch for carry in carries]), states.stoch.round())


# --- gradients


def test_an_action_counts_by_what_was_before_it():
    """Ended starts count for nothing; where the second step surely ends, its action counts and no later one does."""
    agent = dreamer(learning_starts=40, ent_coef=0.0)
    while agent.progress["updates"] < 2:
        advance(agent, 1)
    policy, draws = agent.policy, agent.draw()
    start = policy.model.rssm.initial(8)
    alive, goes_on = torch.tensor([1.0, 0.0] * 4), torch.tensor([1.0, 0.0, 1.0, 1.0])[:, None].expand(4, 8)
    counted = []
    policy.head.log_prob = lambda p, action: counted.append(torch.ones(4, 8, requires_grad=True)) or counted[-1]
    policy.model.expect = lambda features: (torch.ones(4, 8), goes_on)
    agent.behaviour_loss(start, alive, draws.guess, draws.action)[0]["policy"].backward()
    slope = counted[0].grad.bool()
    assert slope[:2].tolist() == [[True, False] * 4] * 2 and not slope[2:].any()


def test_an_untrained_dreamer_expects_nothing_and_prefers_nothing():
    agent = dreamer()
    features = torch.randn(7, agent.policy.model.features, generator=torch.Generator().manual_seed(0))
    assert agent.policy.model.expect(features)[0].eq(0).all() and agent.policy.value(features).eq(0).all()
    assert agent.policy.choices(features).exp().eq(0.5).all()


@BOTH
def test_what_is_not_finite_moves_nothing(made):
    reward, terminated, truncated = random_tables(40, 4, 0)
    reward[20, 2] = NAN
    agent = made(lambda n: Scripted(reward, terminated, truncated, action_space=gym.spaces.Discrete(2)),
                 nan_guard="skip", learning_starts=32)  # fmt: skip
    advance(agent, 20)
    before, range_before = weights(agent.policy), [x.clone() for x in agent.buffers()]
    assert agent.progress["updates"] and before.isfinite().all()
    advance(agent, 1)
    assert agent.skipped == 1 and torch.equal(weights(agent.policy), before)
    assert all(x.isfinite().all() for x in range_before)
    advance(agent, 9)
    assert agent.skipped == 0 and not torch.equal(weights(agent.policy), before)
    assert all(x.isfinite().all() for x in (*agent.buffers(), weights(agent.policy)))


# --- pace, room and words


@BOTH
@pytest.mark.parametrize(
    ("options", "pace"),
    [
        ({"train_ratio": 12}, Fraction(1, 2)),
        ({"train_ratio": None}, Fraction(128, 24)),
        ({"train_ratio": None, "updates_per_step": 0.1}, Fraction(1, 10)),
    ],
)
def test_updates_follow_the_train_ratio_or_are_given(made, options, pace):
    assert made(**options).ratio.updates_per_step == pace


REFUSED = (
    "bins=64", "buffer_size=800 batch_length=100", "imagined_starts=513", "train_ratio=64 updates_per_step=1",
    "policy=lstm", "hidden_dims=32", "normalize_obs=true", "gradient_steps=2", "action_mask=true", "unimix=0",
    "size=2m", "elites=13 candidates=12",
)  # fmt: skip


def refusal(words):
    with pytest.raises(UserError) as caught:
        load_config("CartPole-v1", "planet" if "elites" in words else "dreamer", words.split())
    return str(caught.value)


def test_what_cannot_be_is_refused_in_a_line(snapshot):
    assert {words: refusal(words) for words in REFUSED} == snapshot


def test_sizes_and_masks_that_fit_no_model_are_refused():
    with pytest.raises(UserError, match=r"deter 100 is not 8 equal blocks \(size: 1m\); 96 or 104 is"):
        dreamer(size="1m", deter=100)
    worlds = ChosenReward(4)
    worlds.observation_space = gym.spaces.Dict(
        {"at": worlds.observation_space, "action_mask": gym.spaces.MultiBinary(2)}
    )
    with pytest.raises(UserError, match="a world model cannot predict action masks"):
        Dreamer(DreamerConfig(**SMALL), worlds)


# --- acting


@BOTH
def test_evaluating_changes_nothing_and_is_the_same_twice(made):
    agent = advance(made(RememberedReward), 20)
    before = through_file([{**agent.state_dict()}, [*agent.collector.carry]])
    first, second = (Collector(RememberedReward(4), agent.policy, 5, greedy=True).play(8) for _ in range(2))
    assert first == second
    assert same([{**agent.state_dict()}, [*agent.collector.carry]], before)


@BOTH
def test_at_random_is_for_training_alone(made):
    agent = advance(made(learning_starts=10**6), 50)
    assert agent.policy.at_random and 0.3 < agent.memory.table.action[:50].float().mean() < 0.7
    obs, first, policy = torch.zeros(64, 1), torch.ones(64, dtype=torch.bool), agent.policy
    noise = torch.rand(64, policy.draws, generator=torch.Generator().manual_seed(1))
    best = policy.act(obs, policy.initial(64), first, noise, True).action
    policy.at_random = False
    assert torch.equal(best, policy.act(obs, policy.initial(64), first, noise, True).action)


@BOTH
@pytest.mark.parametrize("mode", ["greedy", "sampled", "random"])
def test_an_opinion_is_of_the_state_that_was_come_to(made, mode):
    """In mode random, too: whoever looks on follows actions that others have chosen."""
    agent = advance(made(RememberedReward), 20)
    player = Player(agent.policy, agent.collector.envs.observation_space, gym.spaces.Discrete(2))
    before = agent.policy.initial(1)
    for t, x in enumerate((1.0, 0.0, 0.0)):
        obs, first = torch.tensor([[x]]), torch.tensor([t == 0])
        expected = agent.policy.explain(obs, before, first)
        assert player.explain(obs[0].numpy()).value == pytest.approx(expected.value.item(), abs=1e-6)
        action = player.choose(obs[0].numpy(), mode).policy_action
        carry = player._carry
        assert torch.equal(carry.action, agent.policy.actions(torch.as_tensor(action)[None]))
        if mode == "random":
            state = agent.policy.recognise(obs, before, first, None)
            assert torch.equal(carry.deter, state.deter) and torch.equal(carry.stoch, state.stoch)
        before = tree_map(torch.clone, carry)


def test_saliency_is_of_action_and_value_alike():
    agent = advance(dreamer(lambda n: Scripted(*random_tables(50, n, 0))), 22)
    player = Player(agent.policy, agent.collector.envs.observation_space, gym.spaces.Discrete(3))
    saliency = player.saliency(np.array([1.0, 2.0], np.float32), "greedy")
    assert np.abs(saliency.action[""]).max() > 0 and np.abs(saliency.value[""]).max() > 0
