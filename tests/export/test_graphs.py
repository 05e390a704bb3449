"""ONNX and torch files of every kind of policy, held against the player and read where there is no Stride; the command
that a person calls, and docs/export.md."""

import json
import os
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import run_command
from gallery import gallery_copy
from snapshots import shown
from untrained_runs import untrained

from stride.commands import run_arguments as words
from stride.commands.export import command
from stride.export import files, onnx_file, torch_file
from stride.export.decisions import decider
from stride.export.graph import deployed
from stride.export.verify import DifferenceError, compare, samples
from stride.utils.user_error import UserError

CASES = {
    "ppo": ("CartPole-v1:ppo", "normalize_obs=true"),
    "continuous": ("Pendulum-v1:ppo", "normalize_obs=true"),
    "images": ("CartPole-v1:ppo_pixels",),
    "lstm": ("CartPole-v1:ppo_lstm",),
    "gru": ("CartPole-v1:ppo_lstm", "policy=gru", "share_trunk=true"),
    "mingru": ("CartPole-v1:ppo_lstm", "policy=mingru"),
    "transformer": ("CartPole-v1:ppo_lstm", "policy=transformer", "policy_kwargs.window=8"),
    "dqn": ("CartPole-v1:dqn", "dueling=true", "quantiles=3"),
    "pqn": ("CartPole-v1:pqn",),
    "sac": ("Pendulum-v1:sac", "normalize_obs=true"),
    "flash": ("Pendulum-v1:sac", "recipe=flash", "hidden_dims=[16]", "normalize_obs=true"),
    "two networks": ("CartPole-v1:ppo", "actor={norm:rms,hidden_dims:[16],blocks:2}", "critic.norm=layer"),
    "td3": ("Pendulum-v1:td3", "normalize_obs=true"),
    "tqc": ("Pendulum-v1:tqc",),
    "table": ("FrozenLake-v1:q_learning",),
    "dreamer": ("Pendulum-v1:dreamer",),
}
EXOTIC = {
    "masked": ("exotic_worlds:Masked-v0", "CartPole-v1:ppo", "normalize_obs=true"),
    "nested": ("exotic_worlds:Levers-v0", "CartPole-v1:ppo"),
    "integral": ("exotic_worlds:Dials-v0", "Pendulum-v1:sac"),
    "half bounded": ("exotic_worlds:Odd-v0", "CartPole-v1:ppo"),
    "large choices": ("exotic_worlds:Far-v0", "CartPole-v1:ppo"),
    "large numbers": ("exotic_worlds:Wide-v0", "CartPole-v1:ppo"),
}


def run_of(case):
    if case in CASES:
        return untrained(*CASES[case])
    env_id, *words = EXOTIC[case]
    return untrained(*words, env_id=env_id)


def policy_of(case):
    """(a run, its policy as it is exported, samples of what it answers)."""
    loaded = run_of(case)
    policy = deployed(loaded)
    return loaded, policy, samples(loaded, policy.face, 50)


def likeness_of(module, case):
    """How far the file of such a run is from its player."""
    loaded, policy, known = policy_of(case)
    data = module.content(policy, files.facts_of(loaded, policy))
    return compare(module.runner(data, policy.face), policy.face, known)


@pytest.mark.slow
@pytest.mark.parametrize("case", [*CASES, *EXOTIC])
def test_a_torch_file_answers_as_the_player_does(case):
    assert likeness_of(torch_file, case).worst < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("case", ["images", "lstm", "mingru", "transformer", "dqn", "sac", "masked"])
def test_an_onnx_file_answers_as_the_player_does(case):
    pytest.importorskip("onnxruntime", reason="needs pip install 'stride-rl[export]'")
    assert likeness_of(onnx_file, case).worst < 1e-5


@pytest.mark.slow
def test_a_flash_policy_is_played_by_its_running_statistics():
    """Batch norm, residual blocks, RMS norm: ONNX as near the player as float32 is to float64, for rows of length 1."""
    pytest.importorskip("onnxruntime", reason="needs pip install 'stride-rl[export]'")
    loaded = untrained(*CASES["flash"], spread=0.05)
    assert any(name.endswith("torso.0.var") and (x != 1).all() for name, x in loaded.agent.policy.state_dict().items())
    policy = deployed(loaded)
    data = onnx_file.content(policy, {})
    assert compare(onnx_file.runner(data, policy.face), policy.face, samples(loaded, policy.face, 50)).worst < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("forgetful", ["state", "is_first"])
