"""The first tensor in which two runs differ, of checkpoints as they lie on the disk."""

import json

import pytest
import torch

from stride.agents.trained.tensors import first_tensor
from stride.commands import runs
from stride.runstore import checkpoint_set, run_files
from stride.runstore.run_dir import RunDir


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))


def run(name, *states):
    """A run whose checkpoints are these."""
    folder = RunDir.create("CartPole-v1", name, 1, {"env_id": "CartPole-v1", "variant": name, "seed": 1})
    for epoch, state in enumerate(states):
        path = folder.checkpoints / f"epoch={epoch:02d}.ckpt"
        with run_files.replacing(path) as file:
            torch.save(state, file)
        clock = {"epoch": epoch, "iterations": epoch + 1, "env_steps": 100 * (epoch + 1), "exported": 0}
        checkpoint_set.seal(path, {**checkpoint_set.digest(path), **clock}, ("last",))
    return folder


def state(weight=0.0, moment=0.0, shape=(2, 3)):
    weights = torch.zeros(shape)
    weights[-1, -1] = weight
    moments = [{"moment": torch.full((4,), moment)}]
    return {"optimizer": moments, "state_dict": {"bias": torch.ones(2), "weight": weights}}


def test_the_earliest_checkpoint_counts_and_weights_come_first():
    mine = run("mine", state(), state(1.5), state(9.0))
    assert first_tensor(mine, run("same", state(), state(1.5))) == {"checkpoints": ["epoch=00", "epoch=01"]}
    result = first_tensor(mine, run("other", state(), state(1.0, moment=2.0), state(0.0)))
    expected = {"checkpoint": "epoch=01", "name": "state_dict.weight", "place": [1, 2], "first": "1.5", "second": "1"}
    expected |= {"most": 0.5, "differing": 2, "tensors": 3}
    assert result.items() >= expected.items()


def test_a_nan_is_like_itself_and_the_sign_of_zero_counts():
    mine = run("mine", state(float("nan")))
    assert "name" not in first_tensor(mine, run("same", state(float("nan"))))
    assert first_tensor(mine, run("other", state(-0.0)))["name"] == "state_dict.weight"
    assert first_tensor(run("zero", state(0.0)), run("minus", state(-0.0)))["differing"] == 1


def test_shapes_and_missing_tensors_are_differences(capsys):
    mine, wider = run("mine", state()), run("wider", state(shape=(2, 4)))
    assert first_tensor(mine, wider)["second"] == "shape [2, 4]"
    assert first_tensor(mine, run("bare", {"state_dict": {"bias": torch.ones(2)}}))["second"] == "none"
    for folder in (mine, wider):
        folder.metrics_csv.write_text("train/clock/env_steps,train/loss/policy\n1,2\n")
    assert runs.main(["diff", mine.id, wider.id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tensor"]["most"] is None
    assert runs.main(["diff", mine.id, wider.id]) == 0
    assert "tensor state_dict.weight of epoch=00 is the first that differs" in capsys.readouterr().out
