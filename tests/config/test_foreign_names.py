"""Names of other frameworks are answered with what to write here."""

import gymnasium
import pytest

from stride.commands import train
from stride.commands.train_arguments import parse_arguments
from stride.commands.train_opening import checked
from stride.config.fields import known_keys
from stride.config.foreign import KEYS, NEAREST_ALGORITHM
from stride.config.schema import ALGORITHMS
from stride.utils.user_error import UserError

LINES = {
    "CartPole-v1:dqn target_update_interval=5": "in Stride it is called target_freq",
    "CartPole-v1:dqn exploration_fraction=0.1": "in Stride it is called epsilon_schedule_end",
    "CartPole-v1:ppo learning-rate=1e-3": "in Stride it is called policy_lr",
    "CartPole-v1:ppo verbose=1": "-q",
    "CartPole-v1:ppo env=x": "CartPole-v1:ppo",
    "CartPole-v1:ppo --track": r"logger=\[wandb\]",
    "--algo ppo --env CartPole-v1": "CartPole-v1:ppo",
    "CartPole-v1:td3": "Stride has no TD3",
    "CartPole-v1:a2c": "Stride has no A2C, the closest is ppo",
    "PongNoFrameskip-v4:ppo": "its name in Gymnasium is ALE/Pong-v5",
    "Pong-v5:ppo": "did you mean ALE/Pong-v5",
}


@pytest.mark.parametrize("line", LINES)
def test_a_foreign_name_is_answered_with_the_one_here(line, monkeypatch):
    for name in [name for name in gymnasium.registry if "Pong" in name]:  # ale-py was imported by another test
        monkeypatch.delitem(gymnasium.registry, name)
    with pytest.raises(UserError, match=LINES[line]):
        train.main(line.split())


def test_what_is_offered_exists():
    keys = {key for algo_id in ALGORITHMS for key in known_keys(algo_id)}
    assert {name for name in KEYS.values() if name != "spec.goal"} <= keys
    assert not keys & {*KEYS}
    assert {*NEAREST_ALGORITHM.values()} <= {*ALGORITHMS}


def test_a_package_that_is_not_installed_is_named_before_torch_is_loaded(monkeypatch):
    monkeypatch.setattr("stride.config.extras.find_spec", lambda module: None)
    with pytest.raises(UserError, match=r"LunarLander-v3 needs Box2D: pip install"):
        checked(parse_arguments(["LunarLander-v3:ppo"]))
