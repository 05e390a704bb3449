"""--list-envs: what fits a terminal, what is marked, and whose numbers stand there."""

import importlib.util

import gymnasium
import pytest

from stride.config import bands, extras, listing
from stride.config.general import Task, load_general
from stride.config.listing import BODIES, evidence, general_rows, list_environments, print_variants


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
    words = ("+1 for every step", "1 to 500, 500 steps at most", "push left, push right", "pole angle", "https://")
    assert all(word in out for word in words)


def test_mujocos_bodies_are_listed_with_what_trains_them(capsys):
    print_variants("Ant-v5")
    out = capsys.readouterr().out
    assert "Ant-v5:ppo" in out and "Ant-v5:sac" in out and "Humanoid" not in out
    shipped = {f"{row.env}:{row.variant}" for row in list_environments()}
    rows = {f"{row.env}:{row.variant}": row for row in general_rows()}
    assert {spec.id: spec.reward_threshold for spec in gymnasium.registry.values() if spec.id in BODIES} == BODIES
    assert not shipped & {*rows} and {f"{env}:{name}" for env in BODIES for name in ("ppo", "sac")} <= shipped | {*rows}
    for words, row in rows.items():
        config = load_general(words, [], lambda config: Task("bounded", "", None, None))
        assert config.max_timesteps == row.budget and config.description.startswith(row.description)
        assert config.spec.goal is None or row.goal == f"{config.spec.goal:g}"
