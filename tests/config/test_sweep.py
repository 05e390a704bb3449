"""A sweep's values become overrides: from the file that W&B's agent leaves, with every check that typed words pass."""

from pathlib import Path

import pytest
import yaml
from refusals import refusals

from stride import config
from stride.commands.train_arguments import parse_arguments
from stride.config.diff import override_text
from stride.config.loader import load_config
from stride.config.metrics import declared
from stride.utils.user_error import UserError

FILES = sorted((Path(config.__file__).parent / "sweeps").glob("*.yaml"))
WRONG = [
    ({"polcy_lr": 0.1},), ({"gamma": 1.5},), ({"n_epochs": "many"},), ({"gamma": 0.9}, "--seed", "1,2"),
    ({"gamma": 0.9}, "--wandb_swep"), ({"policy_lr": 1e-5}, "policy_lr=0.1"),
]  # fmt: skip
FOREIGN = ["", "- 1", "gamma: 0.9", "gamma: {worth: 0.9}", "a: !!python/name:os.system x"]
SPECS = [file for file in FILES if "command:" in file.read_text()]  # of W&B's agents; the others are our own search's


@pytest.fixture
def chosen(tmp_path, monkeypatch):
    """Leave values as an agent does."""

    def leave(sweep="me/sweeps/1", **values):
        file = tmp_path / "config-run.yaml"
        text = yaml.safe_dump({key: {"value": value} for key, value in values.items()}, sort_keys=False)
        file.write_text(f"wandb_version: 1\n\n{text}")
        monkeypatch.setenv("WANDB_SWEEP_PARAM_PATH", str(file))
        if sweep:
            monkeypatch.setenv("WANDB_SWEEP_ID", sweep)

    return leave


def loaded(*words):
    return parse_arguments(["CartPole-v1:ppo", *words]).load()


def test_values_of_every_kind_reach_the_config(chosen):
    chosen(policy_lr=0.02, hidden_dims=[32, 16], normalize_obs=True, activation="relu", clip_range_vf=None,
           ent_coef="lin_0.01", env_kwargs={"sutton_barto_reward": False}, n_epochs=3)  # fmt: skip
    found = loaded("gamma=0.9")
    assert (found.policy_lr, found.hidden_dims, found.activation, found.n_epochs) == (0.02, (32, 16), "relu", 3)
    assert (found.normalize_obs, found.clip_range_vf, found.gamma) == ("rolling", None, 0.9)
    assert found.ent_coef.start_value == 0.01 and found.env_kwargs == {"sutton_barto_reward": False}


def test_a_run_of_a_sweep_tells_wandb(chosen):
    assert loaded().logger == ("csv",)
    chosen(gamma=0.9)
    assert loaded().logger == ("csv", "wandb")
    assert loaded("logger=[tensorboard,wandb]").logger == ("tensorboard", "wandb")


def test_the_flag_alone_is_enough(chosen):
    chosen(sweep="", gamma=0.9)
    assert loaded().gamma != 0.9
    assert loaded("--wandb_sweep").gamma == loaded("--wandb-sweep").gamma == 0.9


def test_an_agent_that_types_them_too_says_them_once(chosen):
    chosen(policy_lr=1e-5, normalize_reward=True, clip_range_vf=None)
    found = loaded("--policy_lr=1e-05", "--normalize_reward=True", "--clip_range_vf=None")
    assert found.policy_lr == 1e-5 and found.normalize_reward is True
    assert loaded("policy_lr=0.00001").policy_lr == 1e-5


def test_what_is_wrong_is_one_line(chosen, tmp_path, monkeypatch, snapshot):
    def choose(case):
        values, *words = case
        chosen(**values)
        loaded(*words)

    def read(text):
        (tmp_path / "x.yaml").write_text(text)
        monkeypatch.setenv("WANDB_SWEEP_PARAM_PATH", str(tmp_path / "x.yaml"))
        loaded("--wandb_sweep")

    lines = refusals(loaded, ["--wandb_sweep"]), refusals(choose, WRONG), refusals(read, FOREIGN)
    assert "\n".join(lines) == snapshot


def test_a_run_that_goes_on_asks_no_sweep(chosen):
    chosen(gamma=0.9)
    assert parse_arguments(["--resume", "@last"]).sweep is None
    with pytest.raises(UserError, match="--resume takes everything"):
        parse_arguments(["--resume", "@last", "--wandb_sweep"])


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.stem)
def test_every_shipped_sweep_can_be_trained(spec):
    """Both ends of every range, together, and every value of every list, alone; there is one of each method."""
    assert {yaml.safe_load(spec.read_text())["method"] for spec in SPECS} == {"grid", "random", "bayes"}
    plan = yaml.safe_load(spec.read_text())
    declared(plan["metric"]["name"])
    env_id, variant = plan["command"][-3].split(":")
    assert plan["command"][-2:] == ["--wandb_sweep", "-q"] and f"project {env_id} {spec.name}" in spec.read_text()
    ends = [{}, {}]
    for key, space in plan["parameters"].items():
        options = space.get("values", [space.get("min"), space.get("max")])
        for option in options:
            load_config(env_id, variant, [override_text(key, option)])
        ends[0][key], ends[1][key] = options[0], options[-1]
    for end in ends:
        load_config(env_id, variant, [override_text(key, value) for key, value in end.items()])
