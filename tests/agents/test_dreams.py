"""What a world model dreams: by hand, step by step, under whose actions; and how far it strays, by hand."""

import math
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from stride.agents.engines.choice import build_agent
from stride.agents.experience.nouns import Dream, Sequences, leaves
from stride.agents.networks.dreamer_policy import DreamerPolicy
from stride.agents.networks.planning_policy import PlanningPolicy
from stride.agents.networks.two_hot import symexp
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


class Worlds:
    """No more than the spaces of worlds."""

    device = torch.device("cpu")

    def __init__(self, seen, actions):
        self.observation_space, self.action_space = seen, actions


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def picking(size, *rows):
    """A linear layer that reads single features: (place, weight) of each output."""
    layer = nn.Linear(size, len(rows))
    with torch.no_grad():
        layer.weight.zero_(), layer.bias.zero_()
        for row, (place, weight) in enumerate(rows):
            layer.weight[row, place] = weight
    return layer


def start_of(policy, count, seed=0):
    """Some states [count, ..] that could be."""
    generator, sizes = torch.Generator().manual_seed(seed), policy.sizes
    deter = torch.randn(count, sizes.deter, generator=generator).tanh()
    classes = torch.randint(sizes.classes, (count, sizes.stoch), generator=generator)
    return State(deter, nn.functional.one_hot(classes, sizes.classes).float().flatten(1))


