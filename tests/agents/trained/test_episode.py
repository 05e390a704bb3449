"""An episode watched is the episode counted, and gradients of a policy's answer are equal to finite differences."""

import json

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.spaces import MultiDiscrete
from tiny_runs import tiny_run

from stride.agents.experience.nouns import leaves
from stride.agents.networks.actor_critic import Plan
from stride.agents.networks.policies import POLICIES
from stride.agents.networks.q_network import QNetworkShape, QPolicy
from stride.agents.trained.episode import CROWD, json_data, play_episodes, record_episode, stack, start_of
from stride.agents.trained.loading import load_run
from stride.agents.trained.player import EpisodeStart, Player, RandomPolicy, pick_allowed
from stride.utils.counter_rng import WORLD, Key, integers
from stride.utils.user_error import UserError


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run per kind of agent: choices with a critic, choices without one, numbers, an integer observed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRIDE_RUNS", str(tmp_path_factory.mktemp("runs")))
        small = {"max_timesteps": 32, "eval_freq_epochs": "null"}
        yield {
            "CartPole": load_run(tiny_run(normalize_obs="true").id),
            "REINFORCE": load_run(tiny_run("CartPole-v1:reinforce", policy_targets="returns", **small).id),
            "Pendulum": load_run(tiny_run("Pendulum-v1:ppo", **small).id),
            "FrozenLake": load_run(tiny_run("FrozenLake-v1:ppo", **small).id),
            "Taxi": load_run(tiny_run("Taxi-v4:ppo", **small).id),
        }


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return np.array_equal(a, b)


@pytest.mark.parametrize("mode", ["greedy", "sampled", "random"])
@pytest.mark.parametrize("name", ["CartPole", "REINFORCE", "FrozenLake", "Taxi"])
def test_the_same_seed_is_the_same_episode_and_what_is_counted(runs, name, mode):
    loaded = runs[name]
    counted = list(play_episodes(loaded, 5, seed=4, policy_mode=mode, max_steps=60))
    for number in (0, 3):
        first, again = (record_episode(loaded, 4, mode, 60, frames=False, number=number) for _ in range(2))
        for field in ("observations", "encoded", "actions", "rewards", "values", "distribution"):
            assert same(getattr(first, field), getattr(again, field))
        assert (first.episode_return, first.length) == counted[number][1:]
        assert (first.values is None) == (name == "REINFORCE"), "without a critic there are none"
    assert record_episode(loaded, 4, mode, 60, frames=False, number=1).seed == 4


def test_other_seeds_and_numbers_are_other_episodes(runs):
    starts = [(seed, number) for seed in (0, 1) for number in (0, 1)]
    first = [record_episode(runs["CartPole"], seed, frames=False, number=number) for seed, number in starts]
    assert len({episode.observations[0].tobytes() for episode in first}) == 4


def test_a_few_episodes_are_the_first_of_many(runs):
    many = list(play_episodes(runs["CartPole"], CROWD + 3, policy_mode="random"))
    assert [each.number for each in many] == list(range(CROWD + 3))
    assert list(play_episodes(runs["CartPole"], 4, policy_mode="random")) == many[:4]
    late = record_episode(runs["CartPole"], policy_mode="random", frames=False, number=CROWD + 1)
    assert late.episode_return == many[CROWD + 1].episode_return


def test_shapes_names_and_reason(runs):
    episode = record_episode(runs["CartPole"], 1, "random", max_steps=5)
    assert episode.length == 5 and episode.frames.shape == (6, 400, 600, 3) and episode.frames.dtype == np.uint8
    assert (episode.frames[0] != episode.frames[5]).any()
    frames = []
    assert record_episode(runs["CartPole"], 1, "random", max_steps=5, frames=frames.append).frames is None
    assert np.array_equal(np.stack(frames), episode.frames), "frames may be handed to a function"
    assert episode.observations.shape == (6, 4) and episode.encoded.shape == (6, 4) and episode.values.shape == (6,)
    assert episode.action_names == ("push left", "push right") and episode.actions.shape == (5,)
    np.testing.assert_allclose(episode.distribution["probability"].sum(1), 1, rtol=1e-6)
    p = episode.distribution["probability"].astype(float)
    np.testing.assert_allclose(episode.entropy, -(p * np.log(p)).sum(1), rtol=1e-5)
    assert "stopped after 5" in episode.reason and not episode.terminated and not episode.truncated
    fallen = record_episode(runs["CartPole"], 1, "random", frames=False)
    assert fallen.terminated and fallen.frames is None and f"step {fallen.length}" in fallen.reason
    assert fallen.episode_return == fallen.length == len(fallen.actions)
    assert len(fallen.infos) == fallen.length + 1 and json.dumps(fallen.infos)


