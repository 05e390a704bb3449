"""An environment of a user that goes wrong: one line with file and line, status failed, exit code 1, and no verdict."""

import errno
import json
import os
import re
import resource

import pytest
from faulty_world import LEAKED
from tiny_runs import TINY

from stride.agents.trained.loading import load_run
from stride.commands import run_play, run_publish, train
from stride.envs_gym.answers import FIRST
from stride.envs_gym.gym_env import GymEnv
from stride.runstore import checkpoint_set
from stride.runstore.run_dir import RunDir, list_runs
from stride.runstore.run_files import read_json, write_json

SHORT = {"n_steps": 4, "eval_freq_epochs": 1}  # evaluated worlds live longer than those of the training
YAML = """
env_id: faulty_world:Faulty-v0
ppo: {description: goes wrong, hidden_dims: 4, max_timesteps: 64}
"""


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    (tmp_path / "Faulty.yaml").write_text(YAML)
    return tmp_path


def told_where(said, run, checkpoint=True):
    """Whether line, config.json, report.md and run.log of a failed run name the line of the user's own file."""
    go_on = "continue" if checkpoint else "no checkpoint yet, from the beginning"
    end = f"; traceback in {run.run_log}; {go_on}: python train.py --resume {run.id}\n"
    line = said.removeprefix("error: ").removesuffix(end)
    facts, report = read_json(run.config_json), run.report.read_text()
    named = re.search(r"\(.*faulty_world\.py:\d+\)$", line) is not None and said.endswith(end)
    told = facts["status"] == "failed" and facts["failure"] == line
    logged = "Traceback (most recent call last)" in run.run_log.read_text()
    return named and told and logged and line in report and f"--resume {run.id}" in report and "**Failed**" in report


def words(root, **changes):
    keys = {"engine": "eager", **TINY, **changes}
    return ["--config", str(root / "Faulty.yaml"), "-q", *(f"{key}={value}" for key, value in keys.items())]


def trained(root, capsys, what, at=20, **changes):
    """Exit code, and what was said on stderr, of a training whose worlds go wrong after so many steps each."""
    code = train.command([*words(root, **changes), f"env_kwargs={{what: {what!r}, at: {at}}}"])
    return code, capsys.readouterr().err


STEPS = [  # (what goes wrong, a fragment of the line)
    ("raise", "ZeroDivisionError: the sky fell"),
    ("raise@reset", "ZeroDivisionError: the sky fell"),
    ("exit", "SystemExit: 0"),
    ("exit@reset", "SystemExit: 0"),
    ("interrupt", "KeyboardInterrupt"),
    ("interrupt@reset", "KeyboardInterrupt"),
    ("refuse", "Refusal: no"),
    ("generator", "GeneratorExit"),
    ("recurse", "RecursionError"),
    ("mute", "MuteError: <exception str() failed>"),
    ("colours", r"ValueError: one two \x1b[31mthree\x07xxx"),
    ("reward text", "its reward is '1' (str), not a number"),
    ("reward none", "its reward is None (NoneType), not a number"),
    ("reward pair", "its reward is [1.0, 2.0] (list), not a number"),
    ("over text", "terminated is 'False' (str), not true or false"),
    ("obs words", "observation <U4[] does not fit float32[3]"),
    ("obs short", "observation float32[2] does not fit float32[3]"),
    ("obs none", "observation object[] does not fit float32[3]"),
    ("exit@close", "SystemExit: 0"),
    ("raise@close", "ZeroDivisionError: the sky fell"),
]


@pytest.mark.parametrize(("what", "fragment"), STEPS, ids=[what for what, _ in STEPS])
def test_what_goes_wrong_in_training_is_one_line_and_a_failed_run(what, fragment, root, capsys):
    code, said = trained(root, capsys, what)
    assert code == 1 and len(said.splitlines()) == 1 and said.rstrip("\n").isprintable(), said
    assert re.match(r"error: faulty_world:Faulty-v0, world \d: ", said) and fragment in said and len(said) < 500
    assert told_where(said, RunDir.find("@last")), said
    assert "outcome" not in RunDir.find("@last").facts()
    assert checkpoint_set.names(RunDir.find("@last").checkpoints) and not list(root.rglob(".lock"))


@pytest.fixture
def few_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    yield
    while LEAKED:
        os.close(LEAKED.pop())
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_world_that_takes_all_descriptors(root, capsys, few_descriptors):
    code, said = trained(root, capsys, "leak")
    run = RunDir.find("@last")
    line = rf"error: Too many open files \(.*\): the checkpoints written before are whole; .* --resume {run.id}; .*\n"
    assert code == 1 and re.fullmatch(line, said) and run.facts()["status"] == "failed"
    assert not list(root.rglob(".lock")) and "**Failed**" in run.report.read_text()


