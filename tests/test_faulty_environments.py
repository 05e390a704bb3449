"""Code of a user that goes wrong: one line with file and line, status failed, exit code 1 and no verdict anywhere."""

import errno
import json
import os
import re
from itertools import product

import gymnasium
import pytest
from playing import OTHERS
from snapshots import shown
from tiny_runs import TINY, tiny_run

from stride.agents.networks.actor_critic import ActorCritic
from stride.agents.trained.loading import load_run
from stride.commands import run_play, run_publish, train
from stride.envs_gym.answers import CHECKED_STEPS
from stride.envs_gym.blame import own_line
from stride.envs_gym.gym_env import GymEnv
from stride.inspector.overview import overview
from stride.inspector.runs import Runs
from stride.inspector.table import runs_table
from stride.runstore import checkpoint_set
from stride.runstore.run_dir import RunDir, list_runs
from stride.runstore.run_files import write_json

YAML = """
env_id: faulty_world:Faulty-v0
ppo: {description: goes wrong, hidden_dims: 4, max_timesteps: 64}
"""


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    (tmp_path / "Faulty.yaml").write_text(YAML)
    return tmp_path


@pytest.fixture
def trained(root, capsys):
    """Trains where the worlds go wrong after so many steps each: exit code, what stderr says, the run."""

    def training(what="", at=20, **changes):
        code = train.command(words(root, what, at, **changes))
        return code, capsys.readouterr().err, RunDir.find("@last")

    return training


def words(root, what=None, at=20, **changes):
    keys = {"engine": "eager", **TINY, **changes}
    if what is not None:
        keys["env_kwargs"] = f"{{what: {what!r}, at: {at}}}"
    return ["--config", str(root / "Faulty.yaml"), "-q", *(f"{key}={value}" for key, value in keys.items())]


def check_named(said, run, checkpoint=True):
    """One line on stderr, config.json, report.md and run.log of a failed run name the line of the user's own file."""
    assert len(said.splitlines()) == 1 and said.rstrip("\n").isprintable() and len(said) < 500, said
    go_on = "continue" if checkpoint else "no checkpoint yet, start again"
    end = f"; traceback in {run.run_log}; {go_on}: python train.py --resume {run.id}\n"
    line = said.removeprefix("error: ").removesuffix(end)
    assert re.search(r"\(.*faulty_world\.py:\d+\)$", line) and said.endswith(end), said
    facts, report = run.facts(), run.report.read_text()
    assert facts["status"] == "failed" and facts["failure"] == line and "outcome" not in facts
    assert "Traceback (most recent call last)" in run.run_log.read_text()
    assert line in report and f"--resume {run.id}" in report and "**Failed**" in report


STEPS = [
    *(f"{what}{place}" for what in ("raise", "exit", "interrupt") for place in ("", "@reset")),
    "raise@close", "exit@close", "refuse", "generator", "recurse", "mute", "colours", "reward text", "reward none",
    "reward pair", "over text", "over none", "over two", "obs words", "obs short", "obs none",
    "hang", "spin", "lock", "hang@reset",
]  # fmt: skip
LINE = (r"(faulty_world\.py):\d+", r"\1:<line>")


@pytest.mark.parametrize("what", STEPS)
def test_what_goes_wrong_in_training_is_one_line_and_a_failed_run(what, root, trained, snapshot):
    early = what == "over none"  # types are looked at in the first steps
    limit = {"step_timeout": 0.2} if what.startswith(("hang", "spin", "lock")) else {}
    code, said, run = trained(what, 1 if early else 20, **limit)
    assert code == 1 and shown(said, LINE, *OTHERS) == snapshot
    check_named(said, run, checkpoint=not early)
    assert early or checkpoint_set.names(run.checkpoints)
    assert not list(root.rglob(".lock"))


@pytest.mark.parametrize("what", ["alarm", "go away"])
def test_an_alarm_or_another_folder_of_the_environment_is_not_ours(what, root, capsys, monkeypatch):
    monkeypatch.chdir(root)
    assert train.command(words(root, what)) == 0 and os.getcwd() == str(root)
    captured = capsys.readouterr()
    assert f" run=runs/{RunDir.find('@last').id}\n" in captured.out and not captured.err


def test_a_disk_without_room_for_the_verdict(trained, monkeypatch):
    """What can be made anew goes first: config.json says that the run failed, and why."""

    def write(path, data):
        if (path.parent / "metrics.mmap").exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_json(path, data)

    monkeypatch.setattr("stride.trainer_callbacks.failures.write_json", write)
    code, said, run = trained("raise")
    assert code == 1 and not (run.path / "metrics.mmap").exists()
    check_named(said, run)


