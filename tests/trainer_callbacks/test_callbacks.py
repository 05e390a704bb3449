"""What each callback reacts to, on tiny real trainings: evaluation, stop rules, checkpoints, schedules, rows."""

import json
import os
import signal

import pytest
import torch

from stride.agents.base import Agent
from stride.agents.engines.choice import build_agent
from stride.agents.experience.collector import EpisodeResults
from stride.commands import train
from stride.commands.train_arguments import parse_arguments
from stride.config.loader import load_config
from stride.config.metrics import load_metrics
from stride.envs_gym.make import make_envs
from stride.runstore import checkpoint_set
from stride.runstore.metrics_table import read_csv
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.evaluate import Evaluate, is_due, summarize
from stride.trainer_callbacks.schedule import ApplySchedules
from stride.trainer_callbacks.session import build_trainer
from stride.trainer_callbacks.stop import Stop, threshold

BASE = ["n_envs=2", "n_steps=8", "batch_size=1.0", "eval_episodes=3", "eval_warmup_epochs=0"]


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))


def short(*words):
    """A short run's overrides, with the given ones in place of its own."""
    given = {word.partition("=")[0] for word in words}
    return [word for word in BASE if word.partition("=")[0] not in given] + list(words)


def fit(*words):
    """A real run; (exit code, its folder, its rows)."""
    code = train.train(parse_arguments(["CartPole-v1:ppo", "-q", *short(*words)]))
    run = RunDir.find("@last")
    return code, run, read_csv(run.metrics_csv)


def outcome(run):
    return json.loads(run.config_json.read_text())["outcome"]


@pytest.mark.parametrize(
    ("every", "warmup", "expected"),
    [
        (50, 0, [50, 100, 150]),
        (50, 15, [50, 100, 150]),
        (10, 15, [20, 30, 40]),
        (10, 20, [30, 40, 50]),
        (1, 2, [3, 4, 5]),
    ],
)
def test_the_first_evaluation_is_the_first_of_the_grid_after_the_warm_up(every, warmup, expected):
    assert [epoch for epoch in range(1, 200) if is_due(epoch, every, warmup)][:3] == expected


def test_the_example_of_the_specification():
    assert next(epoch for epoch in range(1, 200) if is_due(epoch, 20, 50)) == 60


@pytest.mark.parametrize("every", [None, 0])
def test_no_cadence_is_no_evaluation(every):
    assert not any(is_due(epoch, every, 0) for epoch in range(100))


def test_evaluations_come_on_the_grid_and_report_whole_episodes():
    _, _, rows = fit("max_timesteps=160", "eval_freq_epochs=3", "eval_warmup_epochs=3", "log_freq_epochs=100")
    epochs = [row["train/clock/epoch"] for row in rows if "val/roll/ep_rew/mean" in row]
    assert epochs == [6, 9]
    for row in rows:
        if "val/roll/ep_rew/mean" in row:
            assert row["val/roll/episodes"] == 3
            assert row["val/roll/ep_rew/min"] <= row["val/roll/ep_rew/mean"] <= row["val/roll/ep_rew/max"]
            assert row["val/roll/ep_len/mean"] == row["val/roll/ep_rew/mean"]  # CartPole pays 1 a step


def test_an_epoch_is_as_many_iterations_as_configured():
    _, run, rows = fit("max_timesteps=192", "epoch_iterations=3", "eval_freq_epochs=2", "log_freq_epochs=1")
    evaluated = [row["train/clock/iterations"] for row in rows if "val/roll/ep_rew/mean" in row]
    assert evaluated == [6, 12]
    assert {path.stem for path in run.checkpoints.glob("epoch=*.ckpt")} == {"epoch=02", "epoch=04"}


def test_evaluation_sees_the_live_weights():
    """The predecessor evaluated a copy of the first weights for ever."""
    config = load_config("CartPole-v1", "ppo", short("eval_episodes=20", "policy_lr=3e-3"))
    agent = build_agent(config, make_envs(config, config.n_envs))
    evaluate = Evaluate(config, lambda n: make_envs(config, n))
    before = evaluate.test(agent.policy)["test/roll/ep_rew/mean"]
    with torch.no_grad():  # a hand-written expert: push to where the pole falls
        for parameter in agent.policy.parameters():
            parameter.zero_()
        for i, layer in enumerate([agent.policy.actor[0][0], agent.policy.actor[0][2]]):
            layer.weight[0] = torch.tensor([0.05, 0.2, 1.0, 0.5]) if i == 0 else torch.eye(64)[0]
        agent.policy.head.linear.weight.copy_(torch.stack([-10 * torch.eye(64)[0], 10 * torch.eye(64)[0]]))
    after = evaluate.test(agent.policy)["test/roll/ep_rew/mean"]
    assert before < 100 and after > 400


