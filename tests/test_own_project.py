"""A project of one's own: what `new` makes, where its runs are, which of its files and modules a name means.

That it trains, is gone on with and played is in test_installs.py.
"""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from commands import refusal

from stride.commands import new, run_publish
from stride.commands.train_arguments import parse_arguments
from stride.config.general import is_general, load_general
from stride.config.listing import list_environments
from stride.config.loader import load_config, load_shipped, parse_config_id
from stride.envs_gym.async_env import AsyncEnv
from stride.envs_gym.make import find_spec
from stride.envs_gym.own_code import import_own_modules
from stride.envs_gym.task import task_of
from stride.runstore.run_dir import runs_root
from stride.utils import own_modules, places
from stride.utils.places import IS_WHEEL
from stride.utils.user_error import UserError

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def walker(tmp_path, monkeypatch):
    """A new project, in which one stands; STRIDE_RUNS says nothing."""
    monkeypatch.delenv("STRIDE_RUNS", raising=False)
    assert new.main([str(tmp_path / "walker")]) == 0
    monkeypatch.chdir(tmp_path / "walker")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(own_modules, "_in_use", own_modules.UserModules())  # put back, else later tests import walker
    yield tmp_path / "walker"
    for name in [name for name in sys.modules if name.partition(".")[0] == "walker"]:
        del sys.modules[name]


@pytest.mark.slow
def test_its_own_tests_pass_and_worker_processes_import_its_modules(walker):
    import_own_modules()
    worlds = AsyncEnv("Walker-v0", 2, workers=1)
    assert worlds.reset(seed=1).shape == (2, 3)
    worlds.close()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    assert subprocess.run(command, cwd=walker, capture_output=True).returncode == 0


def test_its_configs_come_before_the_shipped_ones_and_another_module_stays_in_the_name(walker):
    assert parse_config_id("Walker-v0:ppo")[1] == "ppo" and load_config("Walker-v0", "ppo").spec.goal == 0.8
    (walker / "configs" / "CartPole-v1.yaml").write_text("ppo: {max_timesteps: 7_000}\n")
    assert load_config("CartPole-v1", "ppo").max_timesteps == 7_000
    assert load_shipped("CartPole-v1", "ppo").max_timesteps == 100_000
    assert [row.env for row in list_environments()][:2] == ["CartPole-v1", "Walker-v0"]
    assert "FrozenLake-v1" in {row.env for row in list_environments()}
    with pytest.raises(UserError, match=r"did you mean Walker-v0"):
        load_config("Walkr-v0", "ppo")
    assert load_config("walker.other:Walker-v0", "ppo").env_id == "walker.other:Walker-v0"
    (walker / "configs" / "Walker-v0.yaml").write_text("env_id: walker.third:Walker-v0\nppo: {max_timesteps: 7_000}\n")
    assert load_config("walker.other:Walker-v0", "ppo").env_id == "walker.third:Walker-v0", "the file says it itself"


def test_a_projects_file_is_meant_with_and_without_the_module(walker, monkeypatch):
    assert parse_config_id("walker:Walker-v0:ppo") == ("walker:Walker-v0", "ppo")
    assert not is_general("walker:Walker-v0:ppo") and is_general("walker:Walker-v0:sac")
    config = parse_arguments(["walker:Walker-v0:ppo", "gamma=0.5"]).load()
    assert config.spec.goal == 0.8 and config.gamma == 0.5
    assert config.env_id == "Walker-v0", "the project imports it anyway: runs of both spellings are of one environment"
    assert load_config("Walker-v0", "ppo", ["gamma=0.5"]) == config
    with pytest.raises(UserError, match=r"no variant 'pppo'.*Walker-v0:ppo.*did you mean ppo"):
        parse_arguments(["walker:Walker-v0:pppo"]).load()
    assert is_general("mypkg:CartPole-v1:ppo"), "a shipped file says nothing of a module of one's own"
    monkeypatch.chdir(walker.parent)
    assert is_general("walker:Walker-v0:ppo"), "outside of the project there is no such file"


def test_publishing_trusts_the_modules_it_is_given(monkeypatch, capsys):
    def loaded(*given):
        raise UserError(f"loads {given}")

    monkeypatch.setattr(run_publish, "load_run", loaded)
    line = refusal(capsys, run_publish.command, "--run-id", "/x/y", "--dry-run", "--trust", "mypkg,other.part")
    assert "loads ('/x/y', 'best', ('mypkg', 'other.part'))" in line
    assert "module names" in refusal(capsys, run_publish.command, "--run-id", "/x/y", "--trust", "my pkg")


def test_its_modules_are_imported_behind_what_is_installed_and_its_runs_are_in_it(walker, monkeypatch):
    (walker / "token.py").write_text("raise ImportError('not mine')")
    import_own_modules()
    assert find_spec("Walker-v0").entry_point == "walker.env:Walker"
    assert sys.path[-1] == str(walker) and own_modules.snapshot()[:2] == ((str(walker),), ("walker",))
    for folder in (walker, walker / "configs"):
        monkeypatch.chdir(folder)
        assert runs_root() == walker / "runs"
    monkeypatch.setenv("STRIDE_RUNS", str(walker / "elsewhere"))
    assert runs_root() == walker / "elsewhere"
    monkeypatch.delenv("STRIDE_RUNS")
    monkeypatch.chdir(walker.parent)
    assert runs_root() == (walker.parent if IS_WHEEL else ROOT) / "runs"


