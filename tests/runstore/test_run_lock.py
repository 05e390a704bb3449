"""One owner at a time, known by number, start and boot; the claims of the dead are taken over."""

import errno
import json
import multiprocessing
import os
import time

import pytest

from stride.runstore import run_lock
from stride.runstore.run_lock import (
    CLOCK,
    LOST,
    NAME,
    LockLostError,
    RunInTrainingError,
    check,
    identity,
    locked,
    owner,
)
from stride.utils.user_error import UserError

SPAWN = multiprocessing.get_context("spawn")


def claim(folder, barrier, answers):
    barrier.wait()
    try:
        with locked(folder):
            answers.put("owner")
            barrier.wait()
    except RunInTrainingError:
        answers.put("refused")
        barrier.wait()


def test_a_lock_is_there_for_the_length_of_the_block(tmp_path):
    with locked(tmp_path):
        found = owner(tmp_path)
        assert found is not None and found["pid"] == os.getpid()
        with pytest.raises(RunInTrainingError, match=f"is being trained by process {os.getpid()}"), locked(tmp_path):
            pass
        assert owner(tmp_path) is not None, "a refusal does not remove the lock"
    assert owner(tmp_path) is None and not list(tmp_path.iterdir())


STALE = {
    "dead": {"pid": 2**22 + 1, "boot": identity(os.getpid())["boot"], "started": 1},
    "a number given out again": {**identity(os.getpid()), "started": 1},
    "torn": '{"pid": 1',
    "empty": "",
    "not a claim": [1],
    "no number": {"pid": "1"},
}


@pytest.mark.parametrize("claim", STALE.values(), ids=STALE)
def test_a_stale_claim_is_taken_over(tmp_path, claim):
    (tmp_path / NAME).write_text(claim if isinstance(claim, str) else json.dumps(claim))
    assert owner(tmp_path) is None
    with locked(tmp_path):
        found = owner(tmp_path)
        assert found is not None and found.items() >= identity(os.getpid()).items()


