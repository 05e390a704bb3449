"""A run repeats, to the bit or within a tolerance, or it is said where it first does not."""

import pytest
import torch
from tiny_runs import tiny_run

from agents.playing.loading import read_checkpoint
from scripts.plain_tree import differences, fingerprint
from scripts.verify_run import main
from utils import checkpoint_set
from utils.durable_file import read_json, write_json
from utils.user_error import UserError


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    return tiny_run()


def change(run, **sidecar):
    """Nudge a weight of the first checkpoint, with a sidecar that vouches for it."""
    path = run.checkpoints / "epoch=02.ckpt"
    state = read_checkpoint(path)
    state["state_dict"]["policy.head.linear.bias"] += sidecar.pop("by", 0.0)
    torch.save(state, path)
    write_json(path.with_suffix(".json"), {**checkpoint_set.facts_of(path), **checkpoint_set.digest(path), **sidecar})


def test_a_run_repeats(run, capsys):
    for words in ([], ["--iterations", "3"], ["--iterations", "4"]):
        assert main([run.id, *words]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == "identical"


def test_a_difference_is_named_and_measured(run, capsys):
    change(run, by=1e-6, cpu="another")
    assert main([run.id]) == 0
    told = capsys.readouterr().out
    assert "state_dict.policy.head.linear.bias differs by up to 9" in told and "same within tolerance" in told
    assert "warning: cpu was another, is " in told
    assert main([run.id, "--tolerance", "1e-9"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "different"


def test_another_seed_is_different_from_the_first_row_on(run, capsys):
    facts = read_json(run.config_json)
    write_json(run.config_json, {**facts, "config": {**facts["config"], "seed": 2}})
    assert main([run.id]) == 1
    assert "0.train/loss/policy is " in capsys.readouterr().out


def test_what_cannot_be_repeated_is_refused(run):
    with pytest.raises(UserError, match="no checkpoint before iteration 2"):
        main([run.id, "--iterations", "1"])
    write_json(run.config_json, {**read_json(run.config_json), "parent": {"run": "other"}})
    with pytest.raises(UserError, match="is a fork of other"):
        main([run.id])


def test_trees_are_compared_leaf_by_leaf():
    one = {"a": torch.tensor([1.0, 2.0]), "b": [1, {"c": "x"}], "d": {}}
    same = {"d": {}, "b": [1, {"c": "x"}], "a": torch.tensor([1.0, 2.0])}
    assert differences(one, same) == [] and fingerprint(one) == fingerprint(dict(one))
    other = {"a": torch.tensor([1.0, 2.5]), "b": [2, {"c": "y"}]}
    assert [(d.name, d.size) for d in differences(one, other)] == [
        ("d", float("inf")), ("a", 0.5), ("b.0", 1), ("b.1.c", float("inf"))]  # fmt: skip
    assert differences({"a": torch.zeros(1)}, {"a": torch.zeros(2)})[0].words == "is another tensor"
    assert differences({"a": torch.tensor([-0.0])}, {"a": torch.tensor([0.0])})[0].size == 0.0, "bits, not values"


def test_the_rows_of_a_memory_are_compared_however_they_were_saved(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    small = {"train_freq": 16, "gradient_steps": 1, "batch_size": 4, "learning_starts": 0, "epoch_iterations": 1}
    small |= {"buffer_size": 200, "hidden_dims": 8, "checkpoint_freq_epochs": 1, "n_steps": None, "max_timesteps": 320}
    remembering = tiny_run("CartPole-v1:dqn", **small)
    config = read_json(remembering.config_json)
    config["config"]["checkpoint_freq_epochs"] = 3  # so that the segments are others
    write_json(remembering.config_json, config)
    assert main([remembering.id, "--iterations", "9"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "identical"
    config["config"]["gamma"] = 0.5
    write_json(remembering.config_json, config)
    assert main([remembering.id, "--iterations", "9"]) == 1
