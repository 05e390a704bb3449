"""Seeds side by side: what stops the group stops each of its runs, and `group:NAME` goes on with all of them."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stride.commands import train
from stride.report.sinks import group_watchers
from stride.runstore.many import group_training
from stride.runstore.run_dir import RunDir, list_runs
from stride.runstore.run_files import read_json
from stride.runstore.seed_group import GroupPlan, SeedPart, find_group, members, read_plan
from stride.utils.user_error import UserError

ROOT = Path(__file__).resolve().parents[2]
TRAINING = """
import json, os, signal, sys, time
sys.path.insert(0, ROOT)
from stride.utils.durable_file import write_json
from stride.runstore.run_dir import RunDir
from stride.runstore.run_files import read_json
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if "--resume" in words:
    run = RunDir.find(words["--resume"])
else:
    run = RunDir.create("Fake-v0", "ppo", int(words["--seed"]), {
        "env_id": "Fake-v0", "variant": "ppo", "seed": int(words["--seed"]), "group": words["--group"],
        "status": "running", "pid": os.getpid()})
facts = read_json(run.config_json)
def stop(number, frame):
    write_json(run.config_json, {**facts, "status": "interrupted"})
    print("saved")
    sys.exit(128 + number)
signal.signal(signal.SIGTERM, stop)
while os.path.exists(words.get("until gone", "")):
    time.sleep(0.02)
