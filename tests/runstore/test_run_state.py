"""How a run stands, from real processes that hold it, are halted, fall silent and are killed."""

import os
import signal
import time
from contextlib import contextmanager, nullcontext

import pytest

from stride.runstore import run_state
from stride.runstore.metrics_layout import NAME
from stride.runstore.metrics_writer import MetricsWriter
from stride.runstore.run_dir import RunDir
from stride.runstore.run_fate import silent_end
from stride.runstore.run_files import write_json
from stride.runstore.run_lock import locked
from stride.runstore.run_state import state_of
from tests.pretended_run import facts
from tests.runstore.processes import until


@pytest.fixture
def run(root):
    return RunDir.create("CartPole-v1", "ppo", 1, facts())


@contextmanager
def held(folder, beating=True, lock=True):
    """A process of its own that holds the run and writes its metrics.mmap; gone without a word behind it."""
    ready, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            file = MetricsWriter(folder / NAME, folder.name, {}, metrics=2, points=2)
            file.row(1, {"loss": 1.0})
            if not beating:  # it hangs in machine code
                file._over.set()
            with locked(folder) if lock else nullcontext():
                os.write(writer, b"1")
                time.sleep(600)
        finally:
            os._exit(0)
    os.read(ready, 1)
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(writer)


def becomes(folder, wanted):
    until(lambda: state_of(folder, facts()) == wanted)


def test_a_living_process_is_live_halted_and_live_again_and_dead_when_it_is_killed(run):
    with held(run.path) as child:
        assert state_of(run.path, facts()) == "live"
        os.kill(child, signal.SIGSTOP)
        becomes(run.path, "halted")
        os.kill(child, signal.SIGCONT)
        becomes(run.path, "live")
    assert state_of(run.path, facts()) == "dead" and "ended without a word" in silent_end(run, facts())


def test_one_that_lives_and_is_not_heard_is_silent(run, monkeypatch):
    monkeypatch.setattr(run_state, "BEAT_LOST", 0.2)
    with held(run.path, beating=False):
        becomes(run.path, "silent")
    assert state_of(run.path, facts()) == "dead"


def test_a_run_without_a_heartbeat_is_heard_by_what_it_writes(run, monkeypatch):
    with locked(run.path):
        assert state_of(run.path, facts()) == "live"
        monkeypatch.setattr(run_state, "SILENT_AFTER", -1.0)
        assert state_of(run.path, facts()) == "silent"


@pytest.mark.parametrize("word", ["finished", "interrupted", "paused", "failed"])
def test_what_ended_says_so_itself_even_if_it_does_between_two_looks(run, word):
    before = run.facts()
    write_json(run.config_json, facts(status=word))
    assert state_of(run.path, run.facts()) == word == state_of(run.path, before)


def test_a_folder_just_made_is_no_dead_run(run):
    assert state_of(run.path, facts()) == "live"
    long_ago = time.time() - 60
    os.utime(run.config_json, (long_ago, long_ago))
    assert state_of(run.path, facts()) == "dead"


def test_a_loop_of_ones_own_is_known_by_its_file_alone(tmp_path):
    assert state_of(tmp_path, {}) == "dead"
    with held(tmp_path, lock=False):
        assert state_of(tmp_path, {}) == "live"
    assert state_of(tmp_path, {}) == "dead"
    file = MetricsWriter(tmp_path / NAME, "mine", {}, metrics=2, points=2)
    file.end("finished", "")
    assert state_of(tmp_path, {}) == "finished"
