"""config/bands.json is what docs/results gives, and docs/results what its seeds give."""

import json

import pytest

from lab.evidence.bands import RESULTS, text
from lab.evidence.file import Evidence, summary
from stride.config.bands import FILE, of_variant


def test_the_evidence_is_what_the_seeds_say():
    paths = sorted(RESULTS.glob("*.json"))
    assert len(paths) > 20
    for path in paths:
        told, shown = json.loads(path.read_text())["summary"], summary(Evidence.read(path).finished())
        assert (told["solved"], told["finished"]) == (shown["solved"], shown["finished"]), path.name
        assert told["final"]["iqm"] == pytest.approx(shown["final"]["iqm"])


def test_the_bands_of_the_package_are_what_the_evidence_gives():
    assert FILE.read_text() == text(RESULTS), "stale: python -m lab.evidence.bands"
    for path in RESULTS.glob("*.json"):
        evidence_file = Evidence.read(path)
        band = of_variant(*evidence_file.variant.replace("/", "-").split(":"))
        assert band.solved == summary(evidence_file.finished())["solved"] and band.seeds == len(evidence_file.seeds)
        assert band.config == evidence_file.config and len(band.curves) <= band.seeds


def test_a_variant_of_other_settings_is_in_no_band(tmp_path):
    data = json.loads((RESULTS / "CartPole-v1-pqn.json").read_text())
    (tmp_path / "CartPole-v1-pqn.json").write_text(json.dumps(data))
    assert [*json.loads(text(tmp_path))] == ["CartPole-v1:pqn"]
    (tmp_path / "CartPole-v1-pqn.json").write_text(json.dumps(data | {"overrides": ["gamma=0.5"]}))
    assert json.loads(text(tmp_path)) == {}
