"""What each callback reacts to, on tiny real trainings: evaluation, stop rules, checkpoints."""

import shutil

import pytest
import torch
from tiny_runs import tiny_run

from stride.agents.engines.choice import build_agent
from stride.agents.experience.collector import EpisodeResults
from stride.commands import train
from stride.config.loader import load_config
from stride.envs_gym.make import make_envs
from stride.runstore import checkpoint_set
from stride.runstore.metrics_table import read_csv
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.evaluate import Evaluate, summarize
from stride.trainer_callbacks.stop import Stop, threshold
from stride.utils.durable_file import read_json, write_json

BASE = ["n_envs=2", "n_steps=8", "batch_size=1.0", "eval_warmup_epochs=0"]
EVALUATED = "val/roll/ep_rew/mean"
OFF = {"eval_freq_epochs": "null", "test_episodes": 0}


def built(*words):
    """(config, agent) without a training."""
    config = load_config("CartPole-v1", "ppo", [*BASE, *words])
    return config, build_agent(config, make_envs(config, config.n_envs))


def evaluated(run):
    """Score by epoch."""
    return {row["train/clock/epoch"]: row[EVALUATED] for row in read_csv(run.metrics_csv) if EVALUATED in row}


def ended(run):
    return tuple(run.facts()["outcome"][key] for key in ("reason", "env_steps"))


def test_evaluations_and_checkpoints_come_on_their_grids_and_the_best_is_named():
    words = {"eval_freq_epochs": 3, "eval_warmup_epochs": 3, "eval_episodes": 3, "test_episodes": 0}
    run = tiny_run(max_timesteps=960, epoch_iterations=3, **words)
    scores = evaluated(run)
    assert [*scores] == [6, 9, 12, 15, 18]
    for row in read_csv(run.metrics_csv):
        if EVALUATED in row:
            assert row["train/clock/iterations"] == 3 * row["train/clock/epoch"] and row["val/roll/episodes"] == 3
            assert row["val/roll/ep_rew/min"] <= row[EVALUATED] <= row["val/roll/ep_rew/max"]
            assert row["val/roll/ep_len/mean"] == row[EVALUATED]  # CartPole pays 1 a step
    best = read_json(run.checkpoints / "best.json")
    assert best["score"] == pytest.approx(max(scores.values())) and scores[best["epoch"]] == max(scores.values())
    assert read_json(run.checkpoints / "last.json")["epoch"] == 20 and not list(run.checkpoints.glob("*.tmp"))
    assert RunDir.find("@best:CartPole-v1").id == run.id


def test_checkpoints_on_a_cadence_of_their_own_and_the_budget_is_never_overspent():
    run = tiny_run(**OFF, max_timesteps=170, checkpoint_freq_epochs=4)
    assert {path.stem for path in run.checkpoints.glob("epoch=*.ckpt")} == {"epoch=04", "epoch=08", "epoch=10"}
    assert ended(run) == ("budget spent", 160)


def test_evaluations_see_the_weights_of_now_in_the_same_worlds_and_tests_see_fresh_worlds():
    config, agent = built("eval_freq_epochs=1", "eval_episodes=5")
    evaluate, rows = Evaluate(config, lambda n: make_envs(config, n)), []
    for left in (0.0, 0.0, 9.0, -9.0):
        torch.nn.init.constant_(agent.policy.head.linear.bias[:1], left)
        agent.progress["iterations"] += 1
        evaluate.on_train_batch_end(None, agent, None, None, 0)
        rows.append(agent.metrics.flush())
    assert rows[0] == rows[1] != rows[2] != rows[3]
    assert max(row[EVALUATED] for row in rows[2:]) < 12, "who pushes one way alone falls"
    assert evaluate.test(agent.policy) != evaluate.test(agent.policy)


@pytest.mark.parametrize(
    ("setting", "goal", "expected"),
    [(True, 475, 475), (True, None, None), (False, 475, None), (300, 475, 300), (-90, -100, -90), (0, 5, 0)],
)
def test_thresholds(setting, goal, expected):
    """The predecessor ignored whole numbers and could not express negative goals."""
    assert threshold(setting, goal) == expected


def test_patience_wants_several_in_a_row_and_a_negative_goal_is_a_goal():
    run = tiny_run(max_timesteps=1600, early_stop_on_eval_threshold=1, early_stop_patience=3)
    assert run.facts()["outcome"]["env_steps"] == 3 * 32
    run = tiny_run("Pendulum-v1:ppo", max_timesteps=320, early_stop_on_eval_threshold=None, **{"spec.goal": -3000})
    assert run.facts()["outcome"]["solved"] and ended(run) == ("goal reached", 32)


