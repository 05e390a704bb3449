"""A process that died between its checkpoint and the links to it: the next one makes them."""

import pytest
from tiny_runs import tiny_run

from stride.commands import train
from stride.runstore import checkpoint_set
from stride.runstore.run_dir import RunDir
from stride.utils.durable_file import read_json, write_json

ENV = "FrozenLake-v1:q_learning"


@pytest.mark.parametrize("gone", [("last", "best"), ("last",)])
def test_the_only_checkpoint_gets_its_links(gone, tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    run = tiny_run(ENV, batch_size=None, eval_freq_epochs="null")
    (stem,) = checkpoint_set.names(run.checkpoints)
    for link in gone:
        for path in run.checkpoints.glob(f"{link}.*"):
            path.unlink()
    write_json(run.config_json, {**read_json(run.config_json), "status": "running"})
    assert train.command(["--resume", run.id, "-q"]) == 0
    assert RunDir.find("@last").id == run.id
    assert [checkpoint_set.target(run.checkpoints / f"{link}.ckpt") for link in ("last", "best")] == [stem, stem]