def test_a_memory_that_is_not_kept_or_not_emptied_is_noticed(forgetful):
    _, policy, known = policy_of("lstm")
    run = torch_file.runner(torch_file.content(policy, {}), policy.face)

    def forgets(inputs):
        lost = {name: np.zeros_like(value) for name, value in inputs.items() if name.startswith(forgetful)}
        return run({**inputs, **lost})

    assert sum(sample.is_first for sample in known) > 1
    with pytest.raises(DifferenceError):
        compare(forgets, policy.face, known)


@pytest.mark.slow
def test_a_planted_fault_is_noticed_and_writes_no_file(tmp_path, monkeypatch):
    """A normaliser that is a little off: nothing is written, and what was there stays."""
    monkeypatch.setattr(files, "samples", partial(samples, observations=50))
    path, loaded = tmp_path / "policy.pt2", run_of("continuous")
    path.write_text("before")
    assert files.export(loaded, "torch", path, print).worst < 1e-5
    good = path.read_bytes()

    def faulty(loaded):
        policy = deployed(loaded)
        policy.module.decide.policy.encoder.leaf[0].mean[2] += 1e-3
        return policy

    monkeypatch.setattr(files, "deployed", faulty)
    words = r"at observation \d+ of 50 its action is \[.*\], the policy's \[.*\]: they differ by .*, allowed is"
    with pytest.raises(DifferenceError, match=words):
        files.export(loaded, "torch", path, print)
    assert path.read_bytes() == good and [*tmp_path.iterdir()] == [path]


@pytest.mark.slow
@pytest.mark.parametrize("module", [torch_file, onnx_file], ids=["torch", "onnx"])
def test_five_worlds_at_once_get_the_answers_of_each_alone(module):
    """The first step of five episodes, and one more from the states that came out."""
    if module is onnx_file:
        pytest.importorskip("onnxruntime", reason="needs pip install 'stride-rl[export]'")
    loaded, policy, _ = policy_of("lstm")
    face, states = policy.face, [policy.face.empty()] * 5
    run = module.runner(module.content(policy, files.facts_of(loaded, policy)), face)
    for is_first in (True, False):
        inputs_list = [face.inputs_for([world / 4, -world / 4], states[world], is_first) for world in range(5)]
        alone = [run(inputs) for inputs in inputs_list]
        together = run({name: np.concatenate([inputs[name] for inputs in inputs_list]) for name in inputs_list[0]})
        for name, answer in together.items():
            np.testing.assert_allclose(answer, np.concatenate([each[name] for each in alone]), atol=1e-5)
        states = [face.next_state(answer) for answer in alone]


# ---- the page, typed by a machine where there is no Stride


ROOT = Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.M | re.S)


@pytest.mark.slow
def test_everything_on_the_page_works(tmp_path):
    pytest.importorskip("onnxruntime", reason="needs pip install 'stride-rl[export]'")
    blocks = BLOCK.findall((ROOT / "docs" / "export.md").read_text())
    assert [kind for kind, _ in blocks] == ["sh", "python", "sh", "python", "python"]
    said = [line for block in blocks for line in carried_out(tmp_path, *block)]
    text = "\n".join(said)
    assert text.count("verified   at most") == 3 and text.count("; all actions equal") == 3 and "torch 0." in text
    assert "CartPole-v1 Box(" in text and '"env_id": "CartPole-v1"' in text and "torch.Size([3, 2])" in text
    assert re.search(r"^2 \[[01]\] \[\[", text, re.M)


def carried_out(folder, kind, text):
    """What a block says when it is typed in this folder."""
    if kind == "python":
        yield from done(folder, [sys.executable, "-I", "-W", "ignore", "-c", text])
    else:
        for line in text.splitlines():
            words = shlex.split(line)
            given = {"python": words[1:], "stride": ["-m", *words]}.get(words[0])
            yield from python(folder, given) if given else done(folder, words)


def done(folder, words):
    ended = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, f"{words}\n{ended.stdout}{ended.stderr}"
    return ended.stdout.splitlines()


def python(folder, words):
    """A command of the project, from another folder than its own."""
    words = [str(ROOT / words[0]), *words[1:]] if words[0] == "train.py" else words
    env = {**os.environ, "STRIDE_RUNS": str(folder / "runs"), "PYTHONPATH": str(ROOT)}
    ended = run_command(*words, cwd=folder, env=env, timeout=900)
    assert ended.returncode == 0, f"{words}\n{ended.stdout}{ended.stderr}"
    return ended.stdout.splitlines()


# ---- the command


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


def test_a_run_becomes_a_file_and_wrong_words_one_line(tmp_path, monkeypatch, capsys, snapshot):
    run = gallery_copy("ppo", tmp_path / "runs")
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
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
    with pytest.raises(UserError, match="Bold chooses in its own way"):
        decider(policy)
    with pytest.raises(UserError, match="precision: bf16 and plays in bf16"):
        deployed(untrained("CartPole-v1:ppo", "precision=bf16"))
