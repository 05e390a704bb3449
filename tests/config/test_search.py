"""What a sweep's file may say: W&B's format, and each mistake as one line with the nearest name."""

from pathlib import Path

import pytest
import yaml

from stride import config
from stride.commands.sweep import parse_sweep
from stride.commands.train_arguments import parse_arguments
from stride.config.search import Space, read_search
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


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"metod": 1}, "unknown key 'metod'; did you mean method"),
        ({"variant": None}, "variant is missing"),
        ({"variant": "CartPole-v1:pqo"}, "CartPole-v1:pqn|did you mean"),
        ({"variant": "gamma=3"}, "variant is ENV:VARIANT"),
        ({"method": "baes"}, "did you mean bayes"),
        ({"early_terminate": {"type": "hyperband"}}, "rungs: {first: STEPS, factor: 3} says it"),
        ({"metric": "val/roll/ep_rew/mean"}, "metric takes {name: .., goal: maximize}"),
        ({"metric": {"name": "val/roll/ep_rew/men", "goal": "maximize"}}, "did you mean val/roll/ep_rew/mean"),
        ({"metric": {"name": "val/roll/ep_rew/mean", "goal": "maximise"}}, "did you mean maximize"),
        ({"metric": {"name": "test/roll/ep_rew/mean", "goal": "maximize"}, "rungs": RUNGS}, "never evaluated"),
        ({"parameters": {"policy_lr": LR, "eval_freq_epochs": {"value": None}}}, "never evaluated: eval_freq_epochs"),
        ({"parameters": {"policy_lr": LR}, "rungs": {"first": 4096}}, "never evaluated in the first 4,096 env steps"),
        ({"parameters": {}}, "parameters takes key"),
        ({"parameters": {"gamma": {"value": 0.9}}}, "nothing is searched"),
        ({"parameters": {"polcy_lr": LR}}, "did you mean policy_lr"),
        ({"parameters": {"gamma": 0.9}}, "gamma takes {min"),
        ({"parameters": {"gamma": {"vlues": [1]}}}, "did you mean values"),
        ({"parameters": {"gamma": {"min": 0.9, "max": 1.5}}}, "gamma must be at least 0 and at most 1, not 1.5"),
        ({"parameters": {"gamma": {"values": [0.9, 2]}}}, "gamma must be at least 0 and at most 1, not 2"),
        ({"parameters": {"gamma": {"min": 0.9, "max": 0.9}}}, "from 0.9 to 0.9 is an empty range"),
        ({"parameters": {"gamma": {"min": 0.9, "max": 0.8}}}, "is an empty range"),
        ({"parameters": {"gamma": {"values": []}}}, "an empty range"),
        ({"parameters": {"gamma": {"values": [0.9, 0.9]}}}, "a value is given twice"),
        ({"parameters": {"gamma": {"min": "x", "max": 1}}}, "min takes a number, not 'x'"),
        ({"parameters": {"gamma": {"min": 0.9}}}, "max takes a number, not None"),
        ({"parameters": {"gamma": {"distribution": "normal", "min": 0, "max": 1}}}, "'normal' is none of"),
        ({"parameters": {"ent_coef": {**LR, "min": 0}}}, "begins above 0"),
        ({"parameters": {"n_epochs": {"distribution": "int_uniform", "min": 1.5, "max": 3}}}, "takes whole numbers"),
        ({"parameters": {"seed": {"values": [1, 2]}}}, "seeds: "),
        ({"parameters": {"max_timesteps": {"min": 10, "max": 20}}}, "is the budget"),
        ({"seeds": []}, "seeds takes whole numbers"),
        ({"seeds": [1, 1]}, "each once"),
        ({"run_cap": 0}, "run_cap is 0, and 1 at least"),
        ({"run_cap": None}, "how many trials"),
        ({"run_cap": "x"}, "run_cap takes a whole number, not 'x'"),
        ({"confirm": -1}, "confirm is -1, and 0 at least"),
        ({"rungs": 3}, "rungs takes {first: STEPS, factor: 3}"),
        ({"rungs": {"frst": 3}}, "rungs takes {first: STEPS, factor: 3}"),
        ({"rungs": {"first": 150_000}}, "rungs.first 150,000 is not below the budget of 150,000 env steps"),
        ({"rungs": {"first": 8192, "factor": 1}}, "rungs.factor is 1, and 2 at least"),
        ({"rungs": RUNGS, "run_cap": 26}, "26 trials are too few for 3 rungs: one in 27 reaches the budget"),
        ({"population": 4}, "unknown key 'population'"),
        ({"method": "pbt", "population": 4, "interval": 8192}, "method: pbt was removed; use method: bayes with rungs"),
        ({"method": "grid"}, "policy_lr is a range; grid takes values"),
    ],
)
def test_what_is_wrong_is_one_line(read, changes, told):
    with pytest.raises(UserError, match=r"^mine\.yaml: ") as error:
        read(**changes)
    assert any(each in str(error.value) for each in told.split("|")), str(error.value)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["x.yaml", "--on", "rya"], "did you mean ray"),
        (["x.yaml", "--trials", "0"], "--trials is a whole number from 1"),
        (["x.yaml", "--trials", "many"], "--trials is a whole number from 1"),
        (["x.yaml", "--trails", "3"], "did you mean --trials"),
        ([], "FILE"),
    ],
)
def test_words_that_mean_nothing_are_one_line(words, told):
    with pytest.raises(UserError, match=told):
        parse_sweep(words)


def test_what_is_not_installed_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr("stride.commands.sweep.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"a sweep needs Optuna: pip install 'stride-rl\[tune\]'"):
        parse_sweep(["x.yaml"])
    monkeypatch.setattr("stride.config.extras.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"--on ray needs Ray: pip install 'stride-rl\[cluster\]'"):
        parse_sweep(["x.yaml", "--on", "ray"])
