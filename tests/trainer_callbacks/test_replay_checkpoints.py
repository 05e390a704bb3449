"""A run's replay memory on disk: shared by its checkpoints, told by their sidecars, gone with the last to name it."""

import shutil

import pytest
from tiny_runs import tiny_run

from stride.commands import train
from stride.runstore import checkpoint_set
from stride.runstore.run_dir import RunDir
from stride.runstore.run_files import read_json
from stride.utils.user_error import UserError

WORDS = {"n_steps": None, "train_freq": 8, "gradient_steps": 1, "batch_size": 4, "buffer_size": 200, "hidden_dims": 8}
WORDS |= {"learning_starts": 0, "epoch_iterations": 4, "checkpoint_freq_epochs": 1, "eval_freq_epochs": "null"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """5 checkpoints, 64 env steps apart; the memory holds 200."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRIDE_RUNS", str(tmp_path_factory.mktemp("runs")))
        return tiny_run("CartPole-v1:dqn", **{**WORDS, "max_timesteps": 320, "test_episodes": 2})


@pytest.fixture
def run(trained, root):
    return RunDir(shutil.copytree(trained.path, root / trained.id, symlinks=True))


def files(run):
    return {path.name for path in (run.checkpoints / "segments").iterdir()}


def named(run, pattern="epoch=*.json"):
    return {name for path in run.checkpoints.glob(pattern) for name in read_json(path)["segments"]}


def drop(run, *epochs):
    for epoch in epochs:
        for path in run.checkpoints.glob(f"epoch={epoch:02d}.*"):
            path.unlink()


def spoil(path):
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def test_every_checkpoint_adds_one_segment_and_names_all_it_needs(run):
    assert len(files(run)) == 5 and files(run) == named(run)
    last = read_json(run.checkpoints / "last.json")["segments"]
    assert [name.rpartition("-")[0] for name in last] == ["32-64", "64-96", "96-128", "128-160"]


def test_what_a_deleted_checkpoint_alone_named_goes_with_the_next_save(run):
    drop(run, 1)
    first = named(run, "epoch=02.json") - named(run, "last.json")
    drop(run, 2, 3)
    assert train.main(["--resume", run.id, "-q", "--max-timesteps", "384"]) == 0
    assert files(run) == named(run) and len(first & files(run)) == 1  # epoch=04 still needs it
    drop(run, 4)
    assert train.main(["--resume", run.id, "-q", "--max-timesteps", "448"]) == 0
    assert files(run) == named(run) and not first & files(run)


@pytest.mark.parametrize("damage", [spoil, lambda path: path.unlink()], ids=["damaged", "missing"])
def test_a_checkpoint_without_its_rows_gives_way_to_the_one_before(run, damage, capsys):
    path = run.checkpoints / "segments" / read_json(run.checkpoints / "last.json")["segments"][-1]
    damage(path)
    assert train.command(["--resume", run.id, "--max-timesteps", "384"]) == 0
    out = capsys.readouterr().out
    assert f"epoch=05 lacks a part of its replay memory: {path.name}" in out and "taking epoch=04" in out
    assert not checkpoint_set.fault(run.checkpoints / "epoch=06.ckpt", remembering=True)


def test_rows_that_all_checkpoints_need_stop_a_resume_with_one_line(run):
    for name in {read_json(path)["segments"][0] for path in run.checkpoints.glob("epoch=*.json")}:
        spoil(run.checkpoints / "segments" / name)
    with pytest.raises(UserError, match=r"has no checkpoint; .*epoch=05 lacks a part of its replay memory: .*epoch=01"):
        train.main(["--resume", run.id, "-q", "--max-timesteps", "384"])
