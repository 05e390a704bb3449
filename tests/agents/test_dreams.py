"""What a world model dreams: by hand, step by step, under whose actions; and how far it strays, by hand."""

import math
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from probe_envs import Spaces
from torch import nn

from stride.agents.engines.choice import build_agent
from stride.agents.experience.nouns import Dream, Sequences, leaves, tree_map
from stride.agents.networks.dreamer_policy import DreamerPolicy
from stride.agents.networks.planning_policy import PlanningPolicy
from stride.agents.networks.world_model import State
from stride.agents.trained.episode import dream, record
from stride.agents.trained.player import EpisodeStart, Player
from stride.config.loader import load_config
from stride.config.schema import DreamerConfig, PlaNetConfig
from stride.envs_gym.make import make_envs
from stride.envs_gym.spaces import observation_space
from stride.trainer_callbacks.dreams import open_loop

SMALL = dict(deter=16, width=16, stoch=3, classes=4, depth=4, bins=21)
DREAMER = DreamerConfig(algo_id="dreamer", **SMALL)
PLANET = PlaNetConfig(algo_id="planet", candidates=12, elites=4, **SMALL)
NUMBERS, CHOICES = gym.spaces.Box(-1, 1, (2,), np.float32), gym.spaces.MultiDiscrete([2, 3])
SEEN = {
    "vector": gym.spaces.Box(-9, 9, (3,), np.float32),
    "image": gym.spaces.Box(0, 255, (9, 8), np.uint8),
    "dict": gym.spaces.Dict(
        {
            "z": gym.spaces.Box(-9, 9, (2, 2), np.float32),
            "eye": gym.spaces.Box(0, 255, (3, 8, 8), np.uint8),
            "kind": gym.spaces.Discrete(4),
            "pair": gym.spaces.MultiDiscrete([2, 3]),
        }
    ),
}
KINDS = pytest.mark.parametrize(("kind", "config"), [(DreamerPolicy, DREAMER), (PlanningPolicy, PLANET)])


def start_of(policy, count, seed=0):
    """Some states [count, ..] that could be."""
    generator, sizes = torch.Generator().manual_seed(seed), policy.sizes
    deter = torch.randn(count, sizes.deter, generator=generator).tanh()
    classes = torch.randint(sizes.classes, (count, sizes.stoch), generator=generator)
    return State(deter, nn.functional.one_hot(classes, sizes.classes).float().flatten(1))


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("actions", [gym.spaces.Discrete(3), CHOICES, NUMBERS])
@KINDS
def test_a_dream_is_the_models_own_imagination_step_by_step(seen, actions, kind, config):
    policy = kind(config, Spaces(SEEN[seen], actions))
    for layer in policy.modules():  # silent heads would give 0 for everything
        if isinstance(layer, nn.Linear) and not layer.weight.any():
            nn.init.normal_(layer.weight, std=0.05, generator=torch.Generator().manual_seed(1))
    state, steps, model = start_of(policy, 3), 4, policy.model
    done = torch.as_tensor(np.stack([[actions.sample() for _ in range(steps)] for _ in range(3)]))
    result, again = policy.dream(state, done), policy.dream(state, done)
    assert (result.value is None) == (kind is PlanningPolicy)
    for mine, other in zip(*(leaves([part for part in x if part is not None]) for x in (result, again)), strict=True):
        assert torch.equal(mine, other) and not mine.requires_grad
    for h in range(steps):
        deter = model.rssm.cell(state, model.rssm.cell.prepare(policy.actions(done[:, h])))
        state = State(deter, model.rssm.foresee(deter).mode(model.rssm.table).detach())
        reward, goes_on = model.expect(state.features)
        assert torch.allclose(result.reward[:, h], reward, rtol=1e-3)
        assert torch.allclose(result.goes_on[:, h], goes_on, atol=1e-6)
        if result.value is not None:
            assert torch.allclose(result.value[:, h], policy.value(state.features), rtol=1e-3)
        there = model.senses.look(tree_map(lambda x, h=h: x[:, h], result.obs))
        expected = model.senses.decode(state.features)
        for mine, theirs in zip(there.images, expected.images, strict=True):
            assert (mine - theirs.sigmoid()).abs().max() <= 0.5 / 255 + 1e-6
        assert seen != "vector" or torch.allclose(there.vector, expected.vector, atol=1e-4)


