"""ONNX and torch files of every kind of policy, held against the player; and read where there is no Stride."""

import json
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from untrained_runs import untrained

from stride.export import files, onnx_file, torch_file
from stride.export.graph import deployed
from stride.export.verify import DifferenceError, compare, samples

pytestmark = pytest.mark.slow

CASES = {
    "ppo": ("CartPole-v1:ppo", "normalize_obs=true"),
    "continuous": ("Pendulum-v1:ppo", "normalize_obs=true"),
    "images": ("CartPole-v1:ppo_pixels",),
    "lstm": ("CartPole-v1:ppo_lstm",),
    "gru": ("CartPole-v1:ppo_lstm", "policy=gru", "share_trunk=true"),
    "dqn": ("CartPole-v1:dqn", "dueling=true", "quantiles=3"),
    "pqn": ("CartPole-v1:pqn",),
    "sac": ("Pendulum-v1:sac", "normalize_obs=true"),
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


@pytest.mark.parametrize("case", [*CASES, *EXOTIC])
def test_a_torch_file_answers_as_the_player_does(case):
    assert likeness_of(torch_file, case).worst < 1e-5


@pytest.mark.parametrize("case", ["images", "lstm", "dqn", "sac", "masked"])
def test_an_onnx_file_answers_as_the_player_does(case):
    pytest.importorskip("onnxruntime", reason="needs pip install 'stride-rl[export]'")
    assert likeness_of(onnx_file, case).worst < 1e-5


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
    words = r"policy.pt2 was not written: at observation \d+ of 50 its action is \[.*\], .* apart, at most 1e-05"
    with pytest.raises(DifferenceError, match=words):
        files.export(loaded, "torch", path, print)
    assert path.read_bytes() == good and [*tmp_path.iterdir()] == [path]


TORCH = """
import json, sys, torch
facts = {"stride.json": ""}
policy = torch.export.load(sys.argv[1], extra_files=facts).module()
obs = torch.linspace(-1, 1, 10).view(5, 2)
h = (torch.zeros(5, 64), torch.zeros(5, 64))
answer = policy(obs, h, torch.ones(5, dtype=torch.bool))
again = policy(obs, answer["state"], torch.zeros(5, dtype=torch.bool))
"""
ONNX = """
import json, sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
facts = session.get_modelmeta().custom_metadata_map
assert [each.shape[0] for each in session.get_inputs()] == ["batch"] * 4
assert [each.shape[0] for each in session.get_outputs()] == ["batch"] * 4
names = [each.name for each in session.get_outputs()]
obs = numpy.linspace(-1, 1, 10, dtype="float32").reshape(5, 2)
def policy(obs, h, first):
    found = session.run(names, {"obs": obs, "state_0": h[0], "state_1": h[1], "is_first": first})
    return {**dict(zip(names, found)), "state": found[2:]}
h = numpy.zeros((2, 5, 64), "float32")
answer = policy(obs, h, numpy.ones(5, bool))
again = policy(obs, answer["state"], numpy.zeros(5, bool))
"""
TOLD = """
(facts,) = facts.values()
told = [each["probability"].tolist() for each in (answer, again)]
stride = [name for name in sys.modules if name.partition(".")[0] in ("agents", "envs_gym", "export", "config")]
print(json.dumps([json.loads(facts), told, stride]))
"""


@pytest.mark.parametrize(("module", "script"), [(torch_file, TORCH), (onnx_file, ONNX)], ids=["torch", "onnx"])
def test_it_is_read_without_stride_five_worlds_at_once(tmp_path, module, script):
    """The first step of five episodes, and one more from the state that came out."""
    if module is onnx_file:
        pytest.importorskip("onnxruntime", reason="needs pip install 'stride-rl[export]'")
    loaded = run_of("lstm")
    policy = deployed(loaded)
    path = tmp_path / "policy"
    path.write_bytes(module.content(policy, files.facts_of(loaded, policy)))
    words = [sys.executable, "-I", "-W", "ignore", "-c", script + TOLD, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    facts, told, of_stride = json.loads(done.stdout.splitlines()[-1])
    assert of_stride == [] and facts["env_id"] == "CartPole-v1" and facts["inputs"][0]["shape"] == [2]
    run = torch_file.runner(torch_file.content(policy, {}), policy.face)
    for world in range(5):
        obs = [world * 4 / 9 - 1, world * 4 / 9 - 1 + 2 / 9]
        first = run(policy.face.fed(obs, policy.face.empty(), True))
        after = run(policy.face.fed(obs, policy.face.handed_on(first), False))
        for mine, here in zip((told[0][world], told[1][world]), (first, after), strict=True):
            assert mine == pytest.approx(here["probability"][0].tolist(), abs=1e-5)