def test_of_many_that_take_over_one_stale_lock_one_wins(tmp_path):
    (tmp_path / NAME).write_text(json.dumps(STALE["dead"]))
    barrier, answers = SPAWN.Barrier(6), SPAWN.Queue()
    processes = [SPAWN.Process(target=claim, args=(tmp_path, barrier, answers)) for _ in range(6)]
    for process in processes:
        process.start()
    found = sorted(answers.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
    assert found == ["owner"] + ["refused"] * 5


ELSEWHERE = {
    "another boot": {**identity(os.getpid()), "boot": "another", "host": "far"},
    "another container": {**identity(os.getpid()), "space": "pid:[1]", "host": "pod-7"},
    "of an older version": {**identity(os.getpid()), "boot": "another"},
}


@pytest.mark.parametrize("claim", ELSEWHERE.values(), ids=ELSEWHERE)
@pytest.mark.parametrize("clock", [0.0, -7200.0, 7200.0], ids=["a right clock", "a slow clock", "a fast clock"])
def test_a_process_elsewhere_lives_until_its_lease_is_over_by_the_folders_own_clock(
    tmp_path, monkeypatch, claim, clock
):
    lock, true = tmp_path / NAME, time.time
    monkeypatch.setattr(run_lock.time, "time", lambda: true() + clock)
    lock.write_text(json.dumps(claim))
    os.utime(lock, (true() - 110, true() - 110))
    where = f" on {claim.get('host', 'another machine')}; stop that one first, or wait 120 s if it is gone"
    with pytest.raises(RunInTrainingError, match=f"is being trained by process {os.getpid()}{where}"), locked(tmp_path):
        pass
    assert lock.read_text() == json.dumps(claim) and not (tmp_path / CLOCK).exists()
    os.utime(lock, (true() - 130, true() - 130))
    with locked(tmp_path):
        assert owner(tmp_path)["boot"] == identity(os.getpid())["boot"]
    assert not list(tmp_path.iterdir())


FUTURES = {"an hour": 3600, "2099": 2.3e9}


@pytest.mark.parametrize("ahead", FUTURES.values(), ids=FUTURES)
def test_a_lock_from_the_future_is_watched_for_one_lease(tmp_path, monkeypatch, ahead):
    """By whoever wants the run, and, without a write, by whoever only waits for it."""
    lock, claim, clock = tmp_path / NAME, json.dumps(ELSEWHERE["another boot"]), [1000.0]
    monkeypatch.setattr(run_lock, "_now", lambda: clock[0])
    lock.write_text(claim)
    stamp = time.time() + ahead
    for moved, passed, lives in ((0, 0, True), (0, 119, True), (1, 2, True), (0, 119, True), (0, 2, False)):
        stamp, clock[0] = stamp + moved, clock[0] + passed
        os.utime(lock, (stamp, stamp))
        assert (owner(tmp_path) is not None) == lives
    with pytest.raises(RunInTrainingError, match="wait 120 s if it is gone"), locked(tmp_path):
        pass
    assert abs(lock.stat().st_mtime - time.time()) < 60, "its lease begins now"
    os.utime(lock, (time.time() - 130, time.time() - 130))
    with locked(tmp_path):
        assert lock.read_text() != claim


def test_a_lock_is_renewed_while_it_is_held(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_LEASE", "0.2")
    with locked(tmp_path):
        long_ago = time.time() - 60
        os.utime(tmp_path / NAME, (long_ago, long_ago))
        end = time.monotonic() + 10
        while (tmp_path / NAME).stat().st_mtime < long_ago + 50 and time.monotonic() < end:
            time.sleep(0.01)
        assert (tmp_path / NAME).stat().st_mtime > long_ago + 50


def test_whoever_was_given_up_finds_so_and_leaves_the_others_lock_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_LEASE", "0.2")
    check(tmp_path)  # of a run that this process does not hold there is nothing to say
    other = json.dumps(ELSEWHERE["another boot"])
    with locked(tmp_path):
        check(tmp_path)
        (tmp_path / NAME).write_text(other)
        stamp = (tmp_path / NAME).stat().st_mtime_ns
        with pytest.raises(LockLostError, match="another process's now"):
            check(tmp_path)
        time.sleep(0.3)
        assert (tmp_path / NAME).stat().st_mtime_ns == stamp, "it is not renewed on another's behalf"
    assert (tmp_path / NAME).read_text() == other and LockLostError.exit_code == LOST == 75


@pytest.mark.parametrize(
    ("number", "said"),
    [
        *((number, os.strerror(number)) for number in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)),
        *((number, f"the disk cannot be read: {os.strerror(number)}") for number in (errno.EIO, errno.ESTALE)),
        (errno.ENOENT, None),
    ],
    ids=errno.errorcode.get,
)
def test_a_lock_that_cannot_be_read_is_not_lost(tmp_path, monkeypatch, number, said):
    def refuses(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    with locked(tmp_path):
        with monkeypatch.context() as patch, pytest.raises(OSError if said else LockLostError, match=said) as caught:
            patch.setattr("stride.runstore.run_files.os.open", refuses)
            check(tmp_path)
        assert not said or caught.value.errno == number
        check(tmp_path)


def test_between_two_renewals_nothing_is_read(tmp_path, monkeypatch):
    with locked(tmp_path):
        (tmp_path / NAME).write_text("")
        run_lock.check_now_and_then(tmp_path)
        monkeypatch.setattr(run_lock, "_now", lambda: float("inf"))
        with pytest.raises(LockLostError):
            run_lock.check_now_and_then(tmp_path)


@pytest.mark.parametrize("word", ["soon", "0", "-1", "nan", "inf"])
def test_a_lease_is_a_number_of_seconds(tmp_path, monkeypatch, word):
    monkeypatch.setenv("STRIDE_LEASE", word)
    with pytest.raises(UserError, match="STRIDE_LEASE is a number of seconds above 0"), locked(tmp_path):
        pass
    assert not list(tmp_path.iterdir())
