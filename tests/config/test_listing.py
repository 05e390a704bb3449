"""--list-envs: what fits a terminal, what is marked, and whose numbers stand there."""

import importlib.util
import json

import gymnasium
import pytest

from config import bands, extras, listing
from config.bands import FILE, of_variant
from config.general import Task, load_general
from config.listing import BODIES, evidence, general_rows, list_environments, print_variants
from lab.evidence.bands import RESULTS, text
from lab.evidence.file import Evidence, summary


@pytest.fixture
def terminal(monkeypatch):
    """Standard output as a terminal of so many columns."""

    def of(columns):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)

    return of


@pytest.fixture
def uninstalled(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name in ("Box2D", "ale_py") else found(name))


@pytest.mark.parametrize("term", ["", "cartpole", "Lunar", "q_learning"])
def test_it_fits_80_columns(term, terminal, uninstalled, monkeypatch, capsys):
    terminal(80)
    names = [f"{row.env_id}:{row.variant}" for row in list_environments()]
    monkeypatch.setattr(listing, "last_runs", lambda: {name: "-1234.5 not solved" for name in names})
    print_variants(term)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) > 3


def test_descriptions_stand_where_there_is_room_for_all_of_them(terminal, capsys):
    row = list_environments("Taxi-v4:ppo")[0]
    for columns, there in ((80, False), (400, True)):
        terminal(columns)
        print_variants("")
        assert (row.description in capsys.readouterr().out) is there


def test_what_is_not_installed_is_marked_with_the_cure(uninstalled, capsys):
    print_variants("LunarLander-v3")
    out = capsys.readouterr().out
    assert "LunarLander-v3:ppo *" in out and "* needs Box2D: pip install 'stride-rl[box2d]'" in out
    print_variants("Taxi")
    assert "*" not in capsys.readouterr().out


def test_every_environment_of_an_extra_is_known_to_need_it():
    parts = {"box2d": "gymnasium.envs.box2d", "mujoco": "gymnasium.envs.mujoco"}
    for spec in gymnasium.registry.values():
        extra = extras.extra_of(spec.id)
        theirs = [name for name, part in parts.items() if part in str(spec.entry_point)]
        theirs += ["atari"] if spec.id.startswith("ALE/") else []
        if str(spec.entry_point).startswith("gymnasium.") or theirs:
            assert ([extra.name] if extra else []) == theirs, spec.id


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


def test_the_evidence_of_a_variant_is_its_own_and_of_nothing_else(monkeypatch):
    (row,) = list_environments("CartPole-v1:pqn")
    assert evidence(row) == ("488.9", "5/5")
    (changed,) = list_environments("Hopper-v5:sac")
    assert evidence(changed)[0] == "not measured"
    monkeypatch.setattr(bands, "measured", dict)
    assert evidence(row) == ("not measured", "")


def test_few_are_told_whole(capsys):
    print_variants("CartPole-v1:ppo")
    out = " ".join(capsys.readouterr().out.split())
    for words in (
        "+1 for every step",
        "1 to 500, 500 steps at most",
        "push left, push right",
        "pole angle",
        "https://",
    ):
        assert words in out


def test_mujocos_bodies_are_listed_with_what_trains_them(capsys):
    print_variants("Ant-v5")
    out = capsys.readouterr().out
    assert "Ant-v5:ppo" in out and "Ant-v5:sac" in out and "Humanoid" not in out
    shipped = {f"{row.env}:{row.variant}" for row in list_environments()}
    rows = {f"{row.env}:{row.variant}": row for row in general_rows()}
    assert not shipped & {*rows} and {f"{env}:{name}" for env in BODIES for name in ("ppo", "sac")} <= shipped | {*rows}
    for words, row in rows.items():
        config = load_general(words, [], lambda config: Task("bounded", "", None, None))
        assert config.max_timesteps == row.budget and config.description.startswith(row.description)
        assert config.spec.goal is None or row.goal == f"{config.spec.goal:g}"


def test_the_goals_of_mujocos_bodies_are_gymnasiums():
    found = {spec.id: spec.reward_threshold for spec in gymnasium.registry.values() if spec.id in BODIES}
    assert found == BODIES
