"""Seeds side by side: what stops the group stops each of its runs, and `group:NAME` goes on with all of them."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from refusals import refusal

from stride.commands import train
from stride.report.sinks import group_watchers
from stride.runstore.many import group_training
from stride.runstore.run_dir import list_runs
from stride.runstore.run_files import read_json
from stride.runstore.seed_group import GroupPlan, SeedPart, find_group, read_plan
from stride.utils.user_error import UserError
from tests.runstore.processes import alive, pids, python, until

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
write_json(run.config_json, {**facts, "ready": True})
while os.path.exists(words.get("until gone", "")):
    time.sleep(0.02)
outcome = {"test_mean": facts["seed"], "solved": True, "env_steps": 1, "test_episodes": 1}
write_json(run.config_json, {**facts, "status": "finished", "outcome": outcome})
print("solved")
"""


def plan_of(words, seeds):
    return GroupPlan((SeedPart(tuple(words), tuple(seeds)),))


def resume_seeds(program, selector, changes, cores):
    return group_training.resume_seeds(program, selector, changes, cores, group_watchers())


pytestmark = pytest.mark.usefixtures("root")


@pytest.fixture
def finished(program, capsys):
    """The name of a group of two that has finished."""
    assert group_training.train_all(program, plan_of(["max_timesteps=5", "1"], [1, 2]), 2, group_watchers()) == 0
    return find_group("group:" + re.search(r"group (\S+):", capsys.readouterr().out)[1])


@pytest.fixture
def program(tmp_path):
    (tmp_path / "training.py").write_text(TRAINING.replace("ROOT", repr(str(ROOT))))
    code = "import runpy, sys; sys.argv[1:] = [w for w in sys.argv[1:] if w != '--quiet']; runpy.run_path(%r)"
    return python(code % str(tmp_path / "training.py"))


def statuses():
    return {facts["seed"]: facts["status"] for facts in (read_json(run.config_json) for run in list_runs())}


def group_in_a_process(program, folder):
    """A group of three seeds that last while a file is there, two of them begun, and the process that leads it."""
    (folder / "lasts").touch()
    code = f"""
import sys; from stride.report.sinks import group_watchers
from stride.runstore.many.group_training import train_all
from stride.runstore.seed_group import SeedPart, GroupPlan
plan = GroupPlan((SeedPart(("until gone", {str(folder / "lasts")!r}), (1, 2, 3)),))
sys.exit(train_all({program!r}, plan, 2, group_watchers()))"""
    led = subprocess.Popen(python(code), cwd=ROOT, stdout=subprocess.PIPE, text=True)
    until(lambda: len(list_runs()) == 2 and all("ready" in read_json(run.config_json) for run in list_runs()))
    return led


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_what_stops_the_group_saves_every_run_and_it_goes_on(number, program, tmp_path, capsys):
    led = group_in_a_process(program, tmp_path)
    os.kill(led.pid, number)
    out = led.communicate(timeout=60)[0]
    assert led.returncode == 128 + number and statuses() == {1: "interrupted", 2: "interrupted"}
    assert out.count("saved") == 2
    name = re.fullmatch(r"  continue: python train.py --resume (group:\S+)", out.strip().splitlines()[-1])[1]
    (tmp_path / "lasts").unlink()
    assert resume_seeds(program, name, (), 2) == 0  # the third, which it never came to, is begun
    assert statuses() == {1: "finished", 2: "finished", 3: "finished"}
    assert "3 runs: mean 2.00" in capsys.readouterr().out


def test_a_parent_that_is_dead_already_is_noticed(tmp_path):
    """The child is forked, its parent dies, and only then it asks to be told of its parent's death."""
    code = f"""
import os, time
from stride.runstore.many import parent_death
parent, tie = os.getpid(), parent_death.tied()
if os.fork() == 0:
    while os.getppid() == parent: time.sleep(0.01)
    open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
    tie()
    open({str(tmp_path / "alive")!r}, "w")
os._exit(0)"""
    subprocess.run(python(code), cwd=ROOT, check=True)
    until(lambda: pids(tmp_path / "pid") and not alive(*pids(tmp_path / "pid")))
    assert not (tmp_path / "alive").exists()


def test_an_unknown_group_is_one_line_with_the_nearest(finished, capsys):
    near = finished[:-1] + "x"
    assert train.command(["--resume", f"group:{near}"]) == 2
    line = capsys.readouterr().err
    assert f"no group {near!r}" in line and f"did you mean {finished}?" in line and len(line.splitlines()) == 1
    for wrong in ("group:", "group:../../x", "group:" + "9" * 5000):
        refusal(find_group, wrong)
    assert train.command(["--resume", f"group:{finished}", "--checkpoint", "best"]) == 2


def test_a_group_is_given_more_to_do_and_remembers_it(program, finished, capsys):
    assert find_group("@last-group") == finished
    with pytest.raises(UserError, match="is finished"):
        resume_seeds(program, f"group:{finished}", ["gamma=0.9"], 2)
    assert resume_seeds(program, f"group:{finished}", ["max_timesteps=9"], 2) == 0
    assert capsys.readouterr().out.count("solved\n") >= 2
    assert read_plan(finished) == plan_of(("1", "max_timesteps=9"), (1, 2))
    words = ["CartPole-v1:ppo", "max_timesteps=1500", "--policy_lr=1e-3", "gamma=0.9"]
    changed = group_training.changed(words, ["max_timesteps=3000", "policy_lr=2e-3"])
    assert changed == ["CartPole-v1:ppo", "gamma=0.9", "max_timesteps=3000", "policy_lr=2e-3"], "each key once"
