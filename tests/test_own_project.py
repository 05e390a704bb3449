"""A project of one's own: what `new` makes trains at once, from any folder in it, and is played, resumed and listed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import run_command

from stride.commands import new
from stride.config.listing import list_environments
from stride.config.loader import load_config, load_shipped, parse_config_id
from stride.envs_gym.async_env import AsyncEnv
from stride.envs_gym.make import find_spec
from stride.envs_gym.own_code import import_own_modules
from stride.runstore.run_dir import runs_root
from stride.utils import own_modules, places
from stride.utils.places import IS_WHEEL
from stride.utils.user_error import UserError

ROOT = Path(__file__).resolve().parent.parent
QUICK = ("engine=eager", "n_envs=2", "n_steps=16", "batch_size=32", "max_timesteps=96", "test_episodes=2", "-q")
WORLD = """import gymnasium
from neighbour import WORLD
gymnasium.register("Mine-v0", WORLD)
"""


@pytest.fixture
def walker(tmp_path, monkeypatch):
    """A new project, in which one stands; STRIDE_RUNS says nothing."""
    monkeypatch.delenv("STRIDE_RUNS", raising=False)
    assert new.main([str(tmp_path / "walker")]) == 0
    monkeypatch.chdir(tmp_path / "walker")
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in [name for name in sys.modules if name.partition(".")[0] == "walker"]:  # of another test
        monkeypatch.delitem(sys.modules, name)
    return tmp_path / "walker"


def ran(*words, cwd):
    done = run_command(*words, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.slow
def test_a_new_project_trains_plays_and_goes_on(walker):
    below = walker / "tests"
    ran(ROOT / "train.py", "Walker-v0:ppo", *QUICK, cwd=below)
    [run] = walker.glob("runs/2*")
    assert not (below / "runs").exists()
    played = ran(ROOT / "run_play.py", "--headless", "--episodes", "2", "--json", cwd=below)
    assert json.loads(played.stdout)["env_id"] == "Walker-v0"
    ran(ROOT / "train.py", "--resume", "@last", "max_timesteps=192", "-q", cwd=walker)
    assert json.loads((run / "config.json").read_text())["outcome"]["env_steps"] == 192


@pytest.mark.slow
def test_worker_processes_know_its_modules(walker):
    import_own_modules()
    worlds = AsyncEnv("Walker-v0", 2, workers=1)
    assert worlds.reset(seed=1).shape == (2, 3)
    worlds.close()


@pytest.mark.slow
def test_its_own_tests_pass(walker):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    assert subprocess.run(command, cwd=walker, capture_output=True).returncode == 0


@pytest.mark.slow
def test_a_yaml_file_and_its_modules_in_a_plain_folder(tmp_path):
    """No project, no wheel: what lies beside the YAML file is found, for the run that goes on elsewhere, too."""
    folder, runs = tmp_path / "mine", tmp_path / "runs"
    folder.mkdir()
    (folder / "mine.py").write_text(WORLD)
    (folder / "neighbour.py").write_text('WORLD = "gymnasium.envs.classic_control:CartPoleEnv"\n')
    (folder / "my.yaml").write_text("env_id: mine:Mine-v0\nmax_episode_steps: 50\nppo: {max_timesteps: 1e5}\n")
    env = {**os.environ, "STRIDE_RUNS": str(runs)}
    done = run_command(ROOT / "train.py", "--config", "../mine/my.yaml", *QUICK, cwd=runs.parent / "mine", env=env)
    assert done.returncode == 0, done.stderr
    done = run_command(ROOT / "run_play.py", "--headless", "--episodes", "1", cwd="/", env=env)
    assert done.returncode == 0, done.stderr
    done = run_command(ROOT / "train.py", "--resume", "@last", "max_timesteps=128", "-q", cwd="/", env=env)
    assert done.returncode == 0, done.stderr
    # a run folder from elsewhere says nothing of what is imported: not by where it lies, not by what it names
    [run] = runs.glob("2*")
    run.rename(folder / run.name)
    done = run_command(ROOT / "run_play.py", "--run-id", folder / run.name, "--headless", cwd=folder, env=env)
    assert (done.returncode, "env_id names a module, 'mine'" in done.stderr) == (2, True)


def test_its_configs_come_before_the_shipped_ones(walker):
    assert parse_config_id("Walker-v0:ppo")[1] == "ppo" and load_config("Walker-v0", "ppo").spec.goal == 0.8
    (walker / "configs" / "CartPole-v1.yaml").write_text("ppo: {max_timesteps: 7_000}\n")
    assert load_config("CartPole-v1", "ppo").max_timesteps == 7_000
    assert load_shipped("CartPole-v1", "ppo").max_timesteps == 150_000
    assert [row.env for row in list_environments()][:2] == ["CartPole-v1", "Walker-v0"]
    assert "FrozenLake-v1" in {row.env for row in list_environments()}
    with pytest.raises(UserError, match=r"did you mean Walker-v0"):
        load_config("Walkr-v0", "ppo")


def test_runs_lie_in_the_project_unless_the_variable_says_where(walker, monkeypatch):
    assert runs_root() == walker / "runs"
    monkeypatch.chdir(walker / "configs")
    assert runs_root() == walker / "runs"
    monkeypatch.setenv("STRIDE_RUNS", str(walker / "elsewhere"))
    assert runs_root() == walker / "elsewhere"
    monkeypatch.delenv("STRIDE_RUNS")
    monkeypatch.chdir(walker.parent)
    assert runs_root() == (walker.parent if IS_WHEEL else ROOT) / "runs"


def test_its_modules_are_imported_behind_whatever_is_installed(walker):
    (walker / "token.py").write_text("raise ImportError('not mine')")
    import_own_modules()
    assert find_spec("Walker-v0").entry_point == "walker.env:Walker"
    assert sys.path[-1] == str(walker) and own_modules.snapshot()[:2] == ((str(walker),), ("walker",))


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ('import = ["walker"]', "no key 'import'; did you mean imports?"),
        ('imports = "walker"', 'imports is a list of modules, such as ["walker"]'),
        ('imports = ["../walker"]', "imports is a list of modules"),
        ("runs = 3", "runs is a folder, not 3"),
        ("runs = [", "pyproject.toml"),
    ],
)
def test_what_a_project_cannot_say_is_one_line(tmp_path, table, complaint):
    (tmp_path / "pyproject.toml").write_text(f"[tool.stride]\n{table}\n")
    with pytest.raises(UserError, match=complaint.replace("[", r"\[").replace("?", r"\?")):
        places.project_around(tmp_path)


def test_whose_pyproject_is_looked_at(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text("[tool.stride]\n")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "pyproject.toml").write_text('[tool.other]\nwords = "[tool.stride]"\n')
    assert places.project_around(tmp_path / "inner").folder == tmp_path  # the inner one is no project of ours
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    (tmp_path / "another").mkdir()
    os.chown(tmp_path / "another", 12345, -1) if os.getuid() == 0 else None
    owner = (tmp_path / "pyproject.toml").stat().st_uid
    if owner:
        assert places.project_around(tmp_path / "another") is None


@pytest.mark.parametrize("name", ["stride", "json", "3d", "my world", "tests", "a" * 60])
def test_names_that_no_project_can_have(name, tmp_path):
    with pytest.raises(UserError, match="a project cannot be called"):
        new.main([str(tmp_path / name)])
    assert not list(tmp_path.iterdir())


def test_nothing_is_written_over(tmp_path):
    (tmp_path / "walker").mkdir()
    (tmp_path / "walker" / "mine.txt").touch()
    with pytest.raises(UserError, match="is there already, and not empty"):
        new.main([str(tmp_path / "walker")])
    assert [path.name for path in (tmp_path / "walker").iterdir()] == ["mine.txt"]


def test_what_is_written_is_whole():
    files = new.project_files("lunar-rover")
    assert {"lunar_rover/env.py", "configs/LunarRover-v0.yaml", ".vscode/settings.json"} <= files.keys()
    assert not [place for place, text in files.items() if "$" in text and place not in ("configs/schema.json",)
                and not place.endswith(".yaml")]  # fmt: skip
    assert "class LunarRover(" in files["lunar_rover/env.py"]