def test_what_was_seen_and_thought_is_the_policys(runs):
    """Observations are the environment's, `seen` is normalised, values are those of the critic."""
    loaded = runs["CartPole"]
    episode = record_episode(loaded, 2, frames=False, max_steps=4)
    start = start_of(2, 0)
    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=integers(Key(start.seed, WORLD), 1, 2**31)[0])
    rows = [obs, *(env.step(int(action))[0] for action in episode.actions)]
    assert np.array_equal(episode.observations, rows)
    policy, seen = loaded.agent.policy, torch.from_numpy(episode.observations)
    np.testing.assert_allclose(episode.encoded, policy.encoder(seen).detach(), rtol=1e-5)
    assert not np.allclose(episode.encoded, episode.observations)
    np.testing.assert_allclose(episode.values, policy.value(seen, (), None).detach(), rtol=1e-5)
    assert np.array_equal(episode.actions, episode.distribution["probability"].argmax(1))


def test_numbers_have_a_mean_and_a_deviation_and_are_unscaled(runs):
    episode = record_episode(runs["Pendulum"], 0, "greedy", max_steps=10, frames=False)
    assert episode.distribution["mean"].shape == (10, 1) and (episode.distribution["std"] > 0).all()
    np.testing.assert_allclose(episode.policy_actions, episode.distribution["mean"])
    np.testing.assert_allclose(episode.actions, np.clip(2 * episode.policy_actions, -2, 2), rtol=1e-6)
    ended = record_episode(runs["Pendulum"], 0, "random", frames=False)
    assert ended.truncated and not ended.terminated and ended.reason == "time limit of 200 steps"
    counted = next(iter(play_episodes(runs["Pendulum"], 1, policy_mode="random")))
    assert counted.episode_return == pytest.approx(ended.episode_return, rel=1e-6)


def test_integers_are_observed_as_one_hot(runs):
    episode = record_episode(runs["FrozenLake"], 0, "random", max_steps=6, frames=False)
    assert episode.observations.dtype.kind == "i" and np.array_equal(episode.encoded.argmax(1), episode.observations)


@pytest.mark.parametrize("mode", ["random", "sampled"])
def test_nothing_that_the_mask_forbids_is_done_in_any_mode(runs, mode):
    episode = record_episode(runs["Taxi"], 0, mode, max_steps=200, frames=False)
    masks = episode.observations["action_mask"][:-1].astype(bool)
    assert masks[np.arange(episode.length), episode.actions].all()
    assert not masks.all(0).any() and set(episode.actions) >= {0, 1, 2, 3}, "no action was always allowed"


def test_random_choices_by_hand():
    """Uniforms below 1/2 are the first of two that are allowed; where nothing is allowed, each option has a third."""
    u = torch.tensor([0.0, 0.32, 0.34, 0.49, 0.51, 0.67, 1 - 2**-24])
    for mask, choice in (
        ([1, 1, 1], [0, 0, 1, 1, 1, 2, 2]),
        ([1, 0, 1], [0, 0, 0, 0, 2, 2, 2]),
        ([0, 1, 0], [1] * 7),
        ([0, 0, 0], [0, 0, 1, 1, 1, 2, 2]),
    ):
        assert pick_allowed(torch.tensor(mask, dtype=torch.bool).expand(7, 3), u).tolist() == choice


def test_each_of_several_random_choices_keeps_to_its_part_of_the_mask():
    masks = torch.tensor([[1, 0, 0, 1, 1], [0, 1, 1, 0, 0]], dtype=torch.bool)
    noise = torch.tensor([[0.9, 0.6], [0.1, 0.6]])
    act = RandomPolicy(MultiDiscrete([2, 3])).act({"action_mask": masks}, (), torch.ones(2), noise, False)
    assert act.action.tolist() == [[0, 2], [1, 0]]


def test_an_unknown_mode_is_one_line(runs):
    with pytest.raises(UserError, match="did you mean greedy"):
        record_episode(runs["CartPole"], policy_mode="gredy")


def test_trees_become_arrays_and_infos_plain_data():
    stacked = stack([{"a": (np.zeros(2), 1)}, {"a": (np.ones(2), 2)}])
    assert stacked["a"]["0"].shape == (2, 2) and stacked["a"]["1"].tolist() == [1, 2]
    plain = json_data({1: np.float32(0.5), "x": (np.arange(2), None, object), "t": np.bool_(True)})
    assert plain == {"1": 0.5, "x": [[0, 1], None, "<class 'object'>"], "t": True}


# --- saliency

BOX = spaces.Box(-2.0, 2.0, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (2, 36, 36), np.uint8)
CASES = {
    "choices": (BOX, spaces.Discrete(4), "mlp"),
    "several choices": (BOX, spaces.MultiDiscrete([2, 3]), "mlp"),
    "numbers": (BOX, spaces.Box(-1, 1, (2,), np.float32), "mlp"),
    "a memory": (BOX, spaces.Discrete(3), "lstm"),
    "attention": (BOX, spaces.Discrete(3), "transformer"),
    "action values": (BOX, spaces.Discrete(3), "q"),
}