def test_what_is_seen_in_a_dream_is_an_observation():
    policy, space = DreamerPolicy(DREAMER, Spaces(SEEN["dict"], NUMBERS)), SEEN["dict"]
    obs = policy.dream(start_of(policy, 2), torch.zeros(2, 5, 2)).obs
    assert obs.keys() == space.keys() and obs["eye"].dtype == torch.uint8
    assert {name: tuple(x.shape) for name, x in obs.items()} == {name: (2, 5, *x.shape) for name, x in space.items()}
    senses = policy.model.senses
    decoded, names = senses.decode(torch.zeros(1, policy.model.features)), senses.flat.keys
    vector = torch.zeros(1, senses.flat.size)
    sizes = [gym.spaces.flatdim(space[name]) for name in names]
    vector.split(sizes, -1)[names.index("kind")].copy_(torch.tensor([0.1, 0.2, 0.9, 0.3]))
    assert senses.observation(decoded._replace(vector=vector))["kind"].item() == 2


@pytest.fixture(scope="module")
def episode():
    """CartPole for 12 steps at most, by a Dreamer that has learnt nothing; what it was asked to dream of is kept."""
    config = load_config("CartPole-v1", "dreamer", ["deter=16", "width=16", "stoch=3", "classes=4", "bins=21"])
    env = gym.make("CartPole-v1")
    policy = DreamerPolicy(config, Spaces(env.observation_space, env.action_space))
    player = Player(policy, env.observation_space, env.action_space)
    return player, record(env, player, config, EpisodeStart(5), "random", 12, frames=False, saliency=True)


def test_the_actions_of_a_dream_are_those_that_were_taken(episode, monkeypatch):
    player, played = episode
    asked, own = [], player.policy.dream
    monkeypatch.setattr(player.policy, "dream", lambda *given: asked.append(given) or own(*given))
    result = dream(player, played, 4, 5)
    (state, actions), *_ = asked
    assert actions.tolist() == [played.policy_actions[4:9].tolist()] and len(set(played.policy_actions.tolist())) == 2
    assert torch.equal(state.deter[0], played.states[4].deter)
    assert result.reward.shape == (5,) and result.obs.shape == (5, 4)
    carry = player.policy.initial(1)
    for step in range(5):  # the state is that of what happened until then
        obs, first = torch.from_numpy(played.observations[step])[None], torch.tensor([step == 0])
        here = player.policy.explain(obs, carry, first).state
        carry = player.policy.follow(obs, carry, first, torch.from_numpy(played.policy_actions[step : step + 1]))
    assert torch.allclose(here.deter[0], played.states[4].deter, atol=1e-6)


def test_a_dream_ends_where_the_episode_does(episode):
    player, played = episode
    assert len(played.states) == played.length + 1
    assert dream(player, played, played.length - 2, 15).reward.shape == (2,)
    assert dream(player, played, played.length, 15) is None


def test_integers_are_dreamt_as_the_environment_counts_them():
    kinds = {"kind": gym.spaces.Discrete(3, start=-5), "pair": gym.spaces.MultiDiscrete([2, 3], start=[7, 20])}
    raw, two = gym.spaces.Dict(kinds), gym.spaces.Discrete(2)
    player = Player(DreamerPolicy(DREAMER, Spaces(observation_space(raw), two)), raw, two)
    state = State(*(part[0] for part in start_of(player.policy, 1)))
    obs, own = player.dream(state, np.zeros(4, np.int64)).obs, raw.sample()
    assert all(raw.contains({name: x[h].numpy().astype(own[name].dtype) for name, x in obs.items()}) for h in range(4))
    alone = Player(DreamerPolicy(DREAMER, Spaces(gym.spaces.Discrete(3), CHOICES)), raw["kind"], CHOICES)
    assert (alone.dream(state, np.zeros((4, 2), np.int64)).obs < -2).all()


def test_dreams_leave_saliency_and_the_player_as_they_were(episode):
    player, played = episode
    before = player.explain(played.observations[3]), player.saliency(played.observations[3], "greedy")
    dream(player, played, 0, 15)
    after = player.explain(played.observations[3]), player.saliency(played.observations[3], "greedy")
    assert before[0].value == after[0].value and torch.equal(before[0].state.deter, after[0].state.deter)
    assert np.array_equal(before[1].action[""], after[1].action[""])
    assert played.saliency.action[""].shape == (played.length, 4)


