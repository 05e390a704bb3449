"""The version has one place, pyproject.toml; what a report of a problem needs is printed without secrets."""

import json
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import yaml
from tiny_runs import SHORT, tiny_run

from stride.__main__ import run_command
from stride.commands import info

ROOT = Path(__file__).resolve().parent.parent
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_everything_that_names_a_version_names_this_one(capsys):
    assert run_command(["--version"]) == 0
    assert capsys.readouterr().out == f"stride {version('stride-rl')}\n" == f"stride {VERSION}\n"
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == VERSION and citation["authors"] == [{"name": "Stride contributors"}]
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0] == "Unreleased"
    released = [heading.partition(" - ")[0] for heading in headings[1:]]
    assert released[:1] in ([], [VERSION])  # before the first tag nothing is released
    assert ("date-released" in citation) == bool(released)


def test_info_reports_machine_and_run_without_secrets(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    run = tiny_run(**SHORT)
    facts = json.loads(run.config_json.read_text())
    capsys.readouterr()
    assert info.main([]) == 0 and "run " not in capsys.readouterr().out
    assert info.main([run.id]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["stride"].startswith(f"{VERSION}, commit ") and f"torch {version('torch')}" in lines["versions"]
    assert lines["run"].startswith("CartPole-v1:ppo, seed 1, finished") and "n_envs=2" in lines["changes"]
    assert re.fullmatch("hash [0-9a-f]{12}", lines["config"]) and "then" not in lines
    secret = "hf_abcdefghijklmnopqrstuvwxyz123456"
    facts |= {"status": "failed", "failure": "mine: no", "changes": [f"notes={secret}"]}
    facts |= {"versions": {"torch": "1.0\x1b"}}
    run.config_json.write_text(json.dumps(facts))
    assert info.main([run.id]) == 0
    printed = capsys.readouterr().out
    assert secret not in printed and "changes     left out: it looks like a Hugging Face token" in printed
    assert "failure     mine: no" in printed and "then        torch 1.0\\x1b" in printed
