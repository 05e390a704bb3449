"""When rows are due, however a run is interrupted, and where the time went; what is told between two rows."""

import threading
import time
from itertools import groupby

import pytest
import torch
from tiny_runs import tiny_run

from stride.agents.base import Agent
from stride.agents.engines.choice import build_agent
from stride.agents.experience.collector import EpisodeTally
from stride.agents.ppo import PPO
from stride.commands import train
from stride.config.loader import load_config
from stride.envs_gym.make import make_envs
from stride.runstore.metrics_table import read_csv
from stride.runstore.outcome import PHASES, PREFIX, phases_text, shares
from stride.trainer_callbacks import pulse
from stride.trainer_callbacks.evaluate import Evaluate
from stride.trainer_callbacks.export_metrics import EARLIEST_ROW, ROWS_OF_RUN, ExportMetrics, early_rows, row_every
from stride.trainer_callbacks.session import build_trainer
from stride.trainer_callbacks.sink import Sink
from stride.trainer_callbacks.stop import Stop

DQN = {"n_envs": 1, "n_steps": None, "train_freq": 4, "gradient_steps": 1, "learning_starts": 100, "batch_size": 8}
DQN |= {"hidden_dims": 8, "eval_freq_epochs": "null", "buffer_size": 1000, "test_episodes": 2}
ITERATIONS = "train/clock/iterations"


def rows_of(run):
    """Its rows without what the wall's clock says."""
    return [{k: v for k, v in row.items() if "/time/" not in k} for row in read_csv(run.metrics_csv)]


def test_a_long_run_is_told_of_early_too():
    every = row_every(1_000_000, 1.0)
    assert every == 1_000_000 / ROWS_OF_RUN
    early = sorted(early_rows(every))
    assert early == [19, 39, 78, 156, 312, 625, 1250, 2500] and early[0] < 2 * EARLIEST_ROW
    assert not early_rows(row_every(150_000, 256.0))  # rollouts are long: nothing is added


def test_rows_lie_at_fixed_steps_however_slow_the_machine_and_wherever_it_was_stopped(monkeypatch, stopped_at):
    words = {**DQN, "max_timesteps": 2400}  # a row every 3 iterations
    monkeypatch.setattr("stride.trainer_callbacks.export_metrics.early_rows", lambda every: {2})
    straight = rows_of(tiny_run("CartPole-v1:dqn", **words))
    assert [row[ITERATIONS] for row in straight[:3]] == [2, 3, 6]
    stopped = stopped_at(40, "CartPole-v1:dqn", **words)
    assert train.command(["--resume", stopped.id, "-q"]) == 0
    assert rows_of(stopped) == straight
    step = Agent.training_step

    def slow(agent, dataloader_iter):
        step(agent, dataloader_iter)
        if agent.progress["iterations"] % 100 == 0:
            time.sleep(0.02)

    monkeypatch.setattr(Agent, "training_step", slow)
    assert rows_of(tiny_run("CartPole-v1:dqn", **words)) == straight


def test_a_cadence_of_epochs_is_one_of_epochs():
    words = {"max_timesteps": 800, "epoch_iterations": 25, "log_freq_epochs": 2, "test_episodes": 0}
    rows = rows_of(tiny_run("CartPole-v1:dqn", **{**DQN, **words}))
    assert [row[ITERATIONS] for row in rows] == [50, 100, 150, 200]


# ---- where the time went

TIMED = {"n_steps": 16, "eval_freq_epochs": 3, "log_freq_epochs": 2, "max_timesteps": 320}


def check(run):
    """Every row's shares, and those of the whole run, are 1 together; the report tells the latter."""
    rows = read_csv(run.metrics_csv)
    for row in rows:
        phases = [row[PREFIX + phase] for phase in PHASES]
        assert min(phases) >= 0 and sum(phases) == pytest.approx(1.0, abs=1e-6)
    whole = run.facts()["outcome"]["phases"]
    assert set(whole) == {*PHASES} and sum(whole.values()) == pytest.approx(1.0)
    assert f"Time: {phases_text(whole)}." in run.report.read_text()
    return rows


@pytest.mark.parametrize("engine", ["fused_cpu", "eager"])
def test_the_shares_of_every_row_are_one_together(engine):
    run = tiny_run(**TIMED, engine=engine)
    rows = check(run)
    for row in rows:
        plays = "val/roll/episodes" in row or "test/roll/episodes" in row
        assert (row[f"{PREFIX}evaluate"] > 0) == plays
    assert rows[-1]["test/roll/episodes"] == 100
    assert rows[-1][f"{PREFIX}save"] > 0, "the last checkpoint is written before the test"
    assert min(run.facts()["outcome"]["phases"].values()) > 0


def test_a_resumed_run_counts_what_was_spent_before_if_it_is_known(monkeypatch):
    with monkeypatch.context() as patch:  # an older version wrote no seconds
        patch.setattr(ExportMetrics, "on_save_checkpoint", lambda *arguments: None)
        run = tiny_run(**TIMED)
    assert train.command(["--resume", run.id, "max_timesteps=480", "-q"]) == 0
    check(run)
    loaded = ExportMetrics.on_load_checkpoint

    def noted(self, trainer, agent, checkpoint):
        checkpoint["seconds"] = {"learn": 1000.0, "of a later version": 1.0}
        loaded(self, trainer, agent, checkpoint)
        assert self._past_seconds == {**dict.fromkeys(PHASES, 0.0), "learn": 1000.0}

    monkeypatch.setattr(ExportMetrics, "on_load_checkpoint", noted)
    assert train.command(["--resume", run.id, "max_timesteps=640", "-q"]) == 0
    rows = check(run)
    assert run.facts()["outcome"]["phases"]["learn"] > 0.9
    first = next(row for row in rows if row["train/clock/env_steps"] > 480)
    assert first[f"{PREFIX}learn"] < 0.99, "a row tells of its own time"