outcome = {"test_mean": facts["seed"], "solved": True, "env_steps": 1, "test_episodes": 1}
write_json(run.config_json, {**facts, "status": "finished", "outcome": outcome})
print("solved")
"""


def train_seeds(program, words, seeds, workers):
    return group_training.train_all(program, plan_of(words, seeds), workers, group_watchers())


def plan_of(words, seeds):
    return GroupPlan((SeedPart(tuple(words), tuple(seeds)),))


def resume_seeds(program, selector, changes, cores):
    return group_training.resume_seeds(program, selector, changes, cores, group_watchers())


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    return tmp_path


@pytest.fixture
def program(root):
    (root / "training.py").write_text(TRAINING.replace("ROOT", repr(str(ROOT))))
    code = "import runpy, sys; sys.argv[1:] = [w for w in sys.argv[1:] if w != '--quiet']; runpy.run_path(%r)"
    return [sys.executable, "-c", code % str(root / "training.py")]


def statuses():
    return {facts["seed"]: facts["status"] for facts in (read_json(run.config_json) for run in list_runs())}


def until(holds, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_group_that_finishes_is_summed_up(program, capsys):
    assert train_seeds(program, ["a", "1"], [3, 5], 2) == 0
    out = capsys.readouterr().out
    assert "2 runs: mean 4.00" in out and "continue:" not in out and statuses() == {3: "finished", 5: "finished"}
    name = re.search(r"group (\S+):", out)[1]
    assert read_plan(name) == plan_of(("a", "1"), (3, 5)) and len(members(name)) == 2
    assert resume_seeds(program, f"group:{name}", (), 2) == 0
    assert "every run is finished" in capsys.readouterr().out


def group_in_a_process(program, root, workers):
    """A group of three seeds that last while a file is there, begun, and the process that leads it."""
    (root / "lasts").touch()
    code = (
        "import sys; from stride.report.sinks import group_watchers\n"
        "from stride.runstore.many.group_training import train_all\n"
        "from stride.runstore.seed_group import SeedPart, GroupPlan\n"
    )
    words = f"['until gone', {str(root / 'lasts')!r}]"
    code += f"plan = GroupPlan((SeedPart(tuple({words}), (1, 2, 3)),))\n"
    code += f"sys.exit(train_all({program!r}, plan, {workers}, group_watchers()))"
    led = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    until(lambda: len(list_runs()) == workers and all("pid" in read_json(r.config_json) for r in list_runs()))
    time.sleep(0.1)  # their handlers are there
    return led


def living(pids):
    return [pid for pid in pids if os.path.exists(f"/proc/{pid}") and "Z" not in Path(f"/proc/{pid}/stat").read_text()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_what_stops_the_group_saves_every_run_and_it_goes_on(number, program, root, capsys):
    led = group_in_a_process(program, root, 2)
    os.kill(led.pid, number)
    said = led.communicate(timeout=20)[0]
    assert led.returncode == 128 + number and statuses() == {1: "interrupted", 2: "interrupted"}
    assert said.count("saved") == 2
    last = said.strip().splitlines()[-1]
    name = re.fullmatch(r"  continue: python train.py --resume (group:\S+)", last)[1]
    (root / "lasts").unlink()
    assert resume_seeds(program, name, (), 2) == 0  # the third, which it never came to, is begun
    assert statuses() == {1: "finished", 2: "finished", 3: "finished"}
    assert "3 runs: mean 2.00" in capsys.readouterr().out


def test_the_group_dies_with_its_parent(program, root):
    led = group_in_a_process(program, root, 2)
    pids = [read_json(run.config_json)["pid"] for run in list_runs()]
    led.kill()
    led.communicate()
    until(lambda: not living(pids))
    assert statuses() == {1: "interrupted", 2: "interrupted"}


def test_a_parent_that_is_dead_already_is_noticed(root):
    """The child is forked, its parent dies, and only then it asks to be told of its parent's death."""
    code = f"""
import os, time
from stride.runstore.many import parent_death
parent, tie = os.getpid(), parent_death.tied()
if os.fork() == 0:
    while os.getppid() == parent: time.sleep(0.01)
    open({str(root / "here")!r}, "w")
    tie()
    open({str(root / "alive")!r}, "w")
os._exit(0)"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    until((root / "here").exists)
    time.sleep(0.2)
    assert not (root / "alive").exists()


def test_an_unknown_group_is_one_line_with_the_nearest(program, root, capsys):
    train_seeds(program, ["a", "1"], [1, 2], 2)
    name = find_group("group:" + re.search(r"group (\S+):", capsys.readouterr().out)[1])
    near = name[:-1] + "x"
    assert train.command(["--resume", f"group:{near}"]) == 2
    said = capsys.readouterr().err
    assert f"no group {near!r}" in said and f"did you mean {name}?" in said and len(said.splitlines()) == 1
    for wrong in ("group:", "group:../../x", "group:" + "9" * 5000):
        with pytest.raises(UserError) as caught:
            find_group(wrong)
        assert len(str(caught.value)) < 400
    assert train.command(["--resume", f"group:{name}", "--checkpoint", "best"]) == 2


def test_a_damaged_run_harms_no_group(program, capsys):
    train_seeds(program, ["a", "1"], [1, 2], 2)
    RunDir.create("Broken-v0", "ppo", 9, {}).config_json.write_text("{")
    name = find_group("group:" + re.search(r"group (\S+):", capsys.readouterr().out)[1])
    assert resume_seeds(program, f"group:{name}", (), 1) == 0 and "2 runs: mean 1.50" in capsys.readouterr().out


def test_a_seed_that_was_never_begun_takes_each_key_once():
    words = ["CartPole-v1:ppo", "max_timesteps=1500", "--policy_lr=1e-3", "gamma=0.9"]
    told = group_training.changed(words, ["max_timesteps=3000", "policy_lr=2e-3"])
    assert told == ["CartPole-v1:ppo", "gamma=0.9", "max_timesteps=3000", "policy_lr=2e-3"]


def test_a_group_is_given_more_to_do_and_remembers_it(program, capsys):
    assert train_seeds(program, ["max_timesteps=5", "1"], [1, 2], 2) == 0
    name = find_group("@last-group")
    with pytest.raises(UserError, match="is finished"):
        resume_seeds(program, f"group:{name}", ["gamma=0.9"], 2)
    capsys.readouterr()
    assert resume_seeds(program, f"group:{name}", ["max_timesteps=9"], 2) == 0
    assert capsys.readouterr().out.count("solved\n") >= 2 and read_plan(name) == plan_of(
        ("1", "max_timesteps=9"), (1, 2)
    )