def test_worlds_of_evaluation_repeat_and_those_of_tests_are_fresh():
    config = load_config("CartPole-v1", "ppo", short("eval_freq_epochs=1", "eval_episodes=5"))
    agent = build_agent(config, make_envs(config, config.n_envs))
    evaluate = Evaluate(config, lambda n: make_envs(config, n))
    seen = []
    for _ in range(2):
        agent.progress["iterations"] += 1
        evaluate.on_train_batch_end(None, agent, None, None, 0)
        seen.append(agent.metrics.flush())
    assert seen[0] == seen[1]
    assert evaluate.test(agent.policy) != evaluate.test(agent.policy)


def test_a_summary_without_a_finished_episode_says_so():
    assert summarize("val", EpisodeResults([], []), 2) == {"val/roll/episodes": 0.0}


def test_an_evaluation_that_never_ends_is_given_up(capfd):
    _, _, rows = fit("max_timesteps=32", "eval_freq_epochs=1", "eval_max_steps=3", "early_stop_on_eval_threshold=false")
    assert rows[0]["val/roll/episodes"] == 0 and "val/roll/ep_rew/mean" not in rows[0]


@pytest.mark.parametrize(
    ("setting", "goal", "expected"),
    [
        (True, 475.0, 475.0),
        (True, None, None),
        (False, 475.0, None),
        (300, 475.0, 300.0),
        (-90, -100.0, -90.0),
        (0, 5.0, 0.0),
    ],
)
def test_thresholds(setting, goal, expected):
    """The predecessor ignored whole numbers and could not express negative goals."""
    assert threshold(setting, goal) == expected


def test_the_budget_is_never_overspent():
    _, run, _ = fit("max_timesteps=70", "eval_freq_epochs=null")
    assert outcome(run)["env_steps"] == 64 and outcome(run)["reason"] == "budget spent"


def test_a_confirmed_evaluation_threshold_ends_the_training():
    _, run, rows = fit("max_timesteps=1600", "eval_freq_epochs=2", "early_stop_on_eval_threshold=1", "spec.goal=5")
    assert outcome(run)["reason"] == "goal reached" and outcome(run)["solved"]
    assert outcome(run)["env_steps"] == 32 and outcome(run)["test_episodes"] == 100
    assert rows[-1]["test/roll/episodes"] == 100


def test_patience_wants_several_in_a_row():
    _, run, _ = fit(
        "max_timesteps=1600", "eval_freq_epochs=2", "early_stop_on_eval_threshold=1", "early_stop_patience=3"
    )
    assert outcome(run)["env_steps"] == 3 * 32


def test_a_negative_goal_is_a_goal():
    words = ["n_envs=2", "n_steps=8", "batch_size=1.0", "max_timesteps=320", "eval_freq_epochs=2", "eval_episodes=2"]
    assert train.train(parse_arguments(["Pendulum-v1:ppo", "-q", *words, "spec.goal=-3000"])) == 0
    assert outcome(RunDir.find("@last"))["solved"] and outcome(RunDir.find("@last"))["env_steps"] == 32


def test_a_lucky_evaluation_that_100_episodes_do_not_confirm_goes_on():
    config = load_config("CartPole-v1", "ppo", BASE)
    stop = Stop(config, 475.0, lambda agent: {})
    agent = build_agent(config, make_envs(config, 2))
    reached = {"val/roll/ep_rew/mean": 500.0, "val/roll/episodes": 10}
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
    config = load_config("CartPole-v1", "ppo", [*BASE, "early_stop_on_train_threshold=10"])
    stop = Stop(config, None, lambda agent: {})
    agent = build_agent(config, make_envs(config, 2))
    stop.count({"train/roll/ep_rew/mean": 50.0, "train/roll/episodes": 99})
    assert stop._reason_to_stop(agent) == ""
    stop.count({"train/roll/ep_rew/mean": 50.0, "train/roll/episodes": 100})
    assert stop._reason_to_stop(agent) == "training return reached"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_training_between_two_iterations(number, monkeypatch):
    step = Agent.training_step

    def signalled(agent, dataloader_iter):
        if agent.progress["iterations"] == 2:
            os.kill(os.getpid(), number)
        step(agent, dataloader_iter)

    monkeypatch.setattr(Agent, "training_step", signalled)
    before = signal.getsignal(number)
    code, run, _ = fit("max_timesteps=1600", "eval_freq_epochs=null")
    assert code == 128 + number and outcome(run)["reason"] == "interrupted" and outcome(run)["env_steps"] == 48
    assert json.loads((run.checkpoints / "last.json").read_text())["iterations"] == 3
    assert signal.getsignal(number) == before