def test_a_dream_of_weights_set_by_hand():
    """Gates of 0 keep 1 - sigmoid(-1) of deter; the prior always guesses class 2 first; the rest is read off both."""
    policy = DreamerPolicy(DREAMER, Worlds(SEEN["vector"], gym.spaces.Discrete(3)))
    model, sizes = policy.model, policy.sizes
    features = model.features
    with torch.no_grad():
        model.rssm.cell.gates.weight.zero_()
        model.rssm.prior[-1].weight.zero_()
        bias = model.rssm.prior[-1].bias.zero_().view(sizes.stoch, sizes.classes)
        bias[:, 0], bias[0, 2] = 1.0, 3.0
    told = [(0, 2.0)] * model.senses.flat.size
    model.senses.tell_vector = picking(features, *told)
    model.goes_on = picking(features, (sizes.deter + 2, 1.5))  # sees whether the first choice is class 2
    model.reward = picking(features, *[(1, 0.0)] * sizes.bins)
    with torch.no_grad():
        model.reward.bias[sizes.bins // 2 + 1] = 50.0  # the first bin above 0
    state, keep = start_of(policy, 2), 1 - 1 / (1 + math.e)
    found = policy.dream(state, torch.zeros(2, 3, dtype=torch.long))
    for h in range(3):
        deter = state.deter[:, 0] * keep ** (h + 1)
        assert torch.allclose(found.obs[:, h, 0], symexp(2 * deter), atol=1e-6)
    assert torch.allclose(found.goes_on, torch.full((2, 3), 1 / (1 + math.exp(-1.5))))
    assert torch.allclose(found.reward, model.two_hot.bins[sizes.bins // 2 + 1].expand(2, 3), rtol=1e-4)
    assert found.value.shape == (2, 3)


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("actions", [gym.spaces.Discrete(3), CHOICES, NUMBERS])
@KINDS
def test_a_dream_is_the_models_own_imagination_step_by_step(seen, actions, kind, config):
    policy = kind(config, Worlds(SEEN[seen], actions))
    for layer in policy.modules():  # silent heads would tell 0 of everything
        if isinstance(layer, nn.Linear) and not layer.weight.any():
            nn.init.normal_(layer.weight, std=0.05, generator=torch.Generator().manual_seed(1))
    state, steps = start_of(policy, 3), 4
    done = torch.as_tensor(np.stack([[actions.sample() for _ in range(steps)] for _ in range(3)]))
    found, again = policy.dream(state, done), policy.dream(state, done)
    assert all(torch.equal(a, b) and not a.requires_grad for a, b in zip(told(found), told(again), strict=True))
    assert (found.value is None) == (kind is PlanningPolicy)
    model = policy.model
    for h in range(steps):
        deter = model.rssm.cell(state, model.rssm.cell.prepare(policy.actions(done[:, h])))
        state = State(deter, model.rssm.foresee(deter).mode(model.rssm.table).detach())
        reward, goes_on = model.expect(state.features)
        assert torch.allclose(found.reward[:, h], reward, rtol=1e-3)
        assert torch.allclose(found.goes_on[:, h], goes_on, atol=1e-6)
        if found.value is not None:
            assert torch.allclose(found.value[:, h], policy.value(state.features), rtol=1e-3)
        there = model.senses.look(at_step(found.obs, h))
        model_told = model.senses.decode(state.features)
        for mine, theirs in zip(there.images, model_told.images, strict=True):
            assert (mine - theirs.sigmoid()).abs().max() <= 0.5 / 255 + 1e-6
        if seen == "vector":
            assert torch.allclose(there.vector, model_told.vector, atol=1e-4)


def told(found: Dream):
    return [*leaves(found.obs), found.reward, found.goes_on, *([] if found.value is None else [found.value])]


def at_step(seen, h):
    return {name: leaf[:, h] for name, leaf in seen.items()} if isinstance(seen, dict) else seen[:, h]


def test_what_is_seen_in_a_dream_is_an_observation():
    policy = DreamerPolicy(DREAMER, Worlds(SEEN["dict"], NUMBERS))
    found = policy.dream(start_of(policy, 2), torch.zeros(2, 5, 2)).obs
    space = SEEN["dict"]
    assert found.keys() == space.keys() and found["eye"].dtype == torch.uint8
    for name, leaf in space.items():
        assert found[name].shape == (2, 5, *leaf.shape), name
    told_kind, options = torch.tensor([0.1, 0.2, 0.9, 0.3]), policy.model.senses.flat.size
    seen = policy.model.senses.decode(torch.zeros(1, policy.model.features))
    vector = torch.zeros(1, options)
    at = policy.model.senses.flat.keys.index("kind")
    sizes = [gym.spaces.flatdim(space[name]) for name in policy.model.senses.flat.keys]
    vector.split(sizes, -1)[at].copy_(told_kind)
    assert policy.model.senses.observation(seen._replace(vector=vector))["kind"].item() == 2


@KINDS
def test_an_action_moves_a_dream_from_its_own_step_on(kind, config):
    policy = kind(config, Worlds(SEEN["vector"], gym.spaces.Discrete(3)))
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    state, actions = start_of(policy, 1), torch.zeros(1, 6, dtype=torch.long)
    other = actions.clone()
    other[0, 3] = 1
    before, after = policy.dream(state, actions), policy.dream(state, other)
    differs = (before.goes_on != after.goes_on)[0]
    assert not differs[:3].any() and differs[3]


@pytest.fixture(scope="module")
def episode():
    """CartPole for 12 steps at most, by a Dreamer that has learnt nothing; what it was asked to dream of is kept."""
    config = load_config("CartPole-v1", "dreamer", ["deter=16", "width=16", "stoch=3", "classes=4", "bins=21"])
    env = gym.make("CartPole-v1")
    policy = DreamerPolicy(config, Worlds(env.observation_space, env.action_space))
    player = Player(policy, env.observation_space, env.action_space)
    return player, record(env, player, config, EpisodeStart(5), "random", 12, frames=False, saliency=True)


def test_the_actions_of_a_dream_are_those_that_were_taken(episode, monkeypatch):
    player, played = episode
    asked, own = [], player.policy.dream
    monkeypatch.setattr(player.policy, "dream", lambda *given: asked.append(given) or own(*given))
    found = dream(player, played, 4, 5)
    (state, actions), *_ = asked
    assert actions.tolist() == [played.policy_actions[4:9].tolist()] and len(set(played.policy_actions.tolist())) == 2
    assert torch.equal(state.deter[0], played.states[4].deter)
    assert found.reward.shape == (5,) and found.obs.shape == (5, 4)
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
    raw = gym.spaces.Dict(
        {"kind": gym.spaces.Discrete(3, start=-5), "pair": gym.spaces.MultiDiscrete([2, 3], start=[7, 20])}
    )
    worlds = Worlds(observation_space(raw), gym.spaces.Discrete(2))
    player = Player(DreamerPolicy(DREAMER, worlds), raw, worlds.action_space)
    state = State(*(part[0] for part in start_of(player.policy, 1)))
    seen, own = player.dream(state, np.zeros(4, np.int64)).obs, raw.sample()
    assert all(raw.contains({name: x[h].numpy().astype(own[name].dtype) for name, x in seen.items()}) for h in range(4))
    alone = Player(DreamerPolicy(DREAMER, Worlds(gym.spaces.Discrete(3), CHOICES)), raw["kind"], CHOICES)
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


class Told:
    """A policy whose state is what it sees, and who dreams that it grows by its action at each step."""

    model = SimpleNamespace(senses=SimpleNamespace(leaves={"": gym.spaces.Box(-9, 9, (2,), np.float32)}))

    def initial(self, count):
        return None

    def recognise(self, obs, carry, is_first, u):
        return (obs,)

    def actions(self, action):
        return action

    def dream(self, state, actions):
        (obs,) = state
        return Dream(obs[:, None] + actions.cumsum(1)[..., None], None, None, None)


def batch(obs, action, is_first):
    obs, action = torch.tensor(obs), torch.tensor(action)
    flag = torch.tensor(is_first)[:, None]
    return Sequences(obs[:, None], action[:, None], flag.float(), flag, flag, (), flag)


def test_errors_by_hand(monkeypatch):
    monkeypatch.setattr("stride.trainer_callbacks.dreams.Carry", lambda *parts: None)
    # the second number never changes; the first does by 1 each step, then by 3, and a new episode begins at row 4
    obs = [[0.0, 7.0], [1.0, 7.0], [2.0, 7.0], [5.0, 7.0], [0.0, 7.0], [1.0, 7.0], [2.0, 7.0]]
    found = open_loop(Told(), batch(obs, [0.0, 1, 1, 1, 0, 1, 1], [0, 0, 0, 0, 1, 0, 0]), (1, 2), observed=1)
    deviation = np.std([row[0] for row in obs])
    # begun at rows 1 to 4: to 2 (right), to 5 (dreamt 3), to a new episode (not counted), to 1 (right)
    assert found.starts.tolist() == [3, 2]
    assert found.dreamt[0, 0].item() == pytest.approx(math.sqrt(2**2 / 3) / deviation)
    assert found.unchanged[0, 0].item() == pytest.approx(math.sqrt((1 + 9 + 1) / 3) / deviation)
    # two steps: 1 -> 5 (dreamt 3) and 0 -> 2 (right)
    assert found.dreamt[0, 1].item() == pytest.approx(math.sqrt(2**2 / 2) / deviation)
    assert found.unchanged[0, 1].item() == pytest.approx(math.sqrt((16 + 4) / 2) / deviation)
    assert found.dreamt[1].isnan().all() and found.names == ["0", "1"]


def test_no_error_is_told_where_episodes_are_shorter(monkeypatch):
    monkeypatch.setattr("stride.trainer_callbacks.dreams.Carry", lambda *parts: None)
    obs = [[float(i % 2), 0.0] for i in range(6)]
    found = open_loop(Told(), batch(obs, [0.0, 1] * 3, [1, 0] * 3), (1, 2), observed=0)
    assert found.starts.tolist() == [2, 0] and found.dreamt[0].isnan().tolist() == [False, True]


def test_a_perfect_dream_of_options_and_pixels_is_off_by_nothing_and_any_other_by_more():
    policy = DreamerPolicy(DREAMER, Worlds(SEEN["dict"], gym.spaces.Discrete(3)))
    generator, rows = torch.Generator().manual_seed(0), (8, 2)

    def some():
        return {
            "z": torch.randn(*rows, 2, 2, generator=generator),
            "eye": torch.randint(256, (*rows, 3, 8, 8), generator=generator, dtype=torch.uint8),
            "kind": torch.randint(4, rows, generator=generator),
            "pair": torch.stack([torch.randint(n, rows, generator=generator) for n in (2, 3)], -1),
        }

    obs = some()
    never = torch.zeros(rows, dtype=torch.bool)
    played = Sequences(obs, torch.zeros(rows, dtype=torch.long), never.float(), never, never, (), never)
    at = iter(range(2, 8))

    def perfect(state, actions):
        t = next(at)
        return Dream({name: leaf[t + 1 : t + 3].transpose(0, 1) for name, leaf in obs.items()}, None, None, None)

    told_by_model = open_loop(policy, played, (1, 2), observed=2)
    policy.dream = perfect
    found = open_loop(policy, played, (1, 2), observed=2)
    assert found.names == ["eye", "kind", "pair 0", "pair 1", "z 0", "z 1", "z 2", "z 3"]
    assert not found.dreamt.any() and (found.unchanged > 0.3).all() and (told_by_model.dreamt > 0.3).all()
    assert found.unchanged.mean() == pytest.approx(math.sqrt(2), abs=0.3), "of what is drawn anew each time"