def test_the_line_begins_with_the_largest_and_leaves_out_what_is_nothing():
    parts = shares({"collect": 20.0, "learn": 61.2, "evaluate": 12.0, "save": 0.1, "other": 6.7})
    assert phases_text(parts) == "learn 61 %, collect 20 %, evaluate 12 %, other 7 %"
    assert shares(dict.fromkeys(PHASES, 0.0)) == {} and phases_text({}) == ""


# ---- between two rows whoever looks on is told how far it is, also inside an iteration that takes long


class Notes(Sink):
    """Notes beats and rows, and that no two calls come at once."""

    def __init__(self):
        self.beats, self.clocks, self.rows, self.threads, self.busy = [], [], [], set(), threading.Lock()

    def beat(self, clock, doing):
        assert self.busy.acquire(blocking=False), "two calls at once"
        self.beats.append((clock["env_steps"], doing))
        self.clocks.append(dict(clock))
        self.threads.add(threading.current_thread())
        self.busy.release()

    def row(self, row):
        assert self.busy.acquire(blocking=False), "two calls at once"
        self.rows.append((len(self.beats), row["train/clock/env_steps"]))
        time.sleep(0.02)
        self.busy.release()


class Failing(Sink):
    def beat(self, clock, doing):
        raise OSError("the tracker is offline")


@pytest.fixture
def trained(monkeypatch):
    monkeypatch.setattr(pulse, "BEAT_SECONDS", 0.02)

    def train(sink, *words):
        slow = ["env_id=async_worlds:stride-test/Slow-v0", "env_kwargs.seconds=0.01", "spec={}"]
        small = ["n_envs=2", "n_steps=20", "batch_size=1.0", "eval_episodes=4", "eval_warmup_epochs=0"]
        config = load_config("CartPole-v1", "ppo", [*slow, *small, *words])
        evaluate = Evaluate(config, lambda n: make_envs(config, n))
        export = ExportMetrics(evaluate, [sink])
        stop = Stop(config, None, lambda agent: {}, lambda: export.row)
        try:
            agent = build_agent(config, make_envs(config, config.n_envs))
            build_trainer([evaluate, export, stop], enable_checkpointing=False).fit(agent)
        finally:
            export.end(None)

    return train


def test_env_steps_move_inside_an_iteration_and_an_evaluation_is_named(trained):
    sink = Notes()
    trained(sink, "eval_freq_epochs=1", "max_timesteps=80")
    steps = [env_steps for env_steps, _ in sink.beats]
    inside = steps[: sink.rows[0][0]]  # all of the first iteration
    assert len(set(inside)) > 1 and max(inside) <= 40
    assert steps == sorted(steps) and all(env_steps % 2 == 0 for env_steps in steps)
    words = {doing for _, doing in sink.beats}
    assert "" in words and {"evaluating 0 of 4 episodes", "evaluating 2 of 4 episodes"} <= words
    assert max(clock["more_seconds"] for clock in sink.clocks) >= 1, "the test to come, 100 episodes"
    assert [env_steps for _, env_steps in sink.rows] == [40, 80]
    assert threading.main_thread() not in sink.threads and not any(thread.is_alive() for thread in sink.threads)


def test_learning_says_how_many_of_its_passes_are_done(trained, monkeypatch):
    update = PPO.update

    def slow_update(agent, batch):
        time.sleep(0.4)
        return update(agent, batch)

    monkeypatch.setattr(PPO, "update", slow_update)
    sink = Notes()
    trained(sink, "engine=eager", "n_epochs=3", "max_timesteps=40", "eval_freq_epochs=null")
    learning = [doing for env_steps, doing in sink.beats if env_steps == 40]
    passes = [f"learning {number} of 3 epochs" for number in (1, 2, 3)]
    assert [doing for doing, _ in groupby(filter(None, learning))] == passes
    seconds = [clock["more_seconds"] for clock, (_, doing) in zip(sink.clocks, sink.beats, strict=True)
               if doing == "learning 2 of 3 epochs"]  # fmt: skip
    assert max(seconds) >= 1, "two passes of 0.4 seconds or more"


def test_what_a_sink_raises_between_two_rows_ends_the_training(trained, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda args: None)  # run.log's
    with pytest.raises(RuntimeError, match="a sink failed between two rows"):
        trained(Failing(), "log_freq_epochs=100", "max_timesteps=400", "eval_freq_epochs=null")


def test_the_fraction_of_a_test_counts_steps_of_episodes_that_still_run():
    """5 episodes in 2 worlds: up to three in a world, one after the other."""
    tally, numbers = EpisodeTally(5, 2), torch.tensor([4.0, 4.0])
    tally.steps = 3
    assert tally.fraction == 0, "nobody knows how long they are"
    tally.steps = 4
    tally.add([0, 1], numbers, numbers, None)
    assert tally.fraction == pytest.approx(1 / 3)
    tally.steps = 6
    assert tally.fraction == pytest.approx(1 / 2)
    tally.steps = 20
    assert tally.fraction == 1
