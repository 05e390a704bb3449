"""scripts/export.py as a person calls it: a real run in, a verified file out, or one line."""

import json
import re

import pytest
import torch
from tiny_runs import tiny_run
from untrained_runs import untrained

from stride.commands import run_arguments as words
from stride.commands.export import command
from stride.export.decisions import decider
from stride.export.graph import deployed
from stride.utils.user_error import UserError


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRIDE_RUNS", str(tmp_path_factory.mktemp("runs")))
        yield tiny_run("CartPole-v1:ppo", hidden_dims="[8]")


def test_a_run_becomes_a_file(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command(["@last", "--torch", "--time"]) == 0
    said = capsys.readouterr().out
    assert re.search(
        r"verified   at most \d\.\de[-+]\d\d from the policy on 1,000 observations of \d+ real episodes", said
    )
    assert "; all actions equal" in said and re.search(r"a call     \d+\.\d{3} ms, torch \d+\.\d{3} ms", said)
    stored = {"stride.json": ""}
    torch.export.load(tmp_path / "CartPole-v1-ppo.pt2", extra_files=stored)
    facts = json.loads(stored["stride.json"])
    assert (facts["run"], facts["env_id"]) == (run.id, "CartPole-v1") and "observation_space" in facts


WRONG = [
    ([], r"one of the arguments --onnx --torch is required"),
    (["@last", "--c", "--out", "policy.h"], r"^error: --c was removed: export --onnx; onnx2c makes C of it$"),
    (["--torch", "--tyme"], r"unknown argument '--tyme'; did you mean --time\?"),
    (["nothing", "--torch"], r"no run 'nothing'"),
    (["group:x", "--torch"], r"is a group of runs, and one run is wanted here"),
    (["--torch", "--checkpoint", "epoch=99"], r"has no .*epoch=99|epoch=99"),
    (["--torch", "--out", "policy.onnx"], r"--torch writes \.pt2 files: --out policy\.pt2, not policy\.onnx"),
    (["--torch", "--out", "nowhere/policy.pt2"], r"there is no folder .*nowhere"),
]


@pytest.mark.parametrize(("argv", "said"), WRONG, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_wrong_words_are_one_line(run, capsys, argv, said):
    assert command(argv) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and re.search(said, lines[0]), lines


def test_a_package_that_is_not_there_is_named_with_its_cure(monkeypatch):
    monkeypatch.setattr(words, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"--onnx needs onnx: pip install 'stride-rl\[export\]'"):
        words.parse_export(["--onnx"])
    assert words.parse_export(["--torch"]).kind == "torch"


def test_a_policy_that_searches_is_refused():
    with pytest.raises(UserError, match=r"plans by a search at every step, .* PPO, .* can be exported"):
        decider(untrained("CartPole-v1:planet").agent.policy)


def test_a_policy_that_chooses_in_its_own_way_is_refused():
    policy = untrained("CartPole-v1:ppo").agent.policy
    policy.__class__ = type("Bold", (type(policy),), {"act": lambda *given: None})
    with pytest.raises(UserError, match="Bold chooses in a way of its own"):
        decider(policy)


def test_half_precision_is_refused():
    with pytest.raises(UserError, match="precision: bf16 and plays in it"):
        deployed(untrained("CartPole-v1:ppo", "precision=bf16"))
