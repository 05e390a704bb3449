"""A run's replay memory on disk: shared by its checkpoints, told by their sidecars, gone with the last to name it."""

import pytest

from stride.commands import train
from stride.commands.train_arguments import parse_arguments
from stride.runstore import checkpoint_set
from stride.runstore.run_dir import list_runs
from stride.runstore.run_files import read_json
from stride.utils.user_error import UserError

SHORT = ["n_envs=2", "train_freq=8", "gradient_steps=1", "batch_size=4", "buffer_size=200", "hidden_dims=8"]
OFTEN = ["learning_starts=0", "epoch_iterations=4", "checkpoint_freq_epochs=1", "eval_freq_epochs=null"]
WORDS = ["CartPole-v1:dqn", *SHORT, *OFTEN, "early_stop_on_eval_threshold=false", "max_timesteps=320", "-q"]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """5 checkpoints, 64 env steps apart; the memory holds 200."""
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    assert train.train(parse_arguments(WORDS)) == 0
    return list_runs()[0]


def files(run):
    return {path.name for path in (run.checkpoints / "segments").iterdir()}


def named(run, pattern="epoch=*.json"):
    return {name for path in run.checkpoints.glob(pattern) for name in read_json(path)["segments"]}


def test_every_checkpoint_adds_one_segment_and_names_all_it_needs(run):
    assert len(files(run)) == 5 and files(run) == named(run)
    last = read_json(run.checkpoints / "last.json")["segments"]
    assert [name.rpartition("-")[0] for name in last] == ["32-64", "64-96", "96-128", "128-160"]


def test_what_a_deleted_checkpoint_alone_named_goes_with_the_next_save(run):
    for path in run.checkpoints.glob("epoch=01.*"):
        path.unlink()
    first = named(run, "epoch=02.json") - named(run, "last.json")
    for path in [*run.checkpoints.glob("epoch=02.*"), *run.checkpoints.glob("epoch=03.*")]:
        path.unlink()
    assert train.main(["--resume", run.id, "-q", "--max-timesteps", "384"]) == 0
    assert files(run) == named(run) and len(first & files(run)) == 1  # epoch=04 still needs it
    (run.checkpoints / "epoch=04.ckpt").unlink()
    (run.checkpoints / "epoch=04.json").unlink()
    assert train.main(["--resume", run.id, "-q", "--max-timesteps", "448"]) == 0
    assert files(run) == named(run) and not first & files(run)


@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_a_checkpoint_without_its_rows_gives_way_to_the_one_before(run, how, capsys):
    path = run.checkpoints / "segments" / read_json(run.checkpoints / "last.json")["segments"][-1]
    path.write_bytes(path.read_bytes()[:-1] + b"?") if how == "damaged" else path.unlink()
    assert train.command(["--resume", run.id, "--max-timesteps", "384"]) == 0
    told = capsys.readouterr().out
    assert f"epoch=05 lacks a part of its replay memory: {path.name}" in told and "taking epoch=04" in told
    assert not checkpoint_set.fault(run.checkpoints / "epoch=06.ckpt", remembering=True)


def test_rows_that_all_checkpoints_need_stop_a_resume_with_one_line(run):
    oldest = {read_json(path)["segments"][0] for path in run.checkpoints.glob("epoch=*.json")}
    for name in oldest:
        path = run.checkpoints / "segments" / name
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(UserError, match=r"has no checkpoint; .*epoch=05 lacks a part of its replay memory: .*epoch=01"):
        train.main(["--resume", run.id, "-q", "--max-timesteps", "384"])
