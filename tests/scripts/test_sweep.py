"""A search: who goes on where, in a real journal of Optuna's; and whole ones, stopped and killed, of real processes."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

pytest.importorskip("optuna", reason="pip install 'stride-rl[tune]'")

from stride.commands.sweep_runs import next_trial
from stride.commands.train_arguments import parse_arguments
from stride.config.search import ranked, read_search
from stride.runstore.many.search_journal import COMPLETE, PRUNED, RUNNING, Journal
from stride.runstore.run_dir import list_runs
from stride.runstore.seed_group import members

TINY = {"n_envs": 2, "n_steps": 8, "max_timesteps": 512, "eval_freq_epochs": 2, "eval_warmup_epochs": 0,
        "eval_episodes": 2, "test_episodes": 2, "early_stop_on_eval_threshold": False}  # fmt: skip
LR = {"distribution": "log_uniform_values", "min": 1e-4, "max": 1e-2}
PARAMETERS = {"policy_lr": LR, "n_epochs": {"min": 1, "max": 20}} | {key: {"value": of} for key, of in TINY.items()}
CLIMB = {
    "variant": "CartPole-v1:ppo", "method": "bayes", "metric": {"name": "val/roll/ep_rew/mean", "goal": "maximize"},
    "run_cap": 9, "seeds": [100], "rungs": {"first": 64, "factor": 3}, "confirm": 1, "parameters": PARAMETERS,
}  # fmt: skip


@pytest.fixture(autouse=True)
def runs_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


@pytest.fixture
def file(tmp_path):
    def write(told):
        (tmp_path / "mine.yaml").write_text(yaml.safe_dump(told, sort_keys=False))
        return tmp_path / "mine.yaml"

    return write


@pytest.fixture
def begun(file, tmp_path):
    """A search and its journal, opened anew each time it is asked for."""

    def begin(told):
        search = read_search(file(told), None, lambda words: parse_arguments([*words]).load())
        rest = search.spaces, search.method, search.maximize, search.seeds[0]
        return search, lambda: Journal(tmp_path, *rest)

    return begin


def play(search, opened, worth, each_time=False):
    """All of a search, two trials at a time, whose values are `worth(trial, bound)`; opened anew before each step."""
    journal, flown, aloft = opened(), set(), []
    while True:
        journal = opened() if each_time else journal
        while len(aloft) < 2 and (trial := next_trial(search, journal, flown)):
            aloft.append(trial)
            flown.add((trial.number, trial.bound))
        if not aloft:
            return journal.trials
        trial = aloft.pop(0)
        value = worth(trial, trial.bound)
        journal.reached(trial.number, trial.bound, value, [f"run-{trial.number}"])
        if trial.bound == search.budget:
            journal.tell(trial.number, COMPLETE, value)


def closeness(trial, bound):
    return -abs(trial.params["n_epochs"] - 13) - trial.number / 100


def test_rungs_thin_the_trials_and_the_best_reach_the_end(begun):
    search, opened = begun(CLIMB)
    trials = play(search, opened, closeness)
    assert search.targets == (64, 192, 512) and len(trials) == 9
    for rung, above in ((64, 192), (192, 512)):
        there = {each.number: each.values[rung] for each in trials if rung in each.values}
        on = {each.number for each in trials if above in each.values}
        assert set(ranked(there)[: len(there) // 3]) <= on, "the best third of a rung has gone on"
    assert {each.state for each in trials} == {COMPLETE, RUNNING}
    assert sum(max(each.values) for each in trials) < 0.6 * 9 * 512


def test_a_search_that_is_reopened_before_each_step_is_the_same_search(begun, tmp_path):
    search, opened = begun(CLIMB)
    straight = play(search, opened, closeness)
    (tmp_path / "journal.log").unlink()
    assert play(search, opened, closeness, each_time=True) == straight


def test_optuna_learns_from_trials_that_rest(begun):
    search, opened = begun({**CLIMB, "run_cap": 27})
    trials = play(search, opened, closeness)
    first, last = ([abs(each.params["n_epochs"] - 13) for each in part] for part in (trials[:10], trials[17:]))
    assert sum(last) < sum(first), "TPE proposes nearer to what was best"


def test_what_was_under_way_is_begun_again_first_and_told_once(begun):
    search, opened = begun(CLIMB)
    journal = opened()
    first = next_trial(search, journal, ())
    again = next_trial(search, opened(), ())
    assert again == first and len(opened().trials) == 1
    journal.reached(0, 64, 1.0, ["run"])
    journal.tell(0, PRUNED)
    with pytest.raises(ValueError, match="Cannot tell"):
        opened().tell(0, PRUNED)
    assert next_trial(search, opened(), ()).number == 1


def test_a_grid_is_asked_for_whole_and_in_order(begun):
    grid = {"gamma": {"values": [0.9, 0.99]}, "hidden_dims": {"values": [[8], [8, 8]]}, **{
        key: {"value": of} for key, of in TINY.items()}}  # fmt: skip
    search, opened = begun({**CLIMB, "method": "grid", "parameters": grid, "rungs": None} | {"run_cap": 9})
    trials = play(search, opened, lambda trial, bound: 0.0)
    asked = [(each.params["gamma"], each.params["hidden_dims"]) for each in trials]
    assert asked == [("0.9", "[8]"), ("0.9", "[8,8]"), ("0.99", "[8]"), ("0.99", "[8,8]")]
    assert {each.state for each in trials} == {COMPLETE}


def sweep(file):
    command = [sys.executable, "-m", "stride.commands.sweep", str(file)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process):
    said, errors = process.communicate(timeout=300)
    assert process.returncode == 0, said + errors
    return said


@pytest.mark.parametrize("told", [{"parameters": {"polcy_lr": LR}}, {"rungs": {"first": 512}}])
def test_a_wrong_file_ends_with_2_and_leaves_no_folder(file, runs_folder, told):
    process = sweep(file({**CLIMB, **told}))
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 2 and errors.startswith("error: mine.yaml: ") and errors.count("\n") == 1 and not said
    assert not runs_folder.exists()


@pytest.mark.slow
def test_a_whole_search_and_the_file_of_another(file, runs_folder):
    said = ended(sweep(file(CLIMB)))
    assert said.count("trial ") > 9 and "_inherit_: ppo" in said and "confirmed" in said
    result = json.loads((runs_folder / "sweeps" / "mine" / "result.json").read_text())
    assert result["full_env_steps"] == 9 * 512 and result["fresh_seeds"] == [1]
    told = [run.facts() for run in list_runs()]
    resting = [facts for facts in told if facts["status"] == "paused"]
    assert len([facts for facts in told if facts["seed"] == 100]) == 9 and len(resting) == result["trials"]["pruned"]
    before = len(list_runs())
    assert ended(sweep(file(CLIMB))).splitlines()[-3:] == said.splitlines()[-3:] and len(list_runs()) == before
    other = sweep(file({**CLIMB, "seeds": [101]}))
    assert "holds a search with another seeds" in other.communicate(timeout=60)[1] and other.returncode == 2


@pytest.mark.slow
def test_a_search_that_is_killed_again_and_again_loses_and_repeats_no_trial(file, runs_folder):
    path, kills, said = file(CLIMB), 0, ""
    for lines in (2, 4, 3):
        process = sweep(path)
        said += "".join(process.stdout.readline() for _ in range(lines))
        time.sleep(0.1 * lines)  # somewhere after its first trials, wherever that is
        kills += process.poll() is None
        process.kill()
        said += process.communicate()[0]
    assert kills == 3, "it was over before it could be killed"
    said += ended(sweep(path))
    search = read_search(path, None, lambda words: parse_arguments([*words]).load())
    folder = runs_folder / "sweeps" / "mine"
    trials = Journal(folder, search.spaces, search.method, search.maximize, search.seeds[0]).trials
    assert {each.state for each in trials} == {COMPLETE, PRUNED}, said
    journal = [json.loads(line) for line in Path(folder, "journal.log").read_text().splitlines()]
    tells = [line["trial_id"] for line in journal if line["op_code"] == 6]
    assert len(tells) == len({*tells}) == len(trials), "each was told once"
    fresh = json.loads((folder / "result.json").read_text())["fresh_seeds"]
    searched = [run for run, facts in members("sweep-mine") if facts["seed"] not in fresh]
    assert sorted(run.id for run in searched) == sorted(each.runs[0] for each in trials), "and has one run"
    states = {run.id: run.facts()["status"] for run in searched}
    assert {states[each.runs[0]] for each in trials if each.state == COMPLETE} == {"finished"}
    assert {states[each.runs[0]] for each in trials if each.state == PRUNED} == {"paused"}
