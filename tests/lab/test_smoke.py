"""The smoke scripts themselves: they find what they are asked for, say how it went, and refuse what is not there."""

import sys

import gymnasium
import pytest
from commands import run_command

from lab import smoke_test_envs, smoke_train_envs
from stride.envs_gym.gym_env import GymEnv
from stride.utils.user_error import UserError


def run(script, *arguments):
    return run_command("-m", f"lab.{script}", *arguments)


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "CliffWalkingSlippery-v1"])  # a shipped one, one of Gymnasium's
def test_random_play_keeps_the_contract(env_id, capsys):
    assert smoke_test_envs.main(["--filter", env_id, "--steps", "30"]) == 0
    said = capsys.readouterr().out
    assert env_id in said and " exact " in said and "1 of 1 keep the contract" in said


def test_a_family_that_is_not_installed_is_told_with_its_cure(monkeypatch):
    others = {name: spec for name, spec in gymnasium.registry.items() if not name.startswith("dm_control/")}
    monkeypatch.setattr(gymnasium, "registry", others)  # another test may have registered what is installed after all
    monkeypatch.setattr(smoke_test_envs, "find_package", lambda module: None)
    with pytest.raises(UserError, match=r"dm_con needs dm_control: pip install 'stride-rl\[dmc\]'"):
        smoke_test_envs.ids_with("dm_con")


@pytest.mark.slow
@pytest.mark.parametrize(("term", "module"), [("dm_control/cartpole-s", "dm_control"), ("minigrid-empty", "minigrid")])
def test_a_family_that_is_installed_is_found_by_a_part_of_its_ids(term, module):
    pytest.importorskip(module)
    found = smoke_test_envs.ids_with(term)
    assert len(found) >= 2 and all(name.casefold().startswith(term) for name in found)


def test_a_broken_promise_is_noticed():
    class Generous(GymEnv):
        """Reports returns that are one too high."""

        def step(self, action):
            step = super().step(action)
            return step._replace(episode_return=step.episode_return + 1)

    worlds = [kind("FrozenLake-v1", smoke_test_envs.WORLDS) for kind in (Generous, GymEnv)]
    with pytest.raises(smoke_test_envs.PromiseError, match="episode_return"):
        smoke_test_envs.play(*worlds, steps=60)


def test_a_snapshot_that_goes_elsewhere_is_noticed():
    class Amnesiac(GymEnv):
        """Begins anew instead of loading."""

        def load_state_dict(self, state):
            self.reset(state["seed"] + 1)

    worlds = [kind("CartPole-v1", smoke_test_envs.WORLDS) for kind in (GymEnv, Amnesiac)]
    with pytest.raises(smoke_test_envs.PromiseError, match="snapshot"):
        smoke_test_envs.play(*worlds, steps=10)


@pytest.mark.parametrize("script", ["smoke_train_envs", "smoke_test_envs"])
def test_a_filter_that_matches_nothing_is_one_line(script):
    done = run(script, "--filter", "CartPole-v1:reinforcement")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_variant_trains():
    done = run("smoke_train_envs", "--filter", "CartPole-v1:reinforce")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 variants run" in done.stdout


def test_a_name_goes_before_a_description_and_an_id_before_a_part_of_one():
    assert {config.env_id for config in smoke_test_envs.chosen("cartpole")} == {"CartPole-v1"}
    assert {config.env_id for config in smoke_test_envs.chosen("MountainCarContin")} == {"MountainCarContinuous-v0"}
    assert [config.env_id for config in smoke_test_envs.chosen("cliffwalkingSLIPPERY")] == ["CliffWalkingSlippery-v1"]


def test_a_limit_counts_from_one():
    with pytest.raises(UserError, match="--limit takes a number from 1"):
        smoke_test_envs.main(["--limit", "0"])


@pytest.mark.parametrize("script", [smoke_test_envs, smoke_train_envs])
def test_what_is_not_installed_is_told_with_the_cure_and_is_no_failure(script, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "vizdoom", None)
    assert script.main(["--filter", "VizDoom/basic"]) == 0
    assert "VizDoom/basic was not tried; it needs VizDoom: pip install 'stride-rl[vizdoom]'" in capsys.readouterr().out
