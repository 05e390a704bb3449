"""Worlds in worker processes: failures named, nobody left behind; that their bits are GymEnv's is in test_carriers."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from async_worlds import EXIT, FINE, HANG, RAISE, SLOW
from commands import ROOT

from stride.envs_gym.async_env import AsyncEnv
from stride.envs_gym.gym_env import EnvError
from stride.utils.user_error import UserError

TROUBLE = "async_worlds:stride-test/Trouble-v0"
ALL_FINE = torch.full((4,), FINE)


@pytest.fixture
def trouble():
    """Makes worlds that misbehave when told to, already reset, and closes them afterwards."""
    made = []

    def make(num_envs=4, **options):
        made.append(AsyncEnv(TROUBLE, num_envs, **{"workers": 2, **options}))
        made[-1].reset(0)
        return made[-1]

    yield make
    for env in made:
        env.close()


def alive(pid):
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def all_gone(pids, seconds=60.0):
    deadline = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(alive, pids))


def test_a_world_that_raises_is_named_and_its_traceback_is_told(trouble):
    env = trouble()
    with pytest.raises(EnvError, match=r"Trouble-v0, world 2 \(worker 1\): ZeroDivisionError: the sky fell") as caught:
        env.step(torch.tensor([FINE, FINE, RAISE, FINE]))
    assert "async_worlds.py" in str(caught.value.__cause__) and "in step" in str(caught.value.__cause__)
    with pytest.raises(EnvError, match=r"workers of .* are gone: .*world 2"):
        env.step(ALL_FINE)
    assert all_gone(env.pids)


def test_a_world_that_hangs_is_named_with_its_line_after_the_timeout(trouble):
    env = trouble(timeout=2.0)
    line = r"worker 1 .*worlds 2 to 3\): no answer for 2 seconds in world 3 \(.*async_worlds\.py:\d+\)"
    with pytest.raises(EnvError, match=line):
        env.step(torch.tensor([FINE, FINE, FINE, HANG]))
    assert all_gone(env.pids)


def test_the_timeout_is_for_one_world_and_not_for_all_of_a_worker(trouble):
    step = trouble(num_envs=10, workers=1, timeout=2.0).step(torch.full((10,), SLOW))  # 2.5 seconds together
    assert step.obs.flatten().tolist() == [1] * 10


def kill_in_a_step(env):
    while env._pool._pulse[1, 0] != 3:
        time.sleep(0.01)
    os.kill(env.pids[1], signal.SIGKILL)


def test_a_worker_that_is_killed_in_a_step_is_named_with_its_signal(trouble):
    env = trouble()
    threading.Thread(target=kill_in_a_step, args=(env,), daemon=True).start()
    with pytest.raises(EnvError, match=r"worker 1 .*the worker was killed by SIGKILL in world 3"):
        env.step(torch.tensor([FINE, FINE, FINE, HANG]))
    assert all_gone(env.pids)


def test_a_worker_that_is_lost_between_steps_or_ends_itself_is_named(trouble):
    env = trouble()
    os.kill(env.pids[0], signal.SIGKILL)
    assert all_gone(env.pids[:1])
    with pytest.raises(EnvError, match=r"worker 0 .*killed by SIGKILL"):
        env.step(ALL_FINE)
    with pytest.raises(EnvError, match=r"worker 0 .*ended with exit code 3 in world 1"):
        trouble().step(torch.tensor([FINE, EXIT, FINE, FINE]))


def test_worlds_that_only_a_worker_cannot_build(monkeypatch):
    monkeypatch.setenv("STRIDE_TEST_PARENT", str(os.getpid()))
    with pytest.raises(EnvError, match=r"world 0 \(worker 0\): ZeroDivisionError: no worker can build me"):
        AsyncEnv(TROUBLE, 2, {"broken": True}, workers=1)


PARENT = f"""
import sys, threading, time, torch
from stride.envs_gym.async_env import AsyncEnv
if __name__ == "__main__":
    env = AsyncEnv("{TROUBLE}", 2, workers=2)
    env.reset(0)
    hanging = lambda: env.step(torch.tensor([{HANG}, {FINE}]))
    threading.Thread(target=hanging, daemon=True).start()
    while env._pool._pulse[0, 1] < 3:  # built, reset, in its step
        time.sleep(0.01)
    print(*env.pids, flush=True)
    if sys.argv[1] == "wait":
        time.sleep(1000)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("how", ["wait", "leave"])
def test_no_orphans_when_the_parent_is_killed_or_forgets_to_close(how, tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    process = subprocess.Popen([sys.executable, script, how], env=environment, stdout=subprocess.PIPE, text=True)
    pids = [int(word) for word in process.stdout.readline().split()]
    assert len(pids) == 2
    if how == "wait":
        assert all(map(alive, pids))
        process.kill()
    assert process.wait(60) == (-signal.SIGKILL if how == "wait" else 0)
    assert all_gone(pids)  # the one that hangs in a step as well


def test_closing_ends_the_workers_and_so_does_letting_go(trouble):
    env = trouble()
    env.close(), env.close()
    assert all_gone(env.pids)
    with pytest.raises(EnvError, match="was closed"):
        env.step(ALL_FINE)
    other = AsyncEnv(TROUBLE, 2, workers=2)
    pids = other.pids
    del other
    assert all_gone(pids)


def test_misuse_is_one_clear_error():
    with pytest.raises(UserError, match="num_envs"):
        AsyncEnv(TROUBLE, 0)
    env = AsyncEnv(TROUBLE, 2, workers=8)
    assert env.workers == len(env.pids) == 2
    with pytest.raises(UserError, match="reset before the first step"):
        env.step(torch.zeros(2, dtype=torch.int64))
    env.reset(0)
    with pytest.raises(ValueError, match=r"takes actions torch.int64\[2\], got torch.float32\[2\]"):
        env.step(torch.zeros(2))
    assert env.reset(1).shape == (2, 1)
    assert env.step(torch.zeros(2, dtype=torch.int64)).obs.flatten().tolist() == [1, 1]
    env.close()
