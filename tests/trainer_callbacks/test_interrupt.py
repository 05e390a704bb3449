"""A signal in any phase: what is quick is finished, what is long is dropped, and what is on the disk is whole."""

import os
import signal
import sys
import time
from types import SimpleNamespace

import pytest
from tiny_runs import TINY

from stride.agents.base import Agent
from stride.commands import train, train_folder
from stride.runstore import checkpoint_set
from stride.runstore.run_dir import RunDir, list_runs
from stride.runstore.run_files import read_json
from stride.trainer_callbacks import interrupt, session
from stride.trainer_callbacks.checkpoint import AtomicIO
from stride.trainer_callbacks.evaluate import Evaluate
from stride.trainer_callbacks.interrupt import Dropped, Interrupts
from stride.utils.interrupted import ENDING

PHASES = {
    "collecting": (Agent, "collect", 4),
    "updating": (Agent, "learn_from", 4),
    "evaluating": (Evaluate, "_play", 2),
    "saving": (AtomicIO, "save_checkpoint", 2),
}


@pytest.fixture
def training(monkeypatch):
    """A training in whose call of owner.name the signals arrive, and which lasts."""

    def train_with(owner, name, call, numbers, seconds, grace=60.0, exit_code=0):
        function, calls = getattr(owner, name), [0]

        def planted(*arguments, **options):
            calls[0] += 1
            if calls[0] == call:
                for number in numbers:
                    os.kill(os.getpid(), number)
                time.sleep(seconds)
            return function(*arguments, **options)

        monkeypatch.setattr(interrupt, "GRACE", grace)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, planted)
            words = ["CartPole-v1:ppo", "-q", *(f"{key}={value}" for key, value in TINY.items())]
            assert train.command(words) == exit_code

    return train_with


def saved():
    return checkpoint_set.names(RunDir.find("@last").checkpoints)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("phase", PHASES)
def test_what_lasts_is_dropped_and_the_last_checkpoint_stands(phase, number, training, capsys):
    training(*PHASES[phase], [number], 30, grace=0.2, exit_code=128 + number)
    run = RunDir.find("@last")
    assert saved() == ["epoch=02"] and not list(run.path.rglob("*.tmp"))
    lost = 16 if phase == "collecting" else 32
    name = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
    err = capsys.readouterr().err
    assert f"stopped by {name}: {lost} env steps since the checkpoint at 32 are lost" in err
    assert f"continue: python train.py --resume {run.id}" in err
    assert read_json(run.config_json)["status"] == "interrupted" and not (run.path / ".lock").exists()
    assert train.command(["--resume", run.id, "-q"]) == 0


def test_a_process_that_ends_by_force_says_what_is_lost_and_is_interrupted(training, monkeypatch, capfd):
    """Machine code that does not come back to Python: no signal is answered before DEADLINE."""
    ends = []

    def forced_end(code):
        run = RunDir.find("@last")
        ends.append((code, read_json(run.config_json)["status"], run.run_log.read_text()))
        raise SystemExit  # of its thread

    def machine_code(agent, steps):
        os.kill(os.getpid(), signal.SIGTERM)
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        while not ends:
            time.sleep(0.01)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        collect(agent, steps)

    collect = Agent.collect
    monkeypatch.setattr(interrupt, "DEADLINE", 0.5)
    monkeypatch.setattr(interrupt, "os", SimpleNamespace(_exit=forced_end, write=os.write))
    monkeypatch.setattr(Agent, "collect", machine_code)
    training(AtomicIO, "save_checkpoint", 99, [], 0, exit_code=143)
    [(code, status, run_log)] = ends
    line = "stopped by SIGTERM: 0 env steps since the start are lost; continue: python train.py --resume"
    assert (code, status) == (143, "interrupted") and line in run_log
    assert capfd.readouterr().err.count(line) == 1


@pytest.mark.parametrize("phase", PHASES)
def test_a_second_signal_does_not_wait(phase, training):
    training(*PHASES[phase], [signal.SIGINT, signal.SIGINT], 60, exit_code=130)
    assert not checkpoint_set.fault(RunDir.find("@last").checkpoints / "epoch=02.ckpt")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])  # the latter: a terminal was closed
def test_what_is_quick_is_finished_and_saved(number, training, capfd):
    training(Evaluate, "_play", 1, [number], 0.1, exit_code=128 + number)
    assert saved() == ["epoch=02"] and number.name in capfd.readouterr().err
    before = signal.signal(number, signal.SIG_IGN)
    try:
        training(Evaluate, "_play", 1, [number] * (number == signal.SIGHUP), 0.1)  # under nohup
        assert number.name not in capfd.readouterr().err
    finally:
        signal.signal(number, before)


def test_before_and_after_the_training_nothing_is_waited_for(training, capsys):
    training(train, "goal_of", 1, [signal.SIGTERM], 60, exit_code=143)
    assert list_runs() == []
    assert "before there was anything to save" in capsys.readouterr().err
    training(Evaluate, "test", 1, [signal.SIGINT], 60, exit_code=130)
    assert saved()[-1] == "epoch=04"


def test_a_signal_is_answered_at_once_and_handlers_are_put_back(capfd):
    numbers = (*ENDING, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    with Interrupts() as interrupts:
        interrupts.patient = True  # the iteration goes on
        os.kill(os.getpid(), signal.SIGTERM)
        assert capfd.readouterr().err == "\nSIGTERM: finishing and saving this iteration, if that is quick ...\n"
    with pytest.raises(Dropped), Interrupts():
        os.kill(os.getpid(), signal.SIGINT)
    assert [signal.getsignal(number) for number in numbers] == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


BEGINNING = [(train_folder, "locked"), (train, "opening_lines"), (train, "remember_code_of"), (train, "open_run_log"),
             (session, "header")]  # fmt: skip


@pytest.mark.parametrize(("owner", "call"), BEGINNING)
def test_a_run_that_a_signal_ends_before_its_first_step_is_interrupted_and_goes_on(owner, call, training, capsys):
    training(owner, call, 1, [signal.SIGTERM], 30, exit_code=143)
    run = RunDir.find("@last")
    assert "before there was anything to save" in capsys.readouterr().err
    assert read_json(run.config_json)["status"] == "interrupted" and not (run.path / ".lock").exists()
    assert train.command(["--resume", run.id, "-q"]) == 0


def test_a_signal_inside_a_finalizer_comes_again_without_a_line_of_python(monkeypatch):
    class Finalized:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)

    lines = []
    monkeypatch.setattr("sys.unraisablehook", lines.append)
    with Interrupts() as interrupts:
        Finalized()
        with pytest.raises(Dropped):
            time.sleep(60)
        interrupts.stop_reminding()
    assert not lines and sys.unraisablehook == lines.append


def test_a_reminder_that_is_late_is_dropped():
    with Interrupts() as interrupts:
        with pytest.raises(Dropped):
            os.kill(os.getpid(), signal.SIGTERM)
        interrupts.stop_reminding()
        interrupts._reminding = True
        os.kill(os.getpid(), signal.SIGTERM)
