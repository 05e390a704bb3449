"""The smoke scripts themselves: they find what they are asked for, say how it went, and refuse what is not there."""

import sys

import pytest

from lab import smoke_test_envs, smoke_train_envs
from stride.envs_gym.gym_env import GymEnv


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "CliffWalkingSlippery-v1"])  # a shipped one, one of Gymnasium's
def test_random_play_keeps_the_contract(env_id, capsys):
    assert smoke_test_envs.main(["--filter", env_id, "--steps", "30"]) == 0
    printed = capsys.readouterr().out
    assert env_id in printed and " exact " in printed and "1 of 1 keep the contract" in printed


@pytest.mark.slow
def test_a_variant_trains(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    assert smoke_train_envs.main(["--filter", "CartPole-v1:reinforce"]) == 0
    assert "1 of 1 variants run" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(("term", "module"), [("dm_control/cartpole-s", "dm_control"), ("minigrid-empty", "minigrid")])
def test_a_family_that_is_installed_has_ids_by_a_part_of_its_ids(term, module):
    pytest.importorskip(module)
    names = smoke_test_envs.ids_with(term)
    assert len(names) >= 2 and all(name.casefold().startswith(term) for name in names)


class Generous(GymEnv):
    """Reports returns that are one too high."""

    def step(self, action):
        step = super().step(action)
        return step._replace(episode_return=step.episode_return + 1)


class Amnesiac(GymEnv):
    """Begins anew instead of loading."""

    def load_state_dict(self, state):
        self.reset(state["seed"] + 1)


@pytest.mark.parametrize(("env_id", "kinds", "steps", "broken"), [
    ("FrozenLake-v1", (Generous, GymEnv), 60, "episode_return"), ("CartPole-v1", (GymEnv, Amnesiac), 10, "snapshot"),
])  # fmt: skip
def test_a_broken_promise_is_noticed(env_id, kinds, steps, broken):
    worlds = [kind(env_id, smoke_test_envs.WORLDS) for kind in kinds]
    with pytest.raises(smoke_test_envs.PromiseError, match=broken):
        smoke_test_envs.play(*worlds, steps=steps)


def test_a_name_goes_before_a_description_and_an_id_before_a_part_of_one():
    named = {config.env_id for config in smoke_test_envs.chosen("cartpole")}
    assert named == {"CartPole-v1", "popgym-PositionOnlyCartPoleEasy-v0"}
    assert {config.env_id for config in smoke_test_envs.chosen("MountainCarContin")} == {"MountainCarContinuous-v0"}
    assert [config.env_id for config in smoke_test_envs.chosen("cliffwalkingSLIPPERY")] == ["CliffWalkingSlippery-v1"]


@pytest.mark.parametrize("script", [smoke_test_envs, smoke_train_envs])
def test_what_is_not_installed_is_told_with_the_cure_and_is_no_failure(script, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "vizdoom", None)
    assert script.main(["--filter", "VizDoom/basic"]) == 0
    assert "VizDoom/basic was not tried; it needs VizDoom: pip install 'stride-rl[vizdoom]'" in capsys.readouterr().out
