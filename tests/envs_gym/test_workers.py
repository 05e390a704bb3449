"""Who steps Gymnasium's worlds: the choice and what it says, the same bits, and a process that is lost."""

import os
import signal
from dataclasses import replace
from os import kill

import gymnasium
import pytest
import torch
from async_worlds import EXIT, FINE, HANG
from commands import run_command
from slow_worlds import SECONDS, Slow
from tiny_runs import TINY

from stride.commands import train
from stride.commands.train_arguments import for_debugger
from stride.config.loader import load_config
from stride.config.schema import Config
from stride.envs_gym import workers
from stride.envs_gym.async_env import MOST, AsyncEnv
from stride.envs_gym.doom import DoomWorld
from stride.envs_gym.gym_env import EnvError, GymEnv
from stride.envs_gym.make import make_envs
from stride.envs_gym.workers import choose_workers, step_cost, workers_of
from stride.runstore.run_dir import RunDir
from stride.runstore.run_files import read_json
from stride.utils.places import PROJECT
from stride.utils.user_error import UserError

SLOW = "slow_worlds:stride-test/Slow-v0"
TROUBLE = "async_worlds:stride-test/Trouble-v0"


@pytest.fixture
def machine(monkeypatch):
    """Of four cores, on which a step takes as long as is said."""

    def stepping(seconds, cores=4):
        monkeypatch.setattr(workers, "cores", lambda: cores)
        monkeypatch.setattr(workers, "step_cost", lambda config: seconds)

    return stepping


@pytest.mark.parametrize(("seconds", "cores", "n_envs", "number", "reason"), [
    (0.013, 4, 8, 4, "a step takes 13 ms, processes pay from 0.5 ms on"),
    (0.013, 4, 3, 3, "a step takes 13 ms"), (0.00003, 4, 8, 0, "a step takes 0.03 ms"),
    (0.013, 1, 8, 0, "one core"), (0.013, 4, 1, 0, "one world"),
])  # fmt: skip
def test_auto_takes_a_process_a_core_where_a_step_is_long(seconds, cores, n_envs, number, reason, machine):
    machine(seconds, cores)
    choice = choose_workers(Config(env_id=SLOW, n_envs=n_envs))
    assert choice.number == number and reason in choice.reason


@pytest.mark.parametrize("entry", [DoomWorld, "stride.envs_gym.doom:DoomWorld"])
def test_a_world_that_says_so_gets_none(entry, machine):
    gymnasium.register("stride-test/Alone-v0", entry)
    machine(0.013)
    told = Config(env_id="stride-test/Alone-v0")
    assert choose_workers(told) == (0, "the world says that they do not pay")
    assert choose_workers(replace(told, workers=2)).number == 2
    gymnasium.register("stride-test/Alone-v0", lambda: Slow())
    assert not workers.refuses_workers(told)


def test_a_number_is_a_number_but_no_process_is_without_a_world(machine):
    machine(0.0)
    assert choose_workers(Config(env_id=SLOW, workers=16)) == (8, "as configured")
    assert choose_workers(Config(env_id=SLOW, workers=0)) == (0, "as configured")
    assert workers_of(Config(env_id="CartPole-v1")) == (0, "")  # compiled worlds have none


def test_what_a_step_costs_is_asked_of_the_world_once(monkeypatch):
    made = []
    monkeypatch.setattr(Slow, "reset", lambda self, **keys: made.append(self) or (self.observation_space.sample(), {}))
    monkeypatch.setattr(
        Slow, "step", lambda self, action: workers.time.sleep(SECONDS) or (self.reset()[0], 0, False, False, {})
    )
    monkeypatch.setattr(workers, "_step_costs", {})
    monkeypatch.setattr(workers, "LONG", float("inf"))  # a busy machine may hold a step up for as long
    config = Config(env_id=SLOW, env_kwargs={"seconds": 0.5})
    assert SECONDS <= step_cost(config) == step_cost(config) and len(made) == 1 + workers.STEPS


def test_worlds_that_only_this_program_has_stay_in_it(machine):
    class Local(Slow):
        pass

    gymnasium.register("stride-test/Local-v0", Local)
    gymnasium.register("stride-test/Main-v0", "__main__:Walker")
    gymnasium.register("stride-test/Odd-v0", Slow, kwargs={"seconds": object()})
    machine(0.013)
    for env_id in ("stride-test/Local-v0", "stride-test/Main-v0", "stride-test/Odd-v0", "given/Walker"):
        assert choose_workers(Config(env_id=env_id)).number == 0
        with pytest.raises(UserError, match=r"workers: 2 processes cannot make .*; take workers=0"):
            choose_workers(Config(env_id=env_id, workers=2))
    assert choose_workers(Config(env_id="stride-test/Slow-v0")).number == 4


def test_compiled_worlds_take_no_workers_and_a_debugger_sees_all_of_them():
    with pytest.raises(UserError, match="workers are processes of env_backend gym; fast steps its worlds itself"):
        make_envs(Config(env_id="CartPole-v1", workers=2), 2)
    assert for_debugger(load_config("LunarLander-v3", "ppo", ["workers=4"])).workers == 0


