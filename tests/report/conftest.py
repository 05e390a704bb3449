"""Runs of these tests are in a folder of their own, and no tracker is configured."""

import os

import pytest


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """The folder of all runs."""
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    for name in [name for name in os.environ if name.startswith(("WANDB_", "TRACKIO_"))]:
        monkeypatch.delenv(name)
    return tmp_path / "runs"
