"""One owner of a run at a time, known by number, start and boot, claims of the dead are taken over; and how a run
stands, from real processes that hold it, are halted, fall silent and are killed."""

import errno
import json
import os
import signal
import time
from contextlib import contextmanager, nullcontext

import pytest

from lab.faults.races import at_once
from stride.runstore import metrics_layout, run_lock, run_state
from stride.runstore.metrics_writer import MetricsWriter
from stride.runstore.run_dir import RunDir
from stride.runstore.run_fate import silent_end
from stride.runstore.run_files import write_json
from stride.runstore.run_lock import NAME, LockLostError, RunInTrainingError, check, identity, locked, owner
from stride.runstore.run_state import state_of
from stride.utils.user_error import UserError
from tests.pretended_run import facts
from tests.runstore.processes import until

ME = identity(os.getpid())
STALE = {
    "dead": json.dumps({"pid": 2**22 + 1, "boot": ME["boot"], "started": 1}),
    "a number given out again": json.dumps({**ME, "started": 1}),
    "torn": '{"pid": 1',
    "empty": "",
    "not a claim": "[1]",
    "no number": '{"pid": "1"}',
}
ELSEWHERE = {
    "another boot": {**ME, "boot": "another", "host": "far"},
    "another container": {**ME, "space": "pid:[1]", "host": "pod-7"},
    "of an older version": {**ME, "boot": "another"},
}


@pytest.fixture
def lock(tmp_path):
    return tmp_path / NAME


def age(path, seconds):
    os.utime(path, (time.time() - seconds, time.time() - seconds))


def test_a_lock_is_there_for_the_length_of_the_block(tmp_path):
    with locked(tmp_path):
        assert owner(tmp_path)["pid"] == os.getpid()
        with pytest.raises(RunInTrainingError, match=f"is being trained by process {os.getpid()}"), locked(tmp_path):
            pass
        assert owner(tmp_path) is not None, "a refusal does not remove the lock"
    assert owner(tmp_path) is None and not list(tmp_path.iterdir())


@pytest.mark.parametrize("claim", STALE.values(), ids=STALE)
def test_a_stale_claim_is_taken_over(tmp_path, lock, claim):
    lock.write_text(claim)
    assert owner(tmp_path) is None
    with locked(tmp_path):
        assert owner(tmp_path).items() >= ME.items()


def test_of_many_that_take_over_one_stale_lock_one_wins(tmp_path, lock):
    lock.write_text(STALE["dead"])
    answers = tmp_path / "answers"

    def claim(place):
        try:
            with locked(tmp_path):
                until(lambda: len([*answers.iterdir()]) == 5, 20)
                return "owner"
        except RunInTrainingError:
            return "refused"

    assert sorted(at_once(6, claim, answers)) == ["owner"] + ["refused"] * 5


