"""A search: who goes on where, in a real journal of Optuna's; and whole ones, stopped and killed, of real processes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("optuna", reason="pip install 'stride-rl[tune]'")

from stride.commands import sweep as search_command
from stride.commands.sweep_runs import next_trial
from stride.commands.train_arguments import parse_arguments
from stride.config.search import ranked, read_search
from stride.runstore.many.search_journal import COMPLETE, PRUNED, RUNNING, Journal
from stride.runstore.run_dir import list_runs
from stride.runstore.seed_group import members
from stride.utils import entry

TINY = {"n_envs": 2, "n_steps": 8, "max_timesteps": 512, "eval_freq_epochs": 2, "eval_warmup_epochs": 0,
        "eval_episodes": 2, "test_episodes": 2, "early_stop_on_eval_threshold": False}  # fmt: skip
FIXED = {key: {"value": value} for key, value in TINY.items()}
LR = {"distribution": "log_uniform_values", "min": 1e-4, "max": 1e-2}
CLIMB = {
    "variant": "CartPole-v1:ppo", "method": "bayes", "metric": {"name": "val/roll/ep_rew/mean", "goal": "maximize"},
    "run_cap": 9, "seeds": [100], "rungs": {"first": 64, "factor": 3}, "confirm": 1,
    "parameters": {"policy_lr": LR, "n_epochs": {"min": 1, "max": 20}, **FIXED},
}  # fmt: skip


@pytest.fixture
def file(tmp_path):
    def write(**changes):
        (tmp_path / "mine.yaml").write_text(yaml.safe_dump({**CLIMB, **changes}, sort_keys=False))
        return tmp_path / "mine.yaml"

    return write


def searched(file, folder):
    """The search of a file, and its journal, opened anew each time it is asked for."""
    search = read_search(file, None, lambda words: parse_arguments([*words]).load())
    rest = search.spaces, search.method, search.maximize, search.seeds[0]
    return search, lambda: Journal(folder, *rest)


@pytest.fixture
def begin(file, tmp_path):
    return lambda **changes: searched(file(**changes), tmp_path)


def closeness(trial):
    return -abs(trial.params["n_epochs"] - 13) - trial.number / 100


def play(search, opened, worth=closeness, reopen=False):
    """All of a search, two trials at a time, whose values are `worth(trial)`; opened anew before each step."""
    journal, flown, aloft = opened(), set(), []
    while True:
        journal = opened() if reopen else journal
        while len(aloft) < 2 and (trial := next_trial(search, journal, flown)):
            aloft.append(trial)
            flown.add((trial.number, trial.bound))
        if not aloft:
            return journal.trials
        trial = aloft.pop(0)
        journal.reached(trial.number, trial.bound, worth(trial), [f"run-{trial.number}"])
        if trial.bound == search.budget:
            journal.tell(trial.number, COMPLETE, worth(trial))


def test_rungs_thin_the_trials_the_best_reach_the_end_and_reopening_changes_nothing(begin, tmp_path):
    search, opened = begin()
    trials = play(search, opened)
    assert search.targets == (64, 192, 512) and len(trials) == 9
    for rung, above in ((64, 192), (192, 512)):
        there = {trial.number: trial.values[rung] for trial in trials if rung in trial.values}
        on = {trial.number for trial in trials if above in trial.values}
        assert set(ranked(there)[: len(there) // 3]) <= on, "the best third of a rung has gone on"
    assert {trial.state for trial in trials} == {COMPLETE, RUNNING}
    assert sum(max(trial.values) for trial in trials) < 0.6 * 9 * 512
    (tmp_path / "journal.log").unlink()
    assert play(search, opened, reopen=True) == trials


def test_optuna_learns_from_trials_that_rest(begin):
    trials = play(*begin(run_cap=27))
    first, last = ([abs(trial.params["n_epochs"] - 13) for trial in part] for part in (trials[:10], trials[17:]))
    assert sum(last) < sum(first), "TPE proposes nearer to what was best"


def test_what_was_under_way_is_begun_again_first_and_told_once(begin):
    search, opened = begin()
    journal = opened()
    first = next_trial(search, journal, ())
    again = next_trial(search, opened(), ())
    assert again == first and len(opened().trials) == 1
    journal.reached(0, 64, 1.0, ["run"])
    journal.tell(0, PRUNED)
    with pytest.raises(ValueError, match="Cannot tell"):
        opened().tell(0, PRUNED)
    assert next_trial(search, opened(), ()).number == 1


def test_a_grid_is_asked_for_whole_and_in_order(begin):
    grid = {"gamma": {"values": [0.9, 0.99]}, "hidden_dims": {"values": [[8], [8, 8]]}, **FIXED}
    trials = play(*begin(method="grid", parameters=grid, rungs=None), worth=lambda trial: 0.0)
    asked = [(trial.params["gamma"], trial.params["hidden_dims"]) for trial in trials]
    assert asked == [("0.9", "[8]"), ("0.9", "[8,8]"), ("0.99", "[8]"), ("0.99", "[8,8]")]
    assert {trial.state for trial in trials} == {COMPLETE}


def sweep(file):
    command = [sys.executable, "-m", "stride.commands.sweep", str(file)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process, code=0):
    """(stdout, stderr)"""
    out, err = process.communicate(timeout=600)
    assert process.returncode == code, out + err
    return out, err


@pytest.mark.parametrize("changes", [{"parameters": {"polcy_lr": LR}}, {"rungs": {"first": 512}}])
def test_a_wrong_file_ends_with_2_and_leaves_no_folder(file, root, changes, capsys):
    assert entry.ended(search_command.main, [str(file(**changes))]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("error: mine.yaml: ") and err.count("\n") == 1 and not out
    assert not root.exists()


@pytest.mark.slow
def test_a_whole_search_and_the_file_of_another(file, root):
    out, _ = ended(sweep(file()))
    assert out.count("trial ") > 9 and "_inherit_: ppo" in out and "confirmed" in out
    result = json.loads((root / "sweeps" / "mine" / "result.json").read_text())
    assert result["full_env_steps"] == 9 * 512 and result["fresh_seeds"] == [1]
    facts = [run.facts() for run in list_runs()]
    assert [run["seed"] for run in facts].count(100) == 9
    assert [run["status"] for run in facts].count("paused") == result["trials"]["pruned"]
    assert ended(sweep(file()))[0].splitlines()[-3:] == out.splitlines()[-3:] and len(list_runs()) == len(facts)
    assert "has a search with a different seeds" in ended(sweep(file(seeds=[101])), code=2)[1]


@pytest.mark.slow
def test_a_search_that_is_killed_again_and_again_loses_and_repeats_no_trial(file, root):
    path, out = file(), ""
    for lines in (2, 4, 3):
        process = sweep(path)
        out += "".join(process.stdout.readline() for _ in range(lines))  # somewhere after its first trials
        assert process.poll() is None, "it was over before it could be killed"
        process.kill()
        out += process.communicate()[0]
    out += ended(sweep(path))[0]
    folder = root / "sweeps" / "mine"
    trials = searched(path, folder)[1]().trials
    assert {trial.state for trial in trials} == {COMPLETE, PRUNED}, out
    journal = [json.loads(line) for line in Path(folder, "journal.log").read_text().splitlines()]
    tells = [line["trial_id"] for line in journal if line["op_code"] == 6]
    assert len(tells) == len({*tells}) == len(trials), "each was told once"
    fresh = json.loads((folder / "result.json").read_text())["fresh_seeds"]
    states = {run.id: facts["status"] for run, facts in members("sweep-mine") if facts["seed"] not in fresh}
    assert sorted(states) == sorted(trial.runs[0] for trial in trials), "and has one run"
    assert {states[trial.runs[0]] for trial in trials if trial.state == COMPLETE} == {"finished"}
    assert {states[trial.runs[0]] for trial in trials if trial.state == PRUNED} == {"paused"}
