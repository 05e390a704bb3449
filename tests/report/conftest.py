"""Runs of these tests are in a folder of their own."""

import pytest


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """The folder of all runs."""
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"
