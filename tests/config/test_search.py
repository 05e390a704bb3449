"""Sweeps: what their files may say, who goes on in our own search; and values that W&B's agents leave."""

import math
from pathlib import Path

import pytest
import yaml
from refusals import refusals

from stride import config
from stride.commands.sweep import parse_sweep
from stride.commands.train_arguments import parse_arguments
from stride.config.diff import override_text
from stride.config.loader import load_config
from stride.config.metrics import declared
from stride.config.search import Space, promoted, ranked, read_search, rungs_below
from stride.utils.user_error import UserError

SHIPPED = Path(config.__file__).parent / "sweeps" / "cartpole.yaml"
LR = {"distribution": "log_uniform_values", "min": 1e-5, "max": 1e-2}
FILE = {
    "variant": "CartPole-v1:ppo", "method": "random", "metric": {"name": "val/roll/ep_rew/mean", "goal": "maximize"},
    "run_cap": 9, "parameters": {"policy_lr": LR, "eval_warmup_epochs": {"value": 0}},
}  # fmt: skip
RUNGS = {"first": 8192, "factor": 3}


def load(words):
    return parse_arguments([*words]).load()


@pytest.fixture
def read(tmp_path):
    """What the file says with these keys in place of its own; None: without the key."""

    def read(trials=None, **changes):
        told = {key: value for key, value in {**FILE, **changes}.items() if value is not None}
        (tmp_path / "mine.yaml").write_text(yaml.safe_dump(told, sort_keys=False))
        return read_search(tmp_path / "mine.yaml", trials, load)

    return read


def test_the_shipped_search_is_sound_and_spends_little_if_rungs_are_exact():
    found = read_search(SHIPPED, None, load)
    assert (found.trials, found.factor, found.targets, found.seeds) == (27, 3, (8_192, 24_576, 73_728), (100,))
    assert found.group == "sweep-cartpole" and "early_stop_on_eval_threshold=false" in found.fixed
    assert found.words({"policy_lr": 0.5, "gamma": "0.98", "n_epochs": 3}) == [
        "policy_lr=0.5", "gamma=0.98", "n_epochs=3"
    ]  # fmt: skip


def test_spaces_are_what_wandb_means_by_them(read):
    parameters = {
        "policy_lr": LR, "n_epochs": {"min": 1, "max": 20}, "gae_lambda": {"min": 0.5, "max": 1},
        "clip_range": {"distribution": "q_uniform", "min": 0.1, "max": 0.5, "q": 0.1},
        "hidden_dims": {"values": [[64, 64], [32]]}, "normalize_obs": {"distribution": "categorical", "values": [True]},
        "eval_warmup_epochs": {"value": 0}, "gamma": {"distribution": "constant", "value": 0.9},
    }  # fmt: skip
    found = read(parameters=parameters)
    assert found.spaces == (
        Space("policy_lr", (), 1e-5, 1e-2, log=True),
        Space("n_epochs", (), 1, 20, whole=True),
        Space("gae_lambda", (), 0.5, 1),
        Space("clip_range", (), 0.1, 0.5, step=0.1),
        Space("hidden_dims", ("[64,64]", "[32]")),
        Space("normalize_obs", ("true",)),
    )
    assert found.fixed == ("eval_warmup_epochs=0", "gamma=0.9") and found.maximize


def test_trials_are_those_that_were_typed_and_a_grid_has_no_more_than_it_is(read):
    assert (read().trials, read(trials=5).trials) == (9, 5)
    grid = {"gamma": {"values": [0.9, 0.99]}, "n_epochs": {"values": [1, 2, 3]}, "eval_warmup_epochs": {"value": 0}}
    assert [read(method="grid", parameters=grid, run_cap=cap).trials for cap in (None, 4, 100)] == [6, 4, 6]


def parameters(**spaces):
    return {"parameters": spaces}


METRIC = {"name": "val/roll/ep_rew/mean", "goal": "maximize"}
WRONG = [  # keys in place of the file's own
    {"metod": 1}, {"variant": None}, {"variant": "CartPole-v1:pqo"}, {"variant": "gamma=3"}, {"method": "baes"},
    {"early_terminate": {"type": "hyperband"}}, {"metric": "val/roll/ep_rew/mean"},
    {"metric": {**METRIC, "name": "val/roll/ep_rew/men"}}, {"metric": {**METRIC, "goal": "maximise"}},
    {"metric": {**METRIC, "name": "test/roll/ep_rew/mean"}, "rungs": RUNGS},
    parameters(policy_lr=LR, eval_freq_epochs={"value": None}),
    {**parameters(policy_lr=LR), "rungs": {"first": 4096}}, parameters(), parameters(gamma={"value": 0.9}),
    parameters(polcy_lr=LR), parameters(gamma=0.9), parameters(gamma={"vlues": [1]}),
    parameters(gamma={"min": 0.9, "max": 1.5}), parameters(gamma={"values": [0.9, 2]}),
    parameters(gamma={"min": 0.9, "max": 0.9}), parameters(gamma={"min": 0.9, "max": 0.8}),
    parameters(gamma={"values": []}), parameters(gamma={"values": [0.9, 0.9]}),
    parameters(gamma={"min": "x", "max": 1}), parameters(gamma={"min": 0.9}),
    parameters(gamma={"distribution": "normal", "min": 0, "max": 1}), parameters(ent_coef={**LR, "min": 0}),
    parameters(n_epochs={"distribution": "int_uniform", "min": 1.5, "max": 3}),
    parameters(seed={"values": [1, 2]}), parameters(max_timesteps={"min": 10, "max": 20}),
    {"seeds": []}, {"seeds": [1, 1]}, {"run_cap": 0}, {"run_cap": None}, {"run_cap": "x"}, {"confirm": -1},
    {"rungs": 3}, {"rungs": {"frst": 3}}, {"rungs": {"first": 150_000}}, {"rungs": {"first": 8192, "factor": 1}},
    {"rungs": RUNGS, "run_cap": 26}, {"population": 4}, {"method": "pbt", "population": 4, "interval": 8192},
    {"method": "grid"},
]  # fmt: skip
WORDS = [["x.yaml", "--on", "rya"], ["x.yaml", "--trials", "0"], ["x.yaml", "--trials", "many"],
         ["x.yaml", "--trails", "3"], []]  # fmt: skip