@pytest.mark.parametrize("algo_id", ["ppo", "dqn", "dreamer"])
def test_more_actions_than_memory_holds(capsys, algo_id):
    what = ["-q", "env_kwargs={what: many actions}", "engine=eager"]
    assert train.command([f"faulty_world:Faulty-v0:{algo_id}", *what]) == 2
    assert "the environment has 1,000,000,000,000 actions: " in capsys.readouterr().err and not list_runs()


MAKING = ["raise@init", "exit@init", "interrupt@init", "colours@init", "no space", "zero", "zero actions"]


@pytest.mark.parametrize("what", MAKING)
def test_what_cannot_be_made_is_one_line_and_a_run_that_never_began(what, root, capsys, monkeypatch, snapshot):
    monkeypatch.setattr("faulty_world.Faulty.__init__.__defaults__", (what, 0))  # env_kwargs would be to blame
    assert train.command(words(root)) == 1 and len(list_runs()) == 1
    said, run = capsys.readouterr().err, RunDir.find("@last")
    assert shown(said, LINE, *OTHERS) == snapshot
    check_named(said, run, checkpoint=False)
    monkeypatch.setattr("faulty_world.Faulty.__init__.__defaults__", ("", 0))  # mended
    assert train.command(["--resume", "@last", "-q"]) == 0 and list_runs() == [run]
    facts = run.facts()
    assert facts["status"] == "finished" and not facts["failure"] and facts["goal"] is None
    assert "**Failed**" not in run.report.read_text() and "uncaught" in run.run_log.read_text()


SHORT = {"n_steps": 4, "eval_freq_epochs": 1}  # evaluated worlds live longer than those of the training
CLOSING = {"n_steps": 4, "eval_freq_epochs": 100, "max_timesteps": 16}
NUMBERS = [
    *((what, 13, SHORT, "step 5 of its episode 1 in the evaluation")
      for what in ("reward nan", "reward inf", "obs nan", "obs 1e300")),
    ("reward nan", 13, CLOSING, "step 5 of its episode 2 in the test of 100 episodes"),
    ("reward 1e38", 9, SHORT, "step 8 of its episode 1 in the evaluation"),  # a return of more than 32 bits
]  # fmt: skip


@pytest.mark.parametrize(("what", "at", "keys", "place"), NUMBERS)
def test_what_is_no_number_in_evaluation_counts_nothing(what, at, keys, place, trained):
    code, said, run = trained(what, at, **keys)
    part = {"reward 1e38": "return"}.get(what, "reward" if "reward" in what else "(last )?observation")
    word = "NaN" if "nan" in what else "infinity"
    line = rf"error: faulty_world:Faulty-v0: {part}: {word} of environment \d at {place}"
    assert code == 1 and re.match(line, said), said
    facts = run.facts()
    assert facts["status"] == "failed" and "outcome" not in facts and checkpoint_set.names(run.checkpoints)


def test_who_wants_no_stop_gets_no_verdict_either(trained):
    code, _, run = trained("reward nan", 13, **SHORT, max_timesteps=16, nan_guard="skip")
    outcome, log = run.facts()["outcome"], run.run_log.read_text()
    assert code == 0 and outcome["test_mean"] is None and not outcome["solved"]
    assert "in the evaluation, which does not count (nan_guard: skip)" in log and "in the test of 100" in log
    assert trained("reward nan", 13, **SHORT, max_timesteps=16, nan_guard="off")[0] == 0


PLAYING = ["reward nan", "reward text", "reward 1e38", "obs nan", "exit", "interrupt", "over text", "interrupt@close"]


