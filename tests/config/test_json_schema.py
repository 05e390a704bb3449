"""The JSON Schema that editors read: every shipped file is right by it, what the loader refuses is not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from refusals import refusal

from stride.commands.schema import text
from stride.config.json_schema import schema
from stride.config.loader import load_file, shipped_files
from stride.config.schema import ALGORITHMS
from stride.config.yaml_file import read_yaml

ROOT = Path(__file__).resolve().parents[2]
WRITTEN = json.loads(text())
SHIPPED = shipped_files().values()
WRONG_KEYS = [
    "gamma: 1.5", "clip_rang: 0.2", "buffer_size: 100", "policy_lr: wavy_0.1", "spec: {gaol: 3}",
    "spec: {observations: [{low: 3}]}", "activation: relu6", "normalize_obs: sometimes",
    "algo_id: sac, clip_range: 0.2",
]  # fmt: skip
WRONG = [
    *(f"ppo: {{max_timesteps: 1e5, {words}}}" for words in WRONG_KEYS),
    *(f"{words}\nppo: {{max_timesteps: 1e5}}" for words in ("gama: 0.9", "n_envs: many", "n_envs: 0")),
    "mine: {algo_id: dqn, max_timesteps: 1e5, clip_range: 0.2}",
    "my variant: {algo_id: ppo, max_timesteps: 1e5}",
    "mine: {algo_id: ppoo, max_timesteps: 1e5}",
]
RIGHT = [
    "ppo: {max_timesteps: '100_000', policy_lr: lin_3e-4, hidden_dims: 64, normalize_obs: true, batch_size: 0.25}",
    "_base: {n_envs: 4}\n_mine: {x: 1}\nppo: {max_timesteps: 1e5, clip_range: {kind: linear, start_value: 0.2}}",
    "mine: {algo_id: dqn, max_timesteps: 1e5, buffer_size: 1000}\nppo: {_inherit_: mine, max_timesteps: 2e5}",
    "ppo: {max_timesteps: 1e5, policy_lr_schedule: cosine, policy_lr_schedule_end: 0.5, resize_obs: [84, 84]}",
    "q_learning: {max_timesteps: 1e5}",
]


def faults(data):
    jsonschema = pytest.importorskip("jsonschema", reason="Jupyter's and Ray's packages bring it")
    return [error.message for error in jsonschema.Draft7Validator(WRITTEN).iter_errors(data)]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_file_names_it(path):
    assert path.read_text().startswith("# yaml-language-server: $schema=../schema.json\n")


@pytest.mark.slow
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_file_is_right_by_it(path):
    assert faults(read_yaml(path)) == []


@pytest.mark.slow
@pytest.mark.parametrize("words", [*WRONG, *RIGHT])
def test_what_the_loader_takes_is_right_by_it_and_nothing_else(words, tmp_path):
    path = tmp_path / "CartPole-v1.yaml"
    path.write_text(words)
    if words in WRONG:
        refusal(load_file, path)
    else:
        load_file(path, "ppo" if "ppo:" in words else "")
    assert bool(faults(read_yaml(path))) == (words in WRONG)


def test_every_key_has_its_meaning():
    made = schema()
    assert made == WRITTEN  # all of it survives JSON
    assert all(entry["description"] for entry in made["definitions"]["keys"].values())
    assert made["definitions"]["keys"]["gamma"] | {"description": ""} == {
        "description": "", "default": 0.99,
        "anyOf": [{"type": "number", "minimum": 0, "maximum": 1},
                  {"type": "string", "pattern": made["definitions"]["keys"]["gamma"]["anyOf"][1]["pattern"]}],
    }  # fmt: skip
    assert {*ALGORITHMS} <= made["definitions"].keys()


def test_it_is_printed_without_torch():
    code = "import sys; from stride.commands.schema import main; main([]); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == WRITTEN
