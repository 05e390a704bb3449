"""Families side by side: who is there, what is said of `auto`, not how fast anything is."""

import json

import pytest

from lab.bench import families
from lab.bench.envs import main
from lab.bench.families import Measured, verdict
from stride.envs_gym.backends import ROWS
from stride.utils.user_error import UserError


@pytest.mark.slow
def test_every_backend_that_can_play_a_family_is_timed_beside_gymnasiums_loops(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(families, "cores", lambda: 2)
    file = tmp_path / "figures.json"
    words = ["--families", "CartPole", "--worlds", "2", "--seconds", "0.001", "--repeats", "1", "--json", str(file)]
    assert main(words) == 0
    found = json.loads(file.read_text())["families"]["CartPole"]
    wanted = {"fast", "gym", "gym, 2 workers", families.SYNC, families.ASYNC}
    assert wanted <= {*found["rates"]} and all(rate > 0 for rate in found["rates"].values())
    assert {row.name for row in ROWS} == {name.split(",")[0] for name in (*found["resumes"], *found["refused"])}
    assert found["auto"] == "fast" and found["resumes"]["gym"] == "exact"
    told = capsys.readouterr().out
    assert "<- auto" in told and "auto takes fast: the config asks for nothing that only Gymnasium has" in told


def test_a_family_that_is_not_installed_is_told_with_its_cure(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(families, "FAMILIES", {"Moon": families.Family("Moon-v0", "no_such_moon", "moon")})
    file = tmp_path / "figures.json"
    assert main(["--families", "--json", str(file)]) == 0
    assert "left out: it needs no_such_moon: pip install 'stride-rl[moon]'" in capsys.readouterr().out
    assert "stride-rl[moon]" in json.loads(file.read_text())["families"]["Moon"]["left_out"]


def test_an_unknown_family_is_one_line():
    with pytest.raises(UserError, match="no family 'CartPol'; did you mean CartPole"):
        main(["--families", "CartPol"])


@pytest.mark.parametrize(
    ("rates", "resumes", "said"),
    [
        ({"ale": 10.0, "gym": 5.0}, ("exact", "exact"), "(the fastest)"),
        ({"ale": 9.5, "gym": 10.0}, ("exact", "exact"), "(within 10 % of gym)"),
        ({"ale": 5.0, "gym": 10.0}, ("exact", "seam"), "; gym is 2.0 times as fast, but its resume is a seam"),
        ({"ale": 5.0, "gym": 10.0}, ("exact", "exact"), f"; gym is 2.0 times as fast, but {families.BY_RULE}"),
    ],
)
def test_another_choice_than_the_fastest_is_explained(rates, resumes, said):
    kept = dict(zip(rates, resumes, strict=True))
    told = verdict(Measured(rates, kept, {}, "ale", "it has screens"))
    assert told.startswith("auto takes ale: it has screens") and told.endswith(said)
