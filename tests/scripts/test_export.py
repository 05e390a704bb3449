"""scripts/export.py as a person calls it: a real run in, a verified file out, or one line."""

import json
import re

import pytest
import torch
from gallery import gallery_copy
from snapshots import shown
from untrained_runs import untrained

from stride.commands import run_arguments as words
from stride.commands.export import command
from stride.export.decisions import decider
from stride.export.graph import deployed
from stride.utils.user_error import UserError

WRONG = """
(nothing)
@last --c --out policy.h
--torch --tyme
nothing --torch
group:x --torch
--torch --checkpoint epoch=99
--torch --out policy.onnx
--torch --out nowhere/policy.pt2
"""


def test_a_run_becomes_a_file_and_wrong_words_one_line(root, tmp_path, monkeypatch, capsys, snapshot):
    run = gallery_copy("ppo", root)
    monkeypatch.chdir(tmp_path)
    assert command(["@last", "--torch", "--time"]) == 0
    out = capsys.readouterr().out
    verified = r"verified   at most \d\.\de[-+]\d\d from the policy on 1,000 observations of \d+ real episodes"
    assert re.search(verified, out) and "; all actions equal" in out
    assert re.search(r"a call     \d+\.\d{3} ms, torch \d+\.\d{3} ms", out)
    stored = {"stride.json": ""}
    torch.export.load(tmp_path / "CartPole-v1-ppo.pt2", extra_files=stored)
    facts = json.loads(stored["stride.json"])
    assert (facts["run"], facts["env_id"]) == (run.id, "CartPole-v1") and "observation_space" in facts
    lines = {}
    for line in WRONG.strip().splitlines():
        assert command(line.replace("(nothing)", "").split()) == 2
        lines[line] = shown(capsys.readouterr().err)
        assert "\n" not in lines[line]
    assert lines == snapshot


def test_a_package_that_is_not_there_is_named_with_its_cure(monkeypatch):
    monkeypatch.setattr(words, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"--onnx needs onnx: pip install 'stride-rl\[export\]'"):
        words.parse_export(["--onnx"])
    assert words.parse_export(["--torch"]).kind == "torch"


def test_policies_that_cannot_be_exported_are_refused():
    with pytest.raises(UserError, match=r"plans by a search at every step, .* PPO, .* can be exported"):
        decider(untrained("CartPole-v1:planet").agent.policy)
    policy = untrained("CartPole-v1:ppo").agent.policy
    policy.__class__ = type("Bold", (type(policy),), {"act": lambda *given: None})
    with pytest.raises(UserError, match="Bold chooses in a way of its own"):
        decider(policy)
    with pytest.raises(UserError, match="precision: bf16 and plays in it"):
        deployed(untrained("CartPole-v1:ppo", "precision=bf16"))