def test_whoever_has_no_model_does_not_dream():
    config = load_config("CartPole-v1", "ppo", ["env_backend=gym", "n_envs=1", "n_steps=8", "batch_size=1.0"])
    env, policy = gym.make("CartPole-v1"), build_agent(config, make_envs(config, 1)).policy
    player = Player(policy, env.observation_space, env.action_space)
    played = record(env, player, config, EpisodeStart(5), "greedy", 4, frames=False)
    assert played.states is None and dream(player, played, 0, 15) is None
    assert policy.dream((), torch.zeros(1, 2)) is None


# --- how far dreams stray


# a policy whose state is what it sees, and who dreams that it grows by its action at each step
GROWING = SimpleNamespace(
    model=SimpleNamespace(senses=SimpleNamespace(leaves={"": gym.spaces.Box(-9, 9, (2,), np.float32)})),
    initial=lambda count: None,
    recognise=lambda obs, carry, is_first, u: (obs,),
    actions=lambda action: action,
    dream=lambda state, actions: Dream(state[0][:, None] + actions.cumsum(1)[..., None], None, None, None),
)


@pytest.fixture
def errors(monkeypatch):
    """How far the dreams of GROWING stray in an episode of such numbers, each seen beside a 7."""
    monkeypatch.setattr("stride.trainer_callbacks.dreams.Carry", lambda *parts: None)

    def of(numbers, actions, is_first, observed):
        obs, flag = torch.tensor([[x, 7.0] for x in numbers])[:, None], torch.tensor(is_first)[:, None]
        batch = Sequences(obs, torch.tensor(actions)[:, None], flag.float(), flag, flag, (), flag)
        return open_loop(GROWING, batch, (1, 2), observed=observed)

    return of


def test_errors_by_hand(errors):
    numbers = [0.0, 1, 2, 5, 0, 1, 2]  # by 1 each step, then by 3, and a new episode begins at row 4
    result = errors(numbers, [0.0, 1, 1, 1, 0, 1, 1], [0, 0, 0, 0, 1, 0, 0], observed=1)
    # begun at rows 1 to 4: to 2 (right), to 5 (dreamt 3), to a new episode (not counted), to 1 (right);
    # two steps: 1 -> 5 (dreamt 3) and 0 -> 2 (right)
    assert result.starts.tolist() == [3, 2] and result.names == ["0", "1"]
    dreamt, unchanged = [(2**2 / 3) ** 0.5, (2**2 / 2) ** 0.5], [((1 + 9 + 1) / 3) ** 0.5, ((16 + 4) / 2) ** 0.5]
    assert (result.dreamt[0] * np.std(numbers)).tolist() == pytest.approx(dreamt)
    assert (result.unchanged[0] * np.std(numbers)).tolist() == pytest.approx(unchanged)
    assert result.dreamt[1].isnan().all(), "a number that never changes has no deviation"


def test_no_error_is_given_where_episodes_are_shorter(errors):
    result = errors([0.0, 1] * 3, [0.0, 1] * 3, [1, 0] * 3, observed=0)
    assert result.starts.tolist() == [2, 0] and result.dreamt[0].isnan().tolist() == [False, True]


def test_a_perfect_dream_of_options_and_pixels_is_off_by_nothing_and_any_other_by_more():
    policy = DreamerPolicy(DREAMER, Spaces(SEEN["dict"], gym.spaces.Discrete(3)))
    generator, rows = torch.Generator().manual_seed(0), (8, 2)
    obs = {
        "z": torch.randn(*rows, 2, 2, generator=generator),
        "eye": torch.randint(256, (*rows, 3, 8, 8), generator=generator, dtype=torch.uint8),
        "kind": torch.randint(4, rows, generator=generator),
        "pair": torch.stack([torch.randint(n, rows, generator=generator) for n in (2, 3)], -1),
    }
    never = torch.zeros(rows, dtype=torch.bool)
    played = Sequences(obs, torch.zeros(rows, dtype=torch.long), never.float(), never, never, (), never)
    at = iter(range(2, 8))

    def perfect(state, actions):
        t = next(at)
        return Dream({name: leaf[t + 1 : t + 3].transpose(0, 1) for name, leaf in obs.items()}, None, None, None)

    by_model = open_loop(policy, played, (1, 2), observed=2)
    policy.dream = perfect
    result = open_loop(policy, played, (1, 2), observed=2)
    assert result.names == ["eye", "kind", "pair 0", "pair 1", "z 0", "z 1", "z 2", "z 3"]
    assert not result.dreamt.any() and (result.unchanged > 0.3).all() and (by_model.dreamt > 0.3).all()
    assert result.unchanged.mean() == pytest.approx(math.sqrt(2), abs=0.3), "of what is drawn anew each time"