def test_what_is_wrong_is_one_line(read, snapshot):
    lines = refusals(lambda changes: read(**changes), WRONG)
    assert lines == snapshot
    assert all(line.startswith("    mine.yaml: ") for line in lines.splitlines()[1::2])


def test_words_that_mean_nothing_and_what_is_not_installed_are_one_line(snapshot, monkeypatch):
    assert refusals(parse_sweep, WORDS) == snapshot
    monkeypatch.setattr("stride.commands.sweep.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"a sweep needs Optuna: pip install 'stride-rl\[tune\]'"):
        parse_sweep(["x.yaml"])
    monkeypatch.setattr("stride.config.extras.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"--on ray needs Ray: pip install 'stride-rl\[cluster\]'"):
        parse_sweep(["x.yaml", "--on", "ray"])


def test_rungs_are_powers_and_the_best_third_goes_on_best_first():
    assert rungs_below(73_728, 8_192, 3) == (8_192, 24_576)
    assert rungs_below(73_729, 8_192, 3) == (8_192, 24_576, 73_728)
    assert rungs_below(10, 9, 2) == (9,)
    assert ranked({0: 5.0, 1: 7.0, 2: 5.0, 3: math.nan, 4: -math.inf}) == [1, 0, 2, 3, 4], "the older of equals"
    scores = [1.0, 9.0, 4.0, 5.0, 0.0, 3.0, 8.0, 7.0, 6.0]
    for count, gone_on, expected in (
        (0, (), None), (2, (), None),  # nobody before a third is one
        (3, (), 1), (3, {1}, None), (6, {1}, 3), (6, {1, 3}, None),
        (9, {1, 3}, 6), (9, {1, 3, 6}, 7),  # of nine three: 1, 6 and 7
    ):  # fmt: skip
        assert promoted(dict(enumerate(scores[:count])), gone_on, 3) == expected, (count, gone_on)
    newest = dict(enumerate([*scores[:6], 10.0]))
    assert promoted(newest, {1, 3}, 3) == 6, "of seven still two, and the newest is the best of them"


# ---- values of W&B's agents become overrides, with every check that typed words pass

FILES = sorted((Path(config.__file__).parent / "sweeps").glob("*.yaml"))
CHOSEN = [
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


def test_values_of_every_kind_reach_the_config_also_where_the_agent_types_them_too(chosen):
    chosen(policy_lr=0.02, hidden_dims=[32, 16], normalize_obs=True, activation="relu", clip_range_vf=None,
           ent_coef="lin_0.01", env_kwargs={"sutton_barto_reward": False}, n_epochs=3)  # fmt: skip
    found = loaded("gamma=0.9")
    assert (found.policy_lr, found.hidden_dims, found.activation, found.n_epochs) == (0.02, (32, 16), "relu", 3)
    assert (found.normalize_obs, found.clip_range_vf, found.gamma) == ("rolling", None, 0.9)
    assert found.ent_coef.start_value == 0.01 and found.env_kwargs == {"sutton_barto_reward": False}
    chosen(policy_lr=1e-5, normalize_reward=True, clip_range_vf=None)
    found = loaded("--policy_lr=1e-05", "--normalize_reward=True", "--clip_range_vf=None")
    assert found.policy_lr == 1e-5 and found.normalize_reward is True
    assert loaded("policy_lr=0.00001").policy_lr == 1e-5


def test_a_run_of_a_sweep_tells_wandb_and_one_that_goes_on_asks_no_sweep(chosen):
    assert loaded().logger == ("csv",)
    chosen(gamma=0.9)
    assert loaded().logger == ("csv", "wandb")
    assert loaded("logger=[tensorboard,wandb]").logger == ("tensorboard", "wandb")
    chosen(gamma=0.9)
    assert parse_arguments(["--resume", "@last"]).sweep is None
    with pytest.raises(UserError, match="--resume takes its settings"):
        parse_arguments(["--resume", "@last", "--wandb_sweep"])


def test_the_flag_alone_is_enough(chosen):
    chosen(sweep="", gamma=0.9)
    assert loaded().gamma != 0.9
    assert loaded("--wandb_sweep").gamma == loaded("--wandb-sweep").gamma == 0.9


def test_values_that_are_wrong_are_one_line(chosen, tmp_path, monkeypatch, snapshot):
    def choose(case):
        values, *words = case
        chosen(**values)
        loaded(*words)

    def read(text):
        (tmp_path / "x.yaml").write_text(text)
        monkeypatch.setenv("WANDB_SWEEP_PARAM_PATH", str(tmp_path / "x.yaml"))
        loaded("--wandb_sweep")

    lines = refusals(loaded, ["--wandb_sweep"]), refusals(choose, CHOSEN), refusals(read, FOREIGN)
    assert "\n".join(lines) == snapshot


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