def player_of(observed, acted, name, seed=1, **changes):
    if name == "q":
        return Player(QPolicy(observed, acted, QNetworkShape((16,), "tanh"), seed), observed, acted)
    policy = POLICIES[name](Plan(observed, acted, (16,), seed=seed, **changes))
    for parameter in policy.head.parameters():  # from a flat start to opinions
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(seed))
    return Player(policy, observed, acted)


def opinion_of(who, obs, chosen):
    """(what the action's gradient is taken of, the value) at an observation, in words other than the module's."""
    opinion = who.explain(obs)
    if "mean" in opinion.distribution:
        return opinion.distribution["mean"].sum(), opinion.value
    if "q" in opinion.distribution:
        return opinion.distribution["q"][chosen].sum(), opinion.value
    return np.log(opinion.distribution["probability"][chosen]).sum(), opinion.value


@pytest.mark.parametrize("kind", ["mlp", "lstm", "mingru", "transformer"])
def test_how_far_a_memory_moves_or_what_it_looks_at(kind):
    who, rng = player_of(BOX, spaces.Discrete(3), kind), np.random.default_rng(0)
    who.reset(EpisodeStart(3))
    for step in range(40):
        obs, before = rng.normal(size=3).astype(np.float32), [leaf.clone() for leaf in leaves(who._carry)]
        seen, moved = who.explain(obs).attention, who.choose(obs, "greedy").moved
        assert (moved is None, seen is None) == (kind in ("mlp", "transformer"), kind != "transformer")
        if moved is not None:  # the actor's state comes first, the critic's is as large
            actor = [*zip(before, leaves(who._carry), strict=True)][: len(before) // 2]
            assert moved == pytest.approx(sum((new - old).square().sum().item() for old, new in actor) ** 0.5, rel=1e-5)
        if seen is not None:
            assert seen.shape == (33,) and seen.sum() == pytest.approx(1, rel=1e-5)
            assert (seen > 0).tolist() == [age <= step for age in range(33)]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("mode", ["greedy", "sampled", "random"])
def test_gradients_are_finite_differences(case, mode):
    who, rng = player_of(*CASES[case]), np.random.default_rng(0)
    who.reset(EpisodeStart(3))
    for _ in range(3):  # a few steps, so that a memory holds something
        obs = rng.uniform(-1, 1, 3).astype(np.float32)
        result = who.saliency(obs, mode)
        before = who.explain(obs)
        chosen = who.taken(who.choose(obs, mode).policy_action[None])[0].astype(int)
        if case in ("a memory", "attention"):  # the carry has moved on: nothing to compare with
            assert np.abs(result.action[""]).max() > 0 and np.abs(result.value[""]).max() > 0
            continue
        for place in range(3):
            step = np.zeros(3, np.float32)
            step[place] = 1e-2
            high, high_value = opinion_of(who, obs + step, chosen)
            low, low_value = opinion_of(who, obs - step, chosen)
            assert result.action[""][place] == pytest.approx((high - low) / 2e-2, abs=5e-3)
            assert result.value[""][place] == pytest.approx((high_value - low_value) / 2e-2, abs=5e-3)
        assert who.explain(obs).value == before.value


def test_asking_changes_nothing():
    asked, plain = (player_of(*CASES["a memory"]) for _ in range(2))
    rng = np.random.default_rng(1)
    for _ in range(5):
        obs = rng.uniform(-1, 1, 3).astype(np.float32)
        asked.saliency(obs, "sampled")
        assert asked.choose(obs, "sampled").action == plain.choose(obs, "sampled").action


def test_of_images_the_size_counts_and_masks_and_integers_are_left_out():
    observed = spaces.Dict(
        {"eye": IMAGE, "speed": BOX, "place": spaces.Discrete(5), "action_mask": spaces.MultiBinary(3)}
    )
    who = player_of(observed, spaces.Discrete(3), "cnn")
    rng = np.random.default_rng(0)
    obs = {"eye": rng.integers(0, 256, (2, 36, 36), np.uint8), "speed": np.ones(3, np.float32), "place": 2}
    result = who.saliency({**obs, "action_mask": np.array([1, 0, 1], np.int8)}, "greedy")
    assert result.action.keys() == result.value.keys() == {"eye", "speed"}
    assert result.action["eye"].dtype == np.uint8 and result.action["eye"].shape == (2, 36, 36)
    assert result.action["eye"].max() == 255 and np.abs(result.value["speed"]).max() > 0


def test_nothing_to_differentiate_is_none():
    assert player_of(spaces.Discrete(5), spaces.Discrete(2), "mlp").saliency(3, "greedy") is None
    assert (
        player_of(BOX, spaces.Discrete(2), "mlp", critic=False).saliency(np.ones(3, np.float32), "greedy").value is None
    )


def test_a_policy_that_does_not_look_has_no_gradient():
    who = player_of(*CASES["choices"])
    explain = who.policy.requires_grad_(False).explain
    who.policy.explain = lambda obs, *rest: explain(torch.ones_like(obs), *rest)
    assert not who.saliency(np.ones(3, np.float32), "greedy").action[""].any()