@pytest.mark.slow
def test_wrapped_worlds_of_a_class_that_a_program_registered_are_the_same_in_workers():
    gymnasium.register("stride-test/Handed-v0", Slow, max_episode_steps=6, kwargs={"seconds": 0.0})
    asked = {"env_id": "stride-test/Handed-v0", "frame_skip": 2, "frame_stack": 3}
    plain, envs = (make_envs(Config(**asked, workers=number), 3) for number in (0, 2))
    assert isinstance(plain, GymEnv) and isinstance(envs, AsyncEnv) and envs.resume == "exact"
    assert envs.time_limit == plain.time_limit and torch.equal(plain.reset(3), envs.reset(3))
    for time in range(40):
        if time == 20:
            envs.load_state_dict(plain.state_dict())
        action = torch.full((3,), time % 2)
        assert all(torch.equal(*pair) for pair in zip(plain.step(action)[:4], envs.step(action)[:4], strict=True))
    envs.close()


@pytest.mark.slow
def test_a_lost_worker_is_started_again_and_what_its_worlds_played_is_cut(caplog):
    envs = AsyncEnv(TROUBLE, 3, workers=2, timeout=20.0, on_death="restart")  # worlds 0 and 1, world 2
    envs.reset(0)
    envs.step(torch.full((3,), FINE))
    step = envs.step(torch.tensor([FINE, EXIT, FINE]))
    assert step.truncated.tolist() == [True, True, False] and not step.terminated.any()
    assert step.final_obs.flatten().tolist()[:2] == [1, 1] and step.obs.flatten().tolist() == [0, 0, 2]
    assert step.reward.tolist() == [0, 0, 1] and step.episode_return.tolist() == [1, 1, 2]
    assert step.episode_length.tolist() == [1, 1, 2]
    assert "ended with exit code 3 in world 1; started again, 2 episodes end as truncated" in caplog.text
    assert envs.step(torch.full((3,), FINE)).episode_length.tolist() == [1, 1, 3]
    kill(envs.pids[1], signal.SIGKILL)
    assert [len(state) for state in envs.state_dict()["actions"]] == [1, 1, 0]  # noticed by a checkpoint
    assert envs.state_dict()["cut"] == [2]
    assert envs.step(torch.full((3,), FINE)).truncated.tolist() == [False, False, True]
    envs.close()


@pytest.mark.slow
def test_a_worker_that_is_lost_again_and_again_is_given_up():
    envs = AsyncEnv(TROUBLE, 2, workers=1, timeout=20.0, on_death="restart")
    envs.reset(0)
    for _ in range(MOST):
        assert envs.step(torch.tensor([EXIT, FINE])).truncated.all()
    with pytest.raises(
        EnvError, match=f"exit code 3 in world 0; the {MOST} before it were lost within 1,000 steps, too"
    ):
        envs.step(torch.tensor([EXIT, FINE]))


@pytest.mark.slow
def test_a_world_that_hangs_in_a_worker_is_named_with_its_line():
    envs = AsyncEnv(TROUBLE, 1, workers=1, timeout=5.0)
    envs.reset(0)
    with pytest.raises(EnvError, match=r"no answer for 5 seconds in world 0 \(.*async_worlds\.py:\d+\)"):
        envs.step(torch.tensor([HANG]))


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    text = "env_id: {}\nppo: {{description: a test, hidden_dims: 4, max_timesteps: 64}}\n"
    (tmp_path / "Slow.yaml").write_text(text.format(SLOW))
    (tmp_path / "Faulty.yaml").write_text(text.format("faulty_world:Faulty-v0"))
    return tmp_path


def trained(root, name, **changes):
    keys = {"engine": "eager", **TINY, "test_episodes": 2, **changes}
    words = [f"{key}={value}" for key, value in keys.items()]
    code = train.command(["--config", str(root / name), "-q", *words])
    return code, RunDir.find("@last")


def weights(run):
    return torch.load(run.checkpoints / "last.ckpt", weights_only=True)["state_dict"]


@pytest.mark.slow
def test_a_run_with_workers_has_the_bits_of_one_without_and_goes_on_with_them(root):
    code, plain = trained(root, "Slow.yaml", workers=0)
    assert code == 0
    code, half = trained(root, "Slow.yaml", workers=2, max_timesteps=32)
    assert code == 0 and half.facts()["workers"] == 2
    assert train.command(["--resume", half.id, "-q", "max_timesteps=64", "workers=0"]) == 0  # any number goes on
    ours, theirs = weights(plain), weights(half)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert "exact" in half.run_log.read_text() and "not to the bit" not in half.run_log.read_text()


@pytest.mark.slow
def test_a_world_that_ends_its_process_stops_the_run_or_costs_it_an_episode(root, capsys):
    dies = {"workers": 2, "env_kwargs": "{what: os exit, at: 12}", "eval_freq_epochs": "null", "test_episodes": 0}
    code, run = trained(root, "Faulty.yaml", **dies)
    said = capsys.readouterr().err
    assert code == 1 and "the worker ended with exit code 0 in world" in said and len(said.splitlines()) == 1, said
    assert read_json(run.config_json)["status"] == "failed" and f"--resume {run.id}" in said
    code, run = trained(root, "Faulty.yaml", **dies, on_worker_death="restart")
    assert code == 0 and "1 episodes end as truncated" in run.run_log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("what", "seconds", "fragment"), [
    ("raise", 60, "ZeroDivisionError"), ("hang", 8, "no answer for 8 seconds"),
])  # fmt: skip
def test_what_goes_wrong_in_a_worker_is_one_line_with_the_line_of_the_world(what, seconds, fragment, root, capsys):
    wrong = {"env_kwargs": f"{{what: {what}, at: 5}}", "step_timeout": seconds}
    code, run = trained(root, "Faulty.yaml", workers=1, **wrong)
    said = capsys.readouterr().err
    assert code == 1 and fragment in said and "faulty_world.py:" in said and len(said.splitlines()) == 1, said
    assert read_json(run.config_json)["status"] == "failed"


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
