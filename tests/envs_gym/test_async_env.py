"""Worlds in worker processes: when they are chosen, failures named, nobody left behind; test_carriers compares bits."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from multiprocessing import forkserver, popen_forkserver

import gymnasium
import pytest
import torch
from async_worlds import EXIT, FINE, HANG, RAISE, SECONDS, SLOW, Slow
from commands import ROOT, run_command
from playing import refused
from tiny_runs import tiny_run

from stride.commands.train_opening import for_debugger
from stride.config.loader import load_config
from stride.config.schema import Config
from stride.envs_gym import workers
from stride.envs_gym.async_env import MAX_REPLACEMENTS, AsyncEnv
from stride.envs_gym.doom import DoomWorld
from stride.envs_gym.gym_env import EnvError
from stride.envs_gym.workers import choose_workers, step_cost, workers_of
from stride.utils.places import PROJECT
from stride.utils.user_error import UserError
from tests.runstore.processes import alive, until

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


def until_gone(pids):
    until(lambda: not any(map(alive, pids)))


def test_a_world_that_raises_is_named_and_its_traceback_is_told(trouble):
    env = trouble()
    with pytest.raises(
        EnvError, match=r"Trouble-v0, environment 2 \(worker 1\): ZeroDivisionError: the sky fell"
    ) as caught:
        env.step(torch.tensor([FINE, FINE, RAISE, FINE]))
    assert "async_worlds.py" in str(caught.value.__cause__) and "in step" in str(caught.value.__cause__)
    with pytest.raises(EnvError, match=r"workers of .* are gone: .*environment 2"):
        env.step(ALL_FINE)
    until_gone(env.pids)


def test_a_world_that_hangs_is_named_with_its_line_after_the_timeout(trouble):
    env = trouble(timeout=2.0)
    line = r"worker 1 .*environments 2 to 3\): no answer for 2 seconds in environment 3 \(.*async_worlds\.py:\d+\)"
    with pytest.raises(EnvError, match=line):
        env.step(torch.tensor([FINE, FINE, FINE, HANG]))
    until_gone(env.pids)


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
    with pytest.raises(EnvError, match=r"worker 1 .*the worker was killed by SIGKILL in environment 3"):
        env.step(torch.tensor([FINE, FINE, FINE, HANG]))
    until_gone(env.pids)


def test_a_worker_that_is_lost_between_steps_or_ends_itself_is_named(trouble):
    env = trouble()
    os.kill(env.pids[0], signal.SIGKILL)
    until_gone(env.pids[:1])
    with pytest.raises(EnvError, match=r"worker 0 .*killed by SIGKILL"):
        env.step(ALL_FINE)
    with pytest.raises(EnvError, match=r"worker 0 .*ended with exit code 3 in environment 1"):
        trouble().step(torch.tensor([FINE, EXIT, FINE, FINE]))


def test_worlds_that_only_a_worker_cannot_build(monkeypatch):
    monkeypatch.setenv("STRIDE_TEST_PARENT", str(os.getpid()))
    with pytest.raises(EnvError, match=r"environment 0 \(worker 0\): ZeroDivisionError: no worker can build me"):
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
    until_gone(pids)  # the one that hangs in a step as well


def test_closing_ends_the_workers_and_so_does_letting_go(trouble):
    env = trouble()
    env.close(), env.close()
    until_gone(env.pids)
    with pytest.raises(EnvError, match="was closed"):
        env.step(ALL_FINE)
    other = AsyncEnv(TROUBLE, 2, workers=2)
    pids = other.pids
    del other
    until_gone(pids)


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
    env.close()


# ---- who steps them: the choice and what it says, the same bits, and a process that is lost

WALK = "async_worlds:stride-test/Slow-v0"


@pytest.fixture
def machine(monkeypatch):
    """Of four cores, on which a step takes as long as is said."""

    def stepping(seconds, cores=4):
        monkeypatch.setattr(workers, "cores", lambda: cores)
        monkeypatch.setattr(workers, "step_cost", lambda config: seconds)

    return stepping


@pytest.mark.parametrize(("seconds", "cores", "keys", "number", "reason"), [
    (0.013, 4, {}, 4, "a step takes 13 ms; processes are faster from 0.5 ms"),
    (0.013, 4, {"n_envs": 3}, 3, "a step takes 13 ms"),
    (0.00003, 4, {}, 0, "a step takes 0.03 ms"),
    (0.013, 1, {}, 0, "one core"),
    (0.013, 4, {"n_envs": 1}, 0, "one environment"),
    (0.0, 4, {"workers": 16}, 8, "as configured"),  # no process is without a world
    (0.0, 4, {"workers": 0}, 0, "as configured"),
])  # fmt: skip
def test_auto_takes_a_process_a_core_where_a_step_is_long(seconds, cores, keys, number, reason, machine):
    machine(seconds, cores)
    choice = choose_workers(Config(**{"env_id": WALK, "n_envs": 8, **keys}))
    assert choice.number == number and reason in choice.reason


@pytest.mark.parametrize("entry", [DoomWorld, "stride.envs_gym.doom:DoomWorld"])
def test_a_world_that_says_so_gets_none(entry, machine):
    gymnasium.register("stride-test/Alone-v0", entry)
    machine(0.013)
    config = Config(env_id="stride-test/Alone-v0")
    assert choose_workers(config) == (0, "the environment is set to run without them")
    assert choose_workers(replace(config, workers=2)).number == 2
    gymnasium.register("stride-test/Alone-v0", lambda: Slow())
    assert not workers.refuses_workers(config)


def test_what_a_step_costs_is_asked_of_the_world_once(monkeypatch):
    made = []
    monkeypatch.setattr(Slow, "reset", lambda self, **keys: made.append(self) or (self.observation_space.sample(), {}))
    monkeypatch.setattr(
        Slow, "step", lambda self, action: workers.time.sleep(SECONDS) or (self.reset()[0], 0, False, False, {})
    )
    monkeypatch.setattr(workers, "_step_costs", {})
    monkeypatch.setattr(workers, "LONG_SECONDS", float("inf"))  # a busy machine may hold a step up for as long
    config = Config(env_id=WALK, env_kwargs={"seconds": 0.5})
    assert SECONDS <= step_cost(config) == step_cost(config) and len(made) == 1 + workers.TIMED_STEPS


def test_worlds_that_only_this_program_has_stay_in_it(machine):
    class Local(Slow):
        pass

    gymnasium.register("stride-test/Local-v0", Local)
    gymnasium.register("stride-test/Main-v0", "__main__:Walker")
    gymnasium.register("stride-test/Odd-v0", Slow, kwargs={"seconds": object()})
    machine(0.013)
    for env_id in ("stride-test/Local-v0", "stride-test/Main-v0", "stride-test/Odd-v0", "given/Walker"):
        assert choose_workers(Config(env_id=env_id)).number == 0
        with pytest.raises(UserError, match=r"workers: 2 processes cannot make .*; use workers=0"):
            choose_workers(Config(env_id=env_id, workers=2))
    assert choose_workers(Config(env_id="stride-test/Slow-v0")).number == 4


def test_compiled_worlds_take_no_workers_and_a_debugger_sees_all_of_them():
    assert workers_of(Config(env_id="CartPole-v1")) == (0, "")
    line = refused("CartPole-v1", workers=2)
    assert "workers are for env_backend gym; fast steps its environments itself" in line
    assert for_debugger(load_config("LunarLander-v3", "ppo", ["workers=4"])).workers == 0


@pytest.mark.slow
def test_a_lost_worker_is_started_again_and_what_its_worlds_played_is_cut(trouble, caplog):
    envs = trouble(3, timeout=20.0, on_death="restart")  # worlds 0 and 1, world 2
    fine = torch.full((3,), FINE)
    envs.step(fine)
    step = envs.step(torch.tensor([FINE, EXIT, FINE]))
    assert step.truncated.tolist() == [True, True, False] and not step.terminated.any()
    assert step.final_obs.flatten().tolist()[:2] == [1, 1] and step.obs.flatten().tolist() == [0, 0, 2]
    assert step.reward.tolist() == [0, 0, 1] and step.episode_return.tolist() == [1, 1, 2]
    assert step.episode_length.tolist() == [1, 1, 2]
    assert "ended with exit code 3 in environment 1; restarted, 2 episodes end as truncated" in caplog.text
    assert envs.step(fine).episode_length.tolist() == [1, 1, 3]
    os.kill(envs.pids[1], signal.SIGKILL)
    state = envs.state_dict()
    assert [len(actions) for actions in state["actions"]] == [1, 1, 0]  # noticed by a checkpoint
    assert envs.state_dict()["cut"] == [2]
    assert envs.step(fine).truncated.tolist() == [False, False, True]


@pytest.mark.slow
def test_a_worker_that_is_lost_again_and_again_is_given_up(trouble):
    envs = trouble(2, workers=1, timeout=20.0, on_death="restart")
    for _ in range(MAX_REPLACEMENTS):
        assert envs.step(torch.tensor([EXIT, FINE])).truncated.all()
    line = f"exit code 3 in environment 0; the previous {MAX_REPLACEMENTS} workers also failed within 1,000 steps"
    with pytest.raises(EnvError, match=line):
        envs.step(torch.tensor([EXIT, FINE]))


@pytest.mark.slow
def test_a_world_that_ends_its_process_costs_the_run_an_episode(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    keys = {"env_id": "faulty_world:Faulty-v0", "spec": "{}", "env_kwargs": "{what: os exit, at: 12}", "workers": 2}
    run = tiny_run(**keys, eval_freq_epochs="null", test_episodes=0, on_worker_death="restart")
    assert "1 episodes end as truncated" in run.run_log.read_text()


DEAF = """
import signal
from multiprocessing import resource_tracker
from stride.envs_gym.async_pool import isolated
resource_tracker._resource_tracker._fd = None  # none is running: this process was forked from one that has it
with isolated():
    resource_tracker.ensure_running()  # as the fork server does before it starts: the first time it unblocks them
    assert {signal.SIGINT, signal.SIGTERM} <= signal.pthread_sigmask(signal.SIG_BLOCK, [])
assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
"""


def test_a_fork_server_that_loads_hears_no_signal(tmp_path):
    """Else a Ctrl-C meanwhile shows its traceback."""
    (tmp_path / "deaf.py").write_text(DEAF)
    done = run_command(tmp_path / "deaf.py", env={**os.environ, "PYTHONPATH": str(PROJECT)})
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="of fork servers")
def test_a_signal_is_answered_while_a_training_waits_for_the_fork_server(monkeypatch):
    """The server is begun deaf; whoever waits for it hears, as it imports for seconds."""
    deaf = {}

    def noting(name, function):
        def noted(*arguments):
            deaf[name] = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
            return function(*arguments)

        return noted

    monkeypatch.setattr(forkserver, "ensure_running", noting("server", forkserver.ensure_running))
    monkeypatch.setattr(popen_forkserver.Popen, "_launch", noting("wait", popen_forkserver.Popen._launch))
    AsyncEnv("CartPole-v1", 1, workers=1).close()
    assert deaf == {"server": True, "wait": False}
