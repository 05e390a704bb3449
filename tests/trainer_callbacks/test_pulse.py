"""Between two rows whoever looks on is told how far it is, also inside an iteration that takes long."""

import threading
import time

import pytest

from stride.agents.engines.choice import build_agent
from stride.config.loader import load_config
from stride.envs_gym.make import make_envs
from stride.trainer_callbacks import pulse
from stride.trainer_callbacks.evaluate import Evaluate
from stride.trainer_callbacks.export_metrics import ExportMetrics
from stride.trainer_callbacks.session import build_trainer
from stride.trainer_callbacks.sink import Sink
from stride.trainer_callbacks.stop import Stop


class Notes(Sink):
    """Notes beats and rows, and that no two calls come at once."""

    def __init__(self):
        self.beats, self.rows, self.threads, self.busy = [], [], set(), threading.Lock()

    def beat(self, clock, playing):
        assert self.busy.acquire(blocking=False), "two calls at once"
        self.beats.append((clock["env_steps"], playing))
        self.threads.add(threading.current_thread())
        self.busy.release()

    def row(self, row):
        assert self.busy.acquire(blocking=False), "two calls at once"
        self.rows.append((len(self.beats), row["train/clock/env_steps"]))
        time.sleep(0.02)
        self.busy.release()


class Failing(Sink):
    def beat(self, clock, playing):
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
    assert {playing for _, playing in sink.beats} == {"", "evaluation"}
    assert [env_steps for _, env_steps in sink.rows] == [40, 80]
    assert threading.main_thread() not in sink.threads and not any(thread.is_alive() for thread in sink.threads)


def test_what_a_sink_raises_between_two_rows_ends_the_training(trained, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda args: None)  # run.log's
    with pytest.raises(RuntimeError, match="a sink failed between two rows"):
        trained(Failing(), "log_freq_epochs=100", "max_timesteps=400", "eval_freq_epochs=null")
