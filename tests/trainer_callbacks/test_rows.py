"""When rows are due: by the run's own clock, from the first iterations on, however and wherever it is interrupted."""

import time

from tiny_runs import tiny_run

from stride.agents.base import Agent
from stride.commands import train
from stride.runstore.metrics_table import read_csv
from stride.trainer_callbacks.export_metrics import FIRST, ROWS, early_rows, row_every

DQN = {"n_envs": 1, "n_steps": None, "train_freq": 4, "gradient_steps": 1, "learning_starts": 100, "batch_size": 8}
DQN |= {"hidden_dims": 8, "eval_freq_epochs": "null", "buffer_size": 1000, "test_episodes": 2}
ITERATIONS = "train/clock/iterations"


def rows_of(run):
    """Its rows without what the wall's clock says."""
    return [{k: v for k, v in row.items() if "/time/" not in k} for row in read_csv(run.metrics_csv)]


def test_two_thousand_steps_of_dqn_are_told_from_the_first_iterations_on():
    """They were one row: an epoch of a replay algorithm is 1,000 iterations, and these are 500."""
    rows = rows_of(tiny_run("CartPole-v1:dqn", **{**DQN, "max_timesteps": 2000}))
    assert 180 <= len(rows) <= 260 and rows[0][ITERATIONS] == 2
    assert rows[-1]["train/clock/env_steps"] == 2000


def test_a_long_run_is_told_of_early_too():
    every = row_every(1_000_000, 1.0)
    assert every == 1_000_000 / ROWS
    early = sorted(early_rows(every))
    assert early == [19, 39, 78, 156, 312, 625, 1250, 2500] and early[0] < 2 * FIRST
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
