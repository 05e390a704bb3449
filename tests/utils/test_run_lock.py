"""One owner at a time, known by number, start and boot; the claims of the dead are taken over."""

import json
import multiprocessing
import os

import pytest

from utils.run_lock import NAME, RunInTrainingError, identity, locked, owner

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
    "another boot": {**identity(os.getpid()), "boot": "another"},
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
        assert owner(tmp_path) == identity(os.getpid())


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