def test_a_lucky_evaluation_that_100_episodes_do_not_confirm_goes_on():
    config, agent = built()
    stop = Stop(config, 475.0, lambda agent: {})
    reached = {EVALUATED: 475.0, "val/roll/episodes": 10}
    for tested in ({"test/roll/ep_rew/mean": 474.0}, {"test/roll/episodes": 99}):  # the latter: one did not end
        stop.test = lambda agent, tested=tested: tested
        stop.count(reached)
        assert stop._reason_to_stop(agent) == "" and stop.streak["val"] == 0 and stop.tested == {}
    stop.test = lambda agent: {"test/roll/ep_rew/mean": 475.0}
    stop.count(reached)
    stop.count({"val/roll/episodes": 9})
    assert stop._reason_to_stop(agent) == "" and stop.streak["val"] == 0  # of which not every episode ended
    stop.count(reached)
    assert stop._reason_to_stop(agent) == "goal reached" and stop.tested["test/roll/ep_rew/mean"] == 475.0


def test_the_training_threshold_waits_for_a_full_window():
    config, agent = built("early_stop_on_train_threshold=10")
    stop = Stop(config, None, lambda agent: {})
    for episodes, reason in ((99, ""), (100, "training return reached")):
        stop.count({"train/roll/ep_rew/mean": 10.0, "train/roll/episodes": episodes})
        assert stop._reason_to_stop(agent) == reason


def test_a_run_that_died_before_it_named_its_best_goes_on_with_it(monkeypatch):
    falling = iter(range(100, 0, -1))
    monkeypatch.setattr(
        "stride.trainer_callbacks.evaluate.summarize",
        lambda stage, *_: summarize(stage, EpisodeResults([float(next(falling))], [9]), 1),
    )
    run = tiny_run(max_timesteps=32)
    for link in run.checkpoints.glob("best.*"):  # as after a kill between a sidecar and this link
        link.unlink()
    assert train.command(["--resume", run.id, "max_timesteps=128", "-q"]) in (0, 1)
    epochs = [read_json(run.checkpoints / f"{name}.json")["epoch"] for name in ("last", "best")]
    assert epochs == [8, 2], "none was better"


def test_where_saving_would_take_long_only_the_best_and_the_last_are_saved(monkeypatch):
    words = {"max_timesteps": 320, "checkpoint_keep_best": 20, "test_episodes": 0}
    monkeypatch.setattr("stride.trainer_callbacks.checkpoint.FREE_SAVE_SECONDS", 1e9)
    often = tiny_run(**words)
    monkeypatch.setattr("stride.trainer_callbacks.checkpoint.FREE_SAVE_SECONDS", -1e9)
    seldom = tiny_run(**words)
    scores = evaluated(often)
    assert evaluated(seldom) == scores
    best = [epoch for epoch in scores if scores[epoch] >= max([scores[e] for e in scores if e < epoch], default=0)]
    saved = sorted({*best, 20})
    assert checkpoint_set.names(seldom.checkpoints) == [f"epoch={epoch:02.0f}" for epoch in saved]
    assert len(checkpoint_set.names(often.checkpoints)) == 10 > len(saved)


# ---- which checkpoints are saved, which is the best (of equal scores the newest)

LEVEL = EpisodeResults([100.0] * 3, [100.0] * 3)
FEW_SAVES = "stride.trainer_callbacks.checkpoint.FREE_SAVE_SECONDS", -1e9


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
    monkeypatch.setattr("stride.trainer_callbacks.checkpoint.TIE_PARTS", 5)
    run = tiny_run(max_timesteps=320, eval_freq_epochs=1, checkpoint_keep_last="null", test_episodes=0)
    assert checkpoint_set.names(run.checkpoints) == [f"epoch={epoch:02d}" for epoch in (1, 4, 8, 12, 16, 20)]
    assert best(run)[0] == "epoch=20"


def test_where_equal_scores_are_saved_does_not_depend_on_the_wall_nor_on_interruptions(level, stopped_at, monkeypatch):
    monkeypatch.setattr("stride.trainer_callbacks.checkpoint.TIE_PARTS", 4)  # each 80 steps, 5 epochs
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

REPLAYED = {"n_steps": None, "train_freq": 8, "gradient_steps": 1, "batch_size": 4, "buffer_size": 200}
REPLAYED |= {
    "hidden_dims": 8,
    "learning_starts": 0,
    "epoch_iterations": 4,
    "checkpoint_freq_epochs": 1,
    "eval_freq_epochs": "null",
}


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


def test_what_a_deleted_checkpoint_alone_named_goes_with_the_next_save(run):
    drop(run, 1)
    first = named(run, "epoch=02.json") - named(run, "last.json")
    drop(run, 2, 3)
    assert train.main(["--resume", run.id, "-q", "--max-timesteps", "384"]) == 0
    assert files(run) == named(run) and len(first & files(run)) == 1  # epoch=04 still needs it
    drop(run, 4)
    assert train.main(["--resume", run.id, "-q", "--max-timesteps", "448"]) == 0
    assert files(run) == named(run) and not first & files(run)


def test_a_checkpoint_without_its_rows_gives_way_to_the_one_before(run, capsys):
    path = run.checkpoints / "segments" / read_json(run.checkpoints / "last.json")["segments"][-1]
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert train.command(["--resume", run.id, "--max-timesteps", "384"]) == 0
    out = capsys.readouterr().out
    assert f"epoch=05 lacks part of its replay memory: {path.name}" in out and "using epoch=04" in out
    assert not checkpoint_set.fault(run.checkpoints / "epoch=06.ckpt", remembering=True)