def test_a_world_that_changes_the_folder(root, capsys, monkeypatch):
    monkeypatch.chdir(root)
    assert train.command([*words(root), "env_kwargs={what: go away, at: 20}"]) == 0
    assert f" run=runs/{RunDir.find('@last').id}\n" in capsys.readouterr().out and os.getcwd() == str(root)


def test_a_disk_without_room_for_the_verdict(root, capsys, monkeypatch):
    """What can be made anew goes first: config.json says that the run failed, and why."""

    def write(path, data):
        if (path.parent / "metrics.mmap").exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_json(path, data)

    monkeypatch.setattr("stride.trainer_callbacks.failures.write_json", write)
    code, said = trained(root, capsys, "raise")
    run = RunDir.find("@last")
    assert code == 1 and told_where(said, run)
    assert not (run.path / "metrics.mmap").exists()


@pytest.mark.parametrize("algo_id", ["ppo", "dqn", "dreamer"])
def test_more_actions_than_memory_holds(root, capsys, algo_id):
    what = ["-q", "env_kwargs={what: many actions}", "engine=eager"]
    assert train.command([f"faulty_world:Faulty-v0:{algo_id}", *what]) == 2
    assert "the environment has 1,000,000,000,000 actions: " in capsys.readouterr().err and not list_runs()


def test_types_are_looked_at_in_the_first_steps_too(root, capsys):
    code, said = trained(root, capsys, "over none", 1)
    assert code == 1 and "terminated is None (NoneType), not true or false" in said


MAKING = [
    ("raise@init", "ZeroDivisionError: the sky fell"),
    ("exit@init", "SystemExit: 0"),
    ("interrupt@init", "KeyboardInterrupt"),
    ("colours@init", r"\x1b[31m"),
    ("no space", "'Faulty' object has no attribute 'observation_space'"),
    ("zero", "observation space Box([], [], (0,), float32) is empty"),
    ("zero actions", "action space Box([], [], (0,), float32) is empty"),
    ("exit@close", "SystemExit: 0"),
]


@pytest.mark.parametrize(("what", "fragment"), MAKING, ids=[what for what, _ in MAKING])
def test_what_cannot_be_made_is_one_line_and_a_run_that_never_began(what, fragment, root, capsys, monkeypatch):
    monkeypatch.setattr("faulty_world.Faulty.__init__.__defaults__", (what, 0))  # env_kwargs would be to blame
    assert train.command(words(root)) == 1 and len(list_runs()) == 1
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1 and said.startswith("error: faulty_world:Faulty-v0") and fragment in said
    run = RunDir.find("@last")
    assert told_where(said, run, checkpoint=False), said
    monkeypatch.setattr("faulty_world.Faulty.__init__.__defaults__", ("", 0))  # mended
    assert train.command(["--resume", "@last", "-q"]) == 0 and list_runs() == [run]
    facts = read_json(run.config_json)
    assert facts["status"] == "finished" and not facts["failure"] and facts["goal"] is None
    assert "**Failed**" not in run.report.read_text() and "uncaught" in run.run_log.read_text()


def test_a_module_that_cannot_be_imported_names_its_line(root, capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(root))
    for name, text, fragment in (
        ("leaves", "import sys\nsys.exit(0)", "SystemExit: 0 ("),
        ("torn", "x = (", "torn.py"),
    ):
        (root / f"{name}.py").write_text(text)
        assert train.command(["CartPole-v1:ppo", "-q", f"env_id={name}:X-v0"]) == 2
        said = capsys.readouterr().err
        assert (
            said.startswith(f"error: {name} cannot be imported: ") and fragment in said and len(said.splitlines()) == 1
        )


NUMBERS = ["reward nan", "reward inf", "reward 1e300", "obs nan", "obs inf", "obs 1e300"]


@pytest.mark.parametrize("what", NUMBERS)
def test_what_is_no_number_in_evaluation_counts_nothing(what, root, capsys):
    code, said = trained(root, capsys, what, 13, **SHORT)
    word = "NaN" if "nan" in what else "infinity"
    place = rf"(reward|observation|last observation): {word} of environment \d at step 5 of its episode 1"
    assert code == 1 and re.search(rf"^error: faulty_world:Faulty-v0: {place} in the evaluation", said), said
    run = RunDir.find("@last")
    assert read_json(run.config_json)["status"] == "failed" and checkpoint_set.names(run.checkpoints)


def test_the_closing_test_gives_no_verdict_of_what_is_no_number(root, capsys):
    code, said = trained(root, capsys, "reward nan", 13, n_steps=4, eval_freq_epochs=100, max_timesteps=16)
    assert code == 1 and "reward: NaN of environment 0 at step 5 of its episode 2 in the test of 100 episodes" in said
    assert "outcome" not in read_json(RunDir.find("@last").config_json)