@pytest.mark.parametrize("claim", ELSEWHERE.values(), ids=ELSEWHERE)
@pytest.mark.parametrize("clock", [0.0, -7200.0, 7200.0], ids=["a right clock", "a slow clock", "a fast clock"])
def test_a_process_elsewhere_lives_until_its_lease_is_over_by_the_folders_own_clock(
    tmp_path, lock, monkeypatch, claim, clock
):
    true = time.time
    monkeypatch.setattr(run_lock.time, "time", lambda: true() + clock)
    lock.write_text(json.dumps(claim))
    age(lock, 60 + clock)
    where = f" on {claim.get('host', 'another machine')}; stop that one first, or wait 120 s if it is gone"
    with pytest.raises(RunInTrainingError, match=f"is being trained by process {os.getpid()}{where}"), locked(tmp_path):
        pass
    assert lock.read_text() == json.dumps(claim) and not (tmp_path / run_lock.CLOCK).exists()
    age(lock, 130 + clock)
    with locked(tmp_path):
        assert owner(tmp_path)["boot"] == ME["boot"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ahead", [3600, 2.3e9], ids=["an hour", "2099"])
def test_a_lock_from_the_future_is_watched_for_one_lease(tmp_path, lock, monkeypatch, ahead):
    """By whoever wants the run, and, without a write, by whoever only waits for it."""
    clock, stamp = [1000.0], time.time() + ahead
    monkeypatch.setattr(run_lock, "_now", lambda: clock[0])
    lock.write_text(json.dumps(ELSEWHERE["another boot"]))
    for moved, passed, lives in ((0, 0, True), (0, 119, True), (1, 2, True), (0, 119, True), (0, 2, False)):
        stamp, clock[0] = stamp + moved, clock[0] + passed
        os.utime(lock, (stamp, stamp))
        assert (owner(tmp_path) is not None) == lives
    with pytest.raises(RunInTrainingError, match="wait 120 s if it is gone"), locked(tmp_path):
        pass
    assert lock.stat().st_mtime < stamp - 1000, "its lease begins now"
    age(lock, 130)
    with locked(tmp_path):
        assert json.loads(lock.read_text())["boot"] == ME["boot"]


def test_a_lock_is_renewed_while_it_is_held_and_not_on_anothers_behalf(tmp_path, lock, monkeypatch):
    monkeypatch.setenv("STRIDE_LEASE", "0.2")
    check(tmp_path)  # of a run that this process does not hold there is nothing to say
    other = json.dumps(ELSEWHERE["another boot"])
    with locked(tmp_path):
        age(lock, 600)
        until(lambda: lock.stat().st_mtime > time.time() - 300)
        check(tmp_path)
        lock.write_text(other)
        stamp = lock.stat().st_mtime_ns
        with pytest.raises(LockLostError, match="now belongs to another process"):
            check(tmp_path)
        time.sleep(0.3)
        assert lock.stat().st_mtime_ns == stamp
    assert lock.read_text() == other and LockLostError.exit_code == run_lock.LOST_EXIT_CODE == 75


UNREAD = dict.fromkeys((errno.EMFILE, errno.ENFILE, errno.ENOMEM), "")
UNREAD |= dict.fromkeys((errno.EIO, errno.ESTALE), "the disk cannot be read: ")


@pytest.mark.parametrize("number", [*UNREAD, errno.ENOENT], ids=errno.errorcode.get)
def test_a_lock_that_cannot_be_read_is_not_lost(tmp_path, monkeypatch, number):
    def refuses(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    with locked(tmp_path):
        with monkeypatch.context() as patch, pytest.raises(OSError if number in UNREAD else LockLostError) as caught:
            patch.setattr("stride.runstore.run_files.os.open", refuses)
            check(tmp_path)
        if number in UNREAD:
            assert caught.value.errno == number and f"{UNREAD[number]}{os.strerror(number)}" in str(caught.value)
        check(tmp_path)


@pytest.mark.parametrize("word", ["soon", "0", "-1", "nan", "inf"])
def test_a_lease_is_a_number_of_seconds(tmp_path, monkeypatch, word):
    monkeypatch.setenv("STRIDE_LEASE", word)
    with pytest.raises(UserError, match="STRIDE_LEASE must be a number of seconds above 0"), locked(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


# ---- how a run stands


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
            file = MetricsWriter(folder / metrics_layout.NAME, folder.name, {}, metrics=2, points=2)
            file.row(1, {"loss": 1.0})
            if not beating:  # it hangs in machine code
                file._ended.set()
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
    assert state_of(run.path, facts()) == "dead" and "ended without a message" in silent_end(run, facts())


def test_one_that_lives_and_is_not_heard_is_silent(run, monkeypatch):
    monkeypatch.setattr(run_state, "HEARTBEAT_TIMEOUT", 0.2)
    with held(run.path, beating=False):
        becomes(run.path, "silent")
    assert state_of(run.path, facts()) == "dead"


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
    file = MetricsWriter(tmp_path / metrics_layout.NAME, "mine", {}, metrics=2, points=2)
    file.end("finished", "")
    assert state_of(tmp_path, {}) == "finished"
