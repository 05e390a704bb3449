"""`--group`: the same command started again, or twice at once, is the same run; `--pause-at` and `--fork` beside it."""

import json
import os
import shutil
import time
from contextlib import suppress

import pytest
from tiny_runs import TINY, tiny_run

from lab.faults.pauses import outcome, paused, whole
from lab.faults.rig import TINY as WORDS
from lab.faults.rig import amounts_to, finish, start
from stride.commands import train
from stride.config.loader import to_plain
from stride.runstore import seed_group
from stride.runstore.metrics_table import read_csv
from stride.runstore.run_dir import RunDir, list_runs, root_of_groups
from stride.runstore.run_files import read_json, write_json
from stride.runstore.run_lock import locked
from stride.runstore.seed_group import members
from stride.utils.user_error import UserError


@pytest.fixture(autouse=True)
def runs_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    return tmp_path


def words(*more: str, **changes: object) -> list[str]:
    return ["CartPole-v1:ppo", "-q", *more, *(f"{key}={value}" for key, value in {**TINY, **changes}.items())]


def test_the_same_command_begins_then_tells_again(capsys):
    assert train.command(words("--group", "g")) == 0
    first = capsys.readouterr().out
    assert train.command(words("--group", "g")) == 0
    again = capsys.readouterr().out
    assert again == first and first.startswith("result=") and len(list_runs()) == 1
    assert RunDir.find("@last").facts()["group"] == "g"
    assert train.command(words("--group", "g", seed=2)) == 0 == train.command(words("--group", "h"))
    assert len(list_runs()) == 3, "another seed, and another group, are other runs"


def test_a_run_that_was_deleted_is_made_again_under_its_name():
    run = tiny_run("CartPole-v1:ppo", "--group", "g")
    before = amounts_to(run)
    shutil.rmtree(run.path)
    again = tiny_run("CartPole-v1:ppo", "--group", "g")
    assert again.id == run.id and amounts_to(again) == before


def test_a_finished_run_that_missed_its_goal_says_so_again():
    assert train.command(words("--group", "g", "--require-goal")) == 3
    assert train.command(words("--group", "g", "--require-goal")) == 3
    assert train.command(words("--group", "g")) == 0 and len(list_runs()) == 1


def test_one_in_training_is_waited_for_and_that_is_said_once(capsys, monkeypatch):
    run = tiny_run("CartPole-v1:ppo", "--group", "g")
    write_json(run.config_json, {**run.facts(), "status": "running"})
    looks, really = [], time.sleep

    def sleep(seconds: float) -> None:
        if seconds != train.BETWEEN_LOOKS:  # other threads sleep, too
            return really(seconds)
        looks.append(seconds)
        if len(looks) == 3:
            holder.__exit__(None, None, None)

    holder = locked(run.path)
    holder.__enter__()
    monkeypatch.setattr(train.time, "sleep", sleep)
    assert train.command(words("--group", "g")) == 0
    told = capsys.readouterr()
    assert told.err.count(f"waiting: {run.id} is being trained by process {os.getpid()}\n") == 1 and len(looks) == 3
    assert read_json(run.config_json)["status"] == "finished"


def test_of_twenty_that_start_at_one_instant_one_trains_and_all_end_well(tmp_path):
    children = [start((*WORDS, "--group", "race"), tmp_path / "raced") for _ in range(20)]
    ended = [child.wait() for child in children]
    assert [each.code for each in ended] == [0] * 20, [each.said for each in ended]
    runs = [path for path in (tmp_path / "raced").iterdir() if path.name[0].isdigit()]
    assert len(runs) == 1 and len(list((tmp_path / "raced/groups/race/claims").iterdir())) == 1
    assert amounts_to(RunDir(runs[0])) == amounts_to_straight(tmp_path)


def amounts_to_straight(folder) -> dict[str, object]:
    assert finish(WORDS, folder / "straight").code == 0
    return amounts_to(RunDir(next(path for path in (folder / "straight").iterdir() if path.name[0].isdigit())))


def test_a_claim_is_made_once_and_found_in_milliseconds(monkeypatch):
    config = {"seed": 1}
    assert seed_group.claimed("g", config) == "" and seed_group.claim("g", config, "first") == "first"
    assert seed_group.claim("g", config, "second") == "first" == seed_group.claimed("g", config)
    folder = root_of_groups() / "g" / "claims"
    assert [path.name for path in folder.iterdir()] == [seed_group.key_of(config)], "nothing half-written stays"
    (folder / seed_group.key_of({"seed": 2})).write_text("../elsewhere")
    with pytest.raises(UserError, match="is not a run id"):
        seed_group.claimed("g", {"seed": 2})


@pytest.mark.parametrize("name", ["../up", "a b", ".hidden", "x" * 65, "a/b", ""])
def test_a_name_that_no_folder_may_have_is_refused(name, capsys):
    code = train.command(words("--group", name))
    told = capsys.readouterr().err
    assert (code, told.count("\n")) == ((2, 1) if name else (0, 0)) and len(list_runs()) == (not name)


def test_a_paused_run_is_untested_and_ends_in_the_bits_of_one_that_never_paused(tmp_path):
    straight = whole(WORDS, tmp_path / "straight")
    for by_group in (False, True):
        root = tmp_path / f"paused {by_group}"
        assert paused(WORDS, [100, 700], root, by_group) == ("", 2)
        assert outcome(root) == straight