@pytest.mark.parametrize(("table", "complaint"), [
    ('import = ["walker"]', r"no key 'import'; did you mean imports\?"),
    ('imports = "walker"', r"imports must be a list such as \[\"walker\"\]"),
    ('imports = ["../walker"]', "imports must be a list such as"),
    ("runs = 3", "runs must be a folder, not 3"), ("runs = [", "pyproject.toml"),
])  # fmt: skip
def test_what_a_project_cannot_say_is_one_line(tmp_path, table, complaint):
    (tmp_path / "pyproject.toml").write_text(f"[tool.stride]\n{table}\n")
    with pytest.raises(UserError, match=complaint):
        places.project_around(tmp_path)


def test_only_a_pyproject_of_ones_own_that_has_our_table_is_a_project(tmp_path, monkeypatch):
    inner, another = tmp_path / "inner", tmp_path / "another"
    (tmp_path / "pyproject.toml").write_text("[tool.stride]\n")
    inner.mkdir()
    (inner / "pyproject.toml").write_text('[tool.other]\nwords = "[tool.stride]"\n')
    assert places.project_around(inner).folder == tmp_path
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    another.mkdir()
    if os.getuid() == 0:
        os.chown(another, 12345, -1)
    if (tmp_path / "pyproject.toml").stat().st_uid:
        assert places.project_around(another) is None


@pytest.mark.parametrize(("name", "why"), [
    ("json", "cannot be the project"), ("tests", "cannot be the project"), ("my world", "is not a valid project"),
    ("a" * 60, "is not a valid project name"), ("numpy", "an installed package has that name"),
    ("walker", "exists and is not empty"),
])  # fmt: skip
def test_no_project_has_such_a_name_or_is_written_over_files(name, why, tmp_path):
    (tmp_path / "walker").mkdir()
    (tmp_path / "walker" / "mine.txt").touch()
    with pytest.raises(UserError, match=why):
        new.main([str(tmp_path / name)])
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["mine.txt", "walker"]


# ---- a repository that has environments: stride new --here, and errors that name the file that is almost right


PLANT = 'import gymnasium\n\ngymnasium.register(\n    "Plant-v0", "plant:Plant")\nraise RuntimeError("imported")\n'


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A folder with a module that registers an environment, in which one stands; it is no project."""
    (tmp_path / "plant.py").write_text(PLANT)
    monkeypatch.chdir(tmp_path)
    places.project_around.cache_clear()
    yield tmp_path
    places.project_around.cache_clear()


def test_it_becomes_a_project_and_loses_nothing(repository, capsys):
    before = '[project]\nname = "plant"  # mine'
    (repository / "pyproject.toml").write_text(before)
    assert new.main(["--here"]) == 0
    text = (repository / "pyproject.toml").read_text()
    assert text.startswith(before) and tomllib.loads(text)["tool"]["stride"]["imports"] == ["plant"]
    assert capsys.readouterr().out.endswith("Plant-v0:ppo\n")
    places.project_around.cache_clear()
    assert places.current_project().imports == ("plant",) and (repository / "configs" / "schema.json").is_file()
    with pytest.raises(UserError, match="already"):
        new.main(["--here"])
    assert (repository / "pyproject.toml").read_text() == text


@pytest.mark.parametrize("data", [b"[project", b"\xff", b"[tool.stride]\nruns = 3\n"])
def test_a_damaged_pyproject_stays_as_it_is(repository, data):
    (repository / "pyproject.toml").write_bytes(data)
    with pytest.raises(UserError, match=r"pyproject\.toml: "):
        new.main(["--here"])
    assert (repository / "pyproject.toml").read_bytes() == data and not (repository / "configs").exists()


def test_a_link_is_not_written_through(repository, tmp_path_factory):
    target = tmp_path_factory.mktemp("other") / "pyproject.toml"
    target.write_text("")
    (repository / "pyproject.toml").symlink_to(target)
    with pytest.raises(UserError, match="is a link"):
        new.main(["--here"])
    assert target.read_text() == ""


@pytest.mark.parametrize(("file", "advice"), [
    ("Plant-v0.yaml", r"--config Plant-v0\.yaml"), ("configs/Plant-v0.yaml", "stride new --here"),
    ("unrelated.yaml", "write plant:Plant-v0"),
])  # fmt: skip
def test_an_unknown_environment_names_the_file_that_is_almost_right(repository, file, advice):
    path = repository / file
    path.parent.mkdir(exist_ok=True)
    path.write_text("env_id: Plant-v0\n")
    with pytest.raises(UserError, match=advice):
        parse_arguments(["Plant-v0"]).load()
    with pytest.raises(UserError, match=advice):
        load_general("Plant-v0:ppo", [], task_of)