def test_who_wants_no_stop_gets_no_verdict_either(root, capsys):
    code, _ = trained(root, capsys, "reward nan", 13, **SHORT, max_timesteps=16, nan_guard="skip")
    outcome = read_json(RunDir.find("@last").config_json)["outcome"]
    assert code == 0 and outcome["test_mean"] is None and not outcome["solved"]
    log = RunDir.find("@last").run_log.read_text()
    assert "in the evaluation; nothing of it counts (nan_guard: skip)" in log and "in the test of 100" in log
    assert trained(root, capsys, "reward nan", 13, **SHORT, max_timesteps=16, nan_guard="off")[0] == 0


def test_returns_of_more_than_32_bits_are_named(root, capsys):
    code, said = trained(root, capsys, "reward 1e38", 9, **SHORT)
    assert code == 1 and "return: infinity of environment 0 at step 8 of its episode 1 in the evaluation" in said


@pytest.fixture
def healthy(root, capsys):
    assert trained(root, capsys, "", 0)[0] == 0
    return RunDir.find("@last")


@pytest.mark.parametrize(("what", "fragment"), [
    ("reward nan", "reward: NaN"), ("obs nan", "observation: NaN"), ("reward text", "its reward is '1'"),
    ("reward 1e38", "return: infinity"), ("exit", "SystemExit: 0"), ("interrupt", "KeyboardInterrupt"),
    ("over text", "terminated is 'False'"), ("interrupt@close", "KeyboardInterrupt"), ("raise@init", "the sky fell"),
])  # fmt: skip
def test_playing_and_publishing_name_it_and_count_nothing(what, fragment, healthy, root, capsys, monkeypatch):
    at = 0 if what.endswith("init") else 5
    load_run(healthy.id)
    facts = read_json(healthy.config_json)
    facts["config"]["env_kwargs"] = {"what": what, "at": at}
    healthy.config_json.write_text(json.dumps(facts))
    for command, words in (
        (run_play.command, ["--headless", "--episodes", "3", "--json"]),
        (run_play.command, ["--step-by-step", "--episodes", "2"]),
        (run_publish.command, ["--run-id", healthy.id, "--dry-run", str(root / "out")]),
    ):
        monkeypatch.setattr(run_play, "wait", lambda: None)
        code = command(words)
        captured = capsys.readouterr()
        assert code == 1 and len(captured.err.splitlines()[-1:]) == 1, captured.err
        line = captured.err.splitlines()[-1]
        assert line.startswith("error: faulty_world:Faulty-v0") and fragment in line, line
        assert "mean" not in captured.out and not (root / "out").exists()


def test_an_alarm_of_the_environment_is_no_signal_of_ours(root, capsys):
    code, said = trained(root, capsys, "alarm")
    assert (code, said) == (0, "")


@pytest.mark.parametrize("what", ["hang", "spin", "lock", "hang@reset"])
def test_a_world_that_hangs_is_named_with_its_line(what, root, capsys):
    code, said = trained(root, capsys, what, step_timeout=0.2)
    assert code == 1 and re.match(r"error: faulty_world:Faulty-v0, world \d: no answer for 0.2 seconds", said), said
    assert told_where(said, RunDir.find("@last")), said


def test_a_limit_changes_no_bit(root, capsys):
    assert trained(root, capsys, "", 0)[0] == 0
    plain = RunDir.find("@last")
    assert trained(root, capsys, "", 0, step_timeout=5)[0] == 0
    sizes = [checkpoint_set.facts_of(run.checkpoints / "last.ckpt")["score"] for run in (plain, RunDir.find("@last"))]
    assert sizes[0] == sizes[1]


def test_a_process_that_dies_is_told_by_the_next_reader(root, capsys, monkeypatch):
    """os._exit cannot be caught: exit code 0 and no word, but who reads the run next says so."""
    if (child := os.fork()) == 0:
        train.command([*words(root), "env_kwargs={what: os exit, at: 20}"])
        os._exit(3)
    assert os.waitpid(child, 0)[1] == 0
    run = RunDir.find("@last")
    assert read_json(run.config_json)["status"] == "running"
    line = f"{run.id} died: its process ended without a word after its checkpoint at 32 env steps"
    assert load_run(run.id).notes == (line,)
    monkeypatch.setenv("FAULTY", "mended")
    assert train.command(["--resume", run.id]) == 0
    assert line in capsys.readouterr().out and load_run(run.id).notes == ()


def test_after_the_first_steps_nothing_stands_between_a_world_and_its_loop():
    env = GymEnv("faulty_world:Faulty-v0", 2)
    env.reset(0)
    before = [function.__qualname__ for function in env._step_functions]
    for _ in range(FIRST):
        env.step(env.actions.example.repeat(2))
    assert before == ["with_checked_flags.<locals>.checked_step"] * 2
    assert env._step_functions == [world.step for world in env.envs]
