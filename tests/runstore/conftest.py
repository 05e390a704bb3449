"""The folder of runs that tests of the run store write into."""

import pytest


@pytest.fixture
def root(tmp_path, monkeypatch):
    """$STRIDE_RUNS, which is not there yet."""
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"