def test_best_is_the_best_evaluated_and_last_the_last():
    _, run, rows = fit("max_timesteps=320", "eval_freq_epochs=2", "early_stop_on_eval_threshold=false")
    scores = {row["train/clock/epoch"]: row["val/roll/ep_rew/mean"] for row in rows if "val/roll/ep_rew/mean" in row}
    best = json.loads((run.checkpoints / "best.json").read_text())
    assert best["score"] == pytest.approx(max(scores.values())) and scores[best["epoch"]] == max(scores.values())
    assert json.loads((run.checkpoints / "last.json").read_text())["epoch"] == 20
    assert not list(run.checkpoints.glob("*.tmp"))
    assert RunDir.find("@best:CartPole-v1").id == run.id


def test_a_run_that_died_before_it_named_its_best_goes_on_with_it(monkeypatch):
    falling = iter(range(100, 0, -1))
    monkeypatch.setattr(
        "stride.trainer_callbacks.evaluate.summarize",
        lambda stage, *_: summarize(stage, EpisodeResults([float(next(falling))], [9]), 1),
    )
    _, run, _ = fit("max_timesteps=32", "eval_freq_epochs=2", "early_stop_on_eval_threshold=false")
    for link in run.checkpoints.glob("best.*"):  # as after a kill between a sidecar and this link
        link.unlink()
    assert train.command(["--resume", run.id, "max_timesteps=128", "-q"]) in (0, 1)
    assert json.loads((run.checkpoints / "last.json").read_text())["epoch"] == 8
    assert json.loads((run.checkpoints / "best.json").read_text())["epoch"] == 2  # none was better


def test_where_saving_would_take_long_only_the_best_and_the_last_are_saved(monkeypatch):
    words = ["max_timesteps=320", "eval_freq_epochs=2", "early_stop_on_eval_threshold=false", "checkpoint_keep_best=20"]
    monkeypatch.setattr("stride.trainer_callbacks.checkpoint.ALLOWANCE", 1e9)
    _, often, rows = fit(*words)
    monkeypatch.setattr("stride.trainer_callbacks.checkpoint.ALLOWANCE", -1e9)
    _, seldom, again = fit(*words)
    scores = {
        int(row["train/clock/epoch"]): row["val/roll/ep_rew/mean"] for row in rows if "val/roll/ep_rew/mean" in row
    }
    assert [row.get("val/roll/ep_rew/mean") for row in again] == [row.get("val/roll/ep_rew/mean") for row in rows]
    best = [epoch for epoch in scores if scores[epoch] >= max([scores[e] for e in scores if e < epoch], default=0)]
    assert checkpoint_set.names(seldom.checkpoints) == [f"epoch={epoch:02d}" for epoch in sorted({*best, 20})]
    assert len(checkpoint_set.names(often.checkpoints)) == 10 > len({*best, 20})


def test_checkpoints_on_a_cadence_of_their_own():
    _, run, _ = fit("max_timesteps=160", "eval_freq_epochs=null", "checkpoint_freq_epochs=4")
    assert {path.stem for path in run.checkpoints.glob("epoch=*.ckpt")} == {"epoch=04", "epoch=08", "epoch=10"}


def test_schedules_act_before_the_iteration_and_the_optimizer_follows():
    config = load_config("CartPole-v1", "ppo", [*BASE, "max_timesteps=160", "policy_lr=lin_0.01", "clip_range=0.3"])
    agent = build_agent(config, make_envs(config, 2))
    seen = []

    class Watch(ApplySchedules):
        def on_train_batch_start(self, trainer, agent, batch, index):
            super().on_train_batch_start(trainer, agent, batch, index)
            seen.append((agent.live.policy_lr, trainer.optimizers[0].param_groups[0]["lr"], agent.live.clip_range))

    build_trainer([Watch(), Stop(config, None, lambda agent: {})], enable_checkpointing=False).fit(agent)
    assert [lr for lr, _, _ in seen] == pytest.approx([0.01 * (1 - k / 10) for k in range(10)])
    assert all(lr == optimizer_lr and clip == 0.3 for lr, optimizer_lr, clip in seen)


def test_every_metric_that_is_emitted_is_declared_and_rows_are_about_200():
    _, _, rows = fit("max_timesteps=16000", "n_epochs=1", "eval_freq_epochs=200", "early_stop_on_eval_threshold=false")
    names = {name for row in rows for name in row}
    assert names <= set(load_metrics())
    assert 180 <= len(rows) <= 220
    steps = [row["train/clock/env_steps"] for row in rows]
    assert steps == sorted(steps)


def test_episode_statistics_are_the_raw_returns():
    """The predecessor reported shaped rewards as returns."""
    _, _, rows = fit("max_timesteps=3200", "normalize_reward=true", "eval_freq_epochs=null")
    last = [row for row in rows if "train/roll/ep_rew/mean" in row][-1]
    assert last["train/roll/ep_rew/mean"] == last["train/roll/ep_len/mean"] > 5
