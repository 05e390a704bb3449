"""Gradients of a policy's answer by what it observed: equal to finite differences, for every kind of policy."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from stride.agents.experience.collector import Policy
from stride.agents.experience.nouns import Act, Explanation
from stride.agents.networks.actor_critic import Plan
from stride.agents.networks.policies import POLICIES
from stride.agents.trained.player import EpisodeStart, Player
from stride.agents.trained.saliency import saliency

BOX = spaces.Box(-2.0, 2.0, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (2, 36, 36), np.uint8)
CASES = {
    "choices": (BOX, spaces.Discrete(4), "mlp"),
    "several choices": (BOX, spaces.MultiDiscrete([2, 3]), "mlp"),
    "numbers": (BOX, spaces.Box(-1, 1, (2,), np.float32), "mlp"),
    "a memory": (BOX, spaces.Discrete(3), "lstm"),
}


def player(observed, acted, name, seed=1, **changes):
    policy = POLICIES[name](Plan(observed, acted, (16,), seed=seed, **changes))
    for parameter in policy.head.parameters():  # from a flat start to opinions
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(seed))
    return Player(policy, observed, acted)


def told(who, obs, chosen):
    """(what the action's gradient is taken of, the value) at an observation, in words other than the module's."""
    opinion = who.explain(obs)
    if "mean" in opinion.distribution:
        return opinion.distribution["mean"].sum(), opinion.value
    return np.log(opinion.distribution["probability"][chosen]).sum(), opinion.value


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("mode", ["greedy", "sampled", "random"])
def test_gradients_are_finite_differences(case, mode):
    who, rng = player(*CASES[case]), np.random.default_rng(0)
    who.reset(EpisodeStart(3))
    for _ in range(3):  # a few steps, so that a memory holds something
        obs = rng.uniform(-1, 1, 3).astype(np.float32)
        found = who.saliency(obs, mode)
        before = who.explain(obs)
        chosen = who.taken(who.choose(obs, mode).policy_action[None])[0].astype(int)
        if case == "a memory":  # the carry has moved on: nothing to compare with
            assert np.abs(found.action[""]).max() > 0 and np.abs(found.value[""]).max() > 0
            continue
        for place in range(3):
            step = np.zeros(3, np.float32)
            step[place] = 1e-2
            (high, high_value), (low, low_value) = told(who, obs + step, chosen), told(who, obs - step, chosen)
            assert found.action[""][place] == pytest.approx((high - low) / 2e-2, abs=5e-3)
            assert found.value[""][place] == pytest.approx((high_value - low_value) / 2e-2, abs=5e-3)
        assert who.explain(obs).value == before.value


def test_asking_changes_nothing():
    asked, plain = (player(*CASES["a memory"]) for _ in range(2))
    rng = np.random.default_rng(1)
    for _ in range(5):
        obs = rng.uniform(-1, 1, 3).astype(np.float32)
        asked.saliency(obs, "sampled")
        assert asked.choose(obs, "sampled").action == plain.choose(obs, "sampled").action


def test_of_images_the_size_is_told_and_masks_and_integers_are_left_out():
    observed = spaces.Dict(
        {"eye": IMAGE, "speed": BOX, "place": spaces.Discrete(5), "action_mask": spaces.MultiBinary(3)}
    )
    who = player(observed, spaces.Discrete(3), "cnn")
    rng = np.random.default_rng(0)
    obs = {"eye": rng.integers(0, 256, (2, 36, 36), np.uint8), "speed": np.ones(3, np.float32), "place": 2}
    found = who.saliency({**obs, "action_mask": np.array([1, 0, 1], np.int8)}, "greedy")
    assert found.action.keys() == found.value.keys() == {"eye", "speed"}
    assert found.action["eye"].dtype == np.uint8 and found.action["eye"].shape == (2, 36, 36)
    assert found.action["eye"].max() == 255 and np.abs(found.value["speed"]).max() > 0


def test_nothing_to_differentiate_is_none():
    assert player(spaces.Discrete(5), spaces.Discrete(2), "mlp").saliency(3, "greedy") is None
    assert player(BOX, spaces.Discrete(2), "mlp", critic=False).saliency(np.ones(3, np.float32), "greedy").value is None


class Quadratic(Policy):
    """Q(s, a) = a * s0^2 and the best one for sure, as a value-based policy answers."""

    draws = 1

    def initial(self, num_envs):
        return ()

    def act(self, obs, carry, is_first, noise, greedy):
        return Act(torch.ones(len(obs), dtype=torch.int64))

    def explain(self, obs, carry, is_first):
        q = torch.stack([k * obs[:, 0] ** 2 for k in range(3)], -1)
        best = torch.nn.functional.one_hot(q.argmax(-1), 3).float()
        return Explanation(obs, {"probability": best, "q": q}, torch.zeros(len(q)), q.amax(-1))


def test_the_value_of_the_choice_counts_where_there_is_one():
    who = Player(Quadratic(), BOX, spaces.Discrete(3))
    obs = np.array([3, 1, 1], np.float32)
    opinion, found = who.explain(obs), who.saliency(obs, "greedy")
    np.testing.assert_array_equal(opinion.distribution["q"], [0, 9, 18])
    np.testing.assert_array_equal(found.action[""], [6, 0, 0])  # of the action taken, 1
    np.testing.assert_array_equal(found.value[""], [12, 0, 0])


def test_a_policy_that_does_not_look_has_no_gradient():
    class Blind(Quadratic):
        def explain(self, obs, carry, is_first):
            return super().explain(torch.ones_like(obs), carry, is_first)

    found = saliency(Blind(), torch.ones(1, 3), (), torch.ones(1, dtype=torch.bool), torch.tensor([0]))
    np.testing.assert_array_equal(found.action[""], np.zeros(3))