def test_playing_and_publishing_name_it_and_count_nothing(trained, root, capsys, monkeypatch, snapshot):
    """A sound run, whose environment goes wrong afterwards; and a limit of a step's time changes none of its bits."""
    (_, _, run), (_, _, limited) = trained("", 0), trained("", 0, step_timeout=5)
    scores = [checkpoint_set.facts_of(sound.checkpoints / "last.ckpt")["score"] for sound in (run, limited)]
    assert scores[0] == scores[1]
    monkeypatch.setattr(run_play, "wait", lambda: None)
    facts, lines = run.facts(), []
    commands = (
        (run_play.command, ["--run-id", run.id, "--headless", "--episodes", "3", "--json"]),
        (run_play.command, ["--run-id", run.id, "--step-by-step", "--episodes", "2"]),
        (run_publish.command, ["--run-id", run.id, "--dry-run", str(root / "out")]),
    )
    for what, (command, arguments) in product([*PLAYING, "raise@init"], commands):
        facts["config"]["env_kwargs"] = {"what": what, "at": 0 if what.endswith("init") else 5}
        run.config_json.write_text(json.dumps(facts))
        assert command(arguments) == 1, (what, arguments)
        captured = capsys.readouterr()
        lines.append(f"{what}: {captured.err.splitlines()[-1]}")
        assert "mean" not in captured.out and not (root / "out").exists()
    assert shown("\n".join(lines), LINE) == snapshot


def test_a_process_that_dies_is_told_by_the_next_reader(root, capsys, monkeypatch):
    """os._exit cannot be caught: exit code 0 and no word, but who reads the run next says so."""
    if (child := os.fork()) == 0:
        train.command(words(root, "os exit"))
        os._exit(3)
    assert os.waitpid(child, 0)[1] == 0
    run = RunDir.find("@last")
    assert json.loads(run.config_json.read_text())["status"] == "running"
    line = f"{run.id} died: its process ended without a message after its checkpoint at 32 env steps"
    assert load_run(run.id).notes == (line,)
    monkeypatch.setenv("FAULTY", "mended")
    assert train.command(["--resume", run.id]) == 0
    assert line in capsys.readouterr().out and load_run(run.id).notes == ()


def test_after_the_first_steps_nothing_stands_between_a_world_and_its_loop():
    env = GymEnv("faulty_world:Faulty-v0", 2)
    env.reset(0)
    before = [function.__qualname__ for function in env._step_functions]
    for _ in range(CHECKED_STEPS):
        env.step(env.actions.example.repeat(2))
    assert before == ["with_checked_flags.<locals>.checked_step"] * 2
    assert env._step_functions == [world.step for world in env.envs]


# ---- whose line it is, and who else says that a run has failed

HERE = "test_faulty_environments.py"


class Torn(gymnasium.Wrapper):
    """A wrapper of the user's."""

    def step(self, action):
        raise KeyError("speed")


class Stubborn(ActorCritic):
    """A policy of the user's."""

    def act(self, *given):
        raise LookupError("no such head")


FAULTS = {
    "KeyError: 'speed'": {"env_wrappers": f"[{{id: '{__name__}:Torn'}}]"},
    "LookupError: no such head": {"policy": f"{__name__}:Stubborn", "engine": "eager"},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_of_the_users_goes_wrong_names_the_users_own_line(fault, capsys):
    run = tiny_run(**FAULTS[fault], exit_code=1)
    said = capsys.readouterr().err
    line = said.removeprefix("error: ").partition("; traceback in ")[0]
    assert fault in line and f"{HERE}:" in line and said.count("\n") == said.count(str(run.run_log)) == 1, said
    assert run.facts()["failure"] == line and line in run.report.read_text() and HERE in run.run_log.read_text()


def test_the_users_line_is_neither_ours_nor_a_librarys():
    with pytest.raises(ValueError) as of_a_library:
        gymnasium.spaces.Discrete(0)  # called from here
    assert HERE in own_line(of_a_library.value)
    error = ValueError("nobody raised it")
    assert own_line(error) == ""
    error.__cause__ = of_a_library.value
    assert HERE in own_line(error), "its cause was raised here"


def test_without_a_run_log_nobody_points_at_one(trained, monkeypatch):
    monkeypatch.setenv("STRIDE_NO_RUN_LOG", "1")
    _, said, run = trained("raise")
    assert "no traceback was kept: STRIDE_NO_RUN_LOG is set" in said and "run.log" not in run.report.read_text()


def test_inspector_player_and_resume_say_why(trained, capsys):
    _, said, run = trained("raise")
    runs, reason = Runs(), "ZeroDivisionError: the sky fell"
    (line,) = runs.page().lines
    assert line.status == "failed" and line.reason == run.facts()["failure"] and line.reason in said
    assert reason in runs_table(runs.page()) and reason in overview(runs.look_into(run.id))
    note = load_run(run.id).notes[-1]
    assert note.startswith(f"{run.id} failed: ") and reason in note
    assert train.command(["--resume", run.id]) == 1 and f"{run.id} failed: " in capsys.readouterr().out
