"""Which checkpoints are saved, which is the best (of equal scores the newest), and the replay memory beside them."""

import shutil

import pytest
from tiny_runs import tiny_run

from stride.agents.experience.collector import EpisodeResults
from stride.commands import train
from stride.runstore import checkpoint_set
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.evaluate import summarize
from stride.utils.durable_file import read_json, write_json
from stride.utils.user_error import UserError

LEVEL = EpisodeResults([100.0] * 3, [100.0] * 3)
FEW_SAVES = "stride.trainer_callbacks.checkpoint.ALLOWANCE", -1e9


@pytest.fixture
def level(monkeypatch):
    """Every evaluation scores 100; tests are what they are."""

    def levelled(stage, played, wanted):
        return summarize(stage, LEVEL, 3) if stage == "val" else summarize(stage, played, wanted)

    monkeypatch.setattr("stride.trainer_callbacks.evaluate.summarize", levelled)


def linked(run, name="best"):
    return checkpoint_set.target(run.checkpoints / f"{name}.ckpt")


def best(run):
    """(checkpoint, score)"""
    return linked(run), read_json(run.checkpoints / "best.json")["score"]


def test_a_run_that_goes_on_at_the_highest_score_moves_its_best_on(level):
    run = tiny_run(max_timesteps=32)
    assert best(run) == ("epoch=02", 100)
    for budget in (128, 144):  # nobody evaluated epoch 9, and 100 episodes of it gave less
        assert train.command(["--resume", run.id, f"max_timesteps={budget}", "-q"]) == 0
        assert best(run) == ("epoch=08", 100)


def test_equal_scores_are_not_all_saved(level, monkeypatch):
    monkeypatch.setattr(*FEW_SAVES)
    monkeypatch.setattr("stride.trainer_callbacks.checkpoint.TIES", 5)
    run = tiny_run(max_timesteps=320, eval_freq_epochs=1, checkpoint_keep_last="null", test_episodes=0)
    assert checkpoint_set.names(run.checkpoints) == [f"epoch={epoch:02d}" for epoch in (1, 4, 8, 12, 16, 20)]
    assert best(run)[0] == "epoch=20"


def test_where_equal_scores_are_saved_does_not_depend_on_the_wall_nor_on_interruptions(level, stopped_at, monkeypatch):
    monkeypatch.setattr("stride.trainer_callbacks.checkpoint.TIES", 4)  # each 80 steps, 5 epochs
    words = {"max_timesteps": 320, "eval_freq_epochs": 3, "test_episodes": 10}
    assert best(tiny_run(**words))[0] == "epoch=15"
    monkeypatch.setattr(*FEW_SAVES)
    assert best(tiny_run(**words))[0] == "epoch=15"
    halved = stopped_at(8, **words)
    assert best(halved)[0] == "epoch=06" and halved.facts()["status"] == "interrupted"
    assert train.command(["--resume", halved.id, "-q"]) == 0
    assert best(halved) == ("epoch=15", 100)


@pytest.mark.parametrize("words", [{"eval_freq_epochs": 3, "spec.goal": 5}, {"eval_freq_epochs": "null"}], ids=str)
def test_what_was_tested_at_the_goal_or_without_evaluations_is_best(words):
    run = tiny_run(**words)
    assert best(run) == ("epoch=04", run.facts()["outcome"]["test_mean"])
    assert RunDir.find("@best:CartPole-v1") == run
    assert train.command(["--resume", run.id, "max_timesteps=96", "-q"]) == 0
    assert linked(run, "last") == "epoch=06"


def test_what_was_tested_below_both_is_not(level):
    assert best(tiny_run(eval_freq_epochs=3)) == ("epoch=03", 100)


@pytest.mark.parametrize("gone", [("last", "best"), ("last",)])
def test_a_process_that_died_before_it_linked_its_only_checkpoint_gets_its_links(gone):
    run = tiny_run("FrozenLake-v1:q_learning", batch_size=None, eval_freq_epochs="null")
    (stem,) = checkpoint_set.names(run.checkpoints)
    for link in gone:
        for path in run.checkpoints.glob(f"{link}.*"):
            path.unlink()
    write_json(run.config_json, {**read_json(run.config_json), "status": "running"})
    assert train.command(["--resume", run.id, "-q"]) == 0
    assert RunDir.find("@last").id == run.id
    assert linked(run, "last") == linked(run) == stem


# ---- the replay memory: shared by checkpoints, told by their sidecars, gone with the last to name it

REPLAYED = {
    "n_steps": None,
    "train_freq": 8,
    "gradient_steps": 1,
    "batch_size": 4,
    "buffer_size": 200,
    "hidden_dims": 8,
}
REPLAYED |= {"learning_starts": 0, "epoch_iterations": 4, "checkpoint_freq_epochs": 1, "eval_freq_epochs": "null"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """5 checkpoints, 64 env steps apart; the memory holds 200."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRIDE_RUNS", str(tmp_path_factory.mktemp("runs")))
        return tiny_run("CartPole-v1:dqn", **{**REPLAYED, "max_timesteps": 320, "test_episodes": 2})


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
