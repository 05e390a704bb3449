"""Trainings of these tests are in a folder of their own, and may be stopped where a test wants it."""

import os
import signal

import pytest
from tiny_runs import tiny_run

from stride.agents.base import Agent


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """The folder of all runs."""
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


@pytest.fixture
def stopped_at(monkeypatch):
    """A tiny training that a signal reaches before its iteration of that number."""
    step = Agent.training_step

    def train_until(iteration, *words, **changes):
        def signalled(agent, dataloader_iter):  # Lightning looks at the name
            if agent.progress["iterations"] == iteration:
                os.kill(os.getpid(), signal.SIGINT)
            step(agent, dataloader_iter)

        with monkeypatch.context() as patch:
            patch.setattr(Agent, "training_step", signalled)
            return tiny_run(*words, exit_code=128 + signal.SIGINT, **changes)

    return train_until