def test_a_fork_in_a_group_is_begun_once_and_goes_on(capsys):
    parent = tiny_run("CartPole-v1:ppo", "--pause-at", "16")
    fork = ["--resume", parent.id, "--fork", "--group", "g", "--seed", "7", "policy_lr=0.01", "-q"]
    assert train.command([*fork, "--pause-at", "32"]) == 0 == train.command([*fork, "--pause-at", "32"])
    assert train.command(["--resume", parent.id, "-q"]) == 0, "its budget is spent now"
    assert train.command(fork) == 0 == train.command(fork)
    [facts] = [run.facts() for run in list_runs() if run != parent]
    assert (facts["group"], facts["seed"], facts["status"]) == ("g", 7, "finished")
    assert facts["parent"]["run"] == parent.id and facts["parent"]["env_steps"] == 16
    assert train.command(["--resume", parent.id, "--group", "g"]) == 2
    assert "give it, or --resume, or --fork as well" in capsys.readouterr().err


class Killed(BaseException):
    """No error that anything on the way answers to."""


@pytest.mark.parametrize("where", ["adopt", "fit"])
def test_a_fork_that_was_killed_before_it_saved_begins_again_from_its_parent(where, monkeypatch):
    parent = tiny_run("CartPole-v1:ppo", "--pause-at", "16")
    fork = ["--resume", parent.id, "--fork", "--seed", "7", "policy_lr=0.01", "-q", "--group"]

    def die(*told, **more):
        if where == "adopt":
            really(*told)
        raise Killed

    really = train.adopt
    with monkeypatch.context() as patch:
        patch.setattr(train, where, die)
        with suppress(Killed):
            assert train.command([*fork, "g"]) == 1
    assert len(list_runs()) == (2 if where == "fit" else 1), "it is whole, or not there"
    assert train.command([*fork, "g"]) == 0 == train.command([*fork, "straight"])
    killed, straight = (run for name in ("g", "straight") for run, _ in members(name))
    assert killed.facts()["parent"] == straight.facts()["parent"]
    assert amounts_to(killed) == amounts_to(straight)


def test_a_run_that_was_stopped_where_it_was_to_pause_pauses_there(capsys):
    command = words("--group", "g", "--pause-at", "32")
    assert train.command(command) == 0
    [run], told = list_runs(), capsys.readouterr().out
    for status in ("interrupted", "running"):  # by a signal; killed
        kept = {key: value for key, value in run.facts().items() if status != "running" or key != "outcome"}
        write_json(run.config_json, {**kept, "status": status})
        assert train.command(command) == 0
        facts = run.facts()
        assert facts["status"] == "paused" and facts["outcome"]["env_steps"] == 32 and len(list_runs()) == 1
        assert "result=paused" in capsys.readouterr().out and "result=paused" in told
    assert [row.get("train/clock/env_steps") for row in read_csv(run.metrics_csv)][-1] == 32


def test_what_a_pause_leaves(capsys):
    assert train.command(words("--pause-at", "30")) == 0
    run = RunDir.find("@last")
    facts = run.facts()
    assert "result=paused test_mean=none" in capsys.readouterr().out
    assert (
        facts["status"] == "paused" and facts["outcome"]["env_steps"] == 32 and facts["config"]["max_timesteps"] == 64
    )
    assert train.command(["--resume", run.id, "--pause-at", "30"]) == 2
    assert f"--pause-at 30 is behind {run.id}, which has done 32 env steps" in capsys.readouterr().err
    for far in ("65", "1e9"):
        assert train.command(words("--pause-at", far)) == 2
        assert "is beyond the budget of 64 env steps" in capsys.readouterr().err
    assert train.command(words("--pause-at", "soon")) == 2 and len(list_runs()) == 1
    assert "such as 20000 or 2e4" in capsys.readouterr().err


def test_a_fork_goes_on_from_the_last_checkpoint_with_a_seed_of_its_own(capsys):
    assert train.command(words("--pause-at", "24")) == 0
    parent = RunDir.find("@last")
    before = {path.name: path.read_bytes() for path in parent.checkpoints.iterdir()}
    ended = {}
    for seed in (1, 2):
        time.sleep(1.1 * (seed == 2))  # ids are ordered by the second
        assert train.command(["--resume", parent.id, "--fork", "-q", f"seed={seed}"]) == 0
        fork = RunDir.find("@last")
        assert fork.facts()["parent"]["run"] == parent.id and fork.facts()["seed"] == seed
        ended[seed] = amounts_to(fork)["state"]
    assert ended[1] != ended[2], "another seed draws other numbers"
    straight = tiny_run("CartPole-v1:ppo")
    assert amounts_to(straight)["state"] == ended[1], "with the seed of its parent it is what that would have become"
    assert {path.name: path.read_bytes() for path in parent.checkpoints.iterdir()} == before
    step = parent.checkpoints.joinpath("last.ckpt").resolve().stem
    assert train.command(["--resume", parent.id, "--fork", "--checkpoint", step, "-q"]) == 0
    assert train.command(["--resume", parent.id, "--fork", "--checkpoint", "step=7", "-q"]) == 2
    assert f"{parent.id} has no checkpoint step=7; it has" in capsys.readouterr().err
    assert train.command(["--resume", parent.id, "seed=2"]) == 2, "only a fork may have another seed"
    assert train.command(["--resume", parent.id, "--fork", "n_envs=4"]) == 2
    assert train.command(words("--fork")) == 2 and "give both" in capsys.readouterr().err


def test_a_config_is_the_same_however_it_is_said():
    one, other = (train.parse_arguments(each).load() for each in (words(), words(seed=1)[::-1]))
    assert seed_group.key_of(to_plain(one)) == seed_group.key_of(to_plain(other)) and json.dumps(to_plain(one))
