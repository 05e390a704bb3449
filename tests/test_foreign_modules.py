"""Whose modules are imported: never those of a runs folder or of a folder that others may write to, one's own last."""

import json
import os
import re
import subprocess
import sys

import pytest
from commands import refusal

from stride.commands import run_play, train
from stride.runstore.run_dir import RunDir
from stride.utils import own_modules
from stride.utils.places import program

QUICK = ("engine=eager", "n_envs=2", "n_steps=16", "batch_size=32", "max_timesteps=64", "test_episodes=2", "-q")
STRIDER = """import gymnasium
from helper import WORLD
gymnasium.register("Strider-v0", WORLD, max_episode_steps=50)
"""
PLAY = ("--headless", "--episodes", "1")
RESUME = ("--resume", "@last", "-q", "--max-timesteps", "96")
HELPER = 'WORLD = "gymnasium.envs.classic_control:CartPoleEnv"\n'
MARK = "import os\nos.close(os.open({!r}, os.O_CREAT | os.O_WRONLY))\nraise ImportError('mine')\n"
# what libraries look for, and what starts of processes import first
NAMES = ("sympy", "scipy", "mpi4py", "torch_xla", "numpy", "multiprocessing", "signal", "ctypes", "charset_normalizer")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A project of plain files, where one stands; runs and state beside it."""
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("STRIDE_PROJECT", "")
    monkeypatch.setattr(sys, "path", [*sys.path])
    project(tmp_path / "mine")
    monkeypatch.chdir(tmp_path / "mine")
    yield tmp_path
    forget("strider", "helper", "optuna")


def project(folder):
    """A world of one's own, the module that it imports, and a config that names it."""
    folder.mkdir()
    (folder / "strider.py").write_text(STRIDER)
    (folder / "helper.py").write_text(HELPER)
    (folder / "my.yaml").write_text("env_id: strider:Strider-v0\nppo: {max_timesteps: 1e5}\n")


def plant(folder, names, place):
    """Modules of these names, which leave a file behind when they are imported."""
    for name in names:
        (folder / f"{name}.py").write_text(MARK.format(str(place / "ran")))


def typed(command, *words, code=0, cwd=None):
    """In a process of its own, as what it imports is the point."""
    done = subprocess.run([*program(command), *words], cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def forget(*names):
    """As in a new process."""
    for name in names or ("strider", "helper"):
        sys.modules.pop(name, None)
    sys.path[:] = [entry for entry in sys.path if not entry.endswith("mine")]


@pytest.mark.slow
def test_a_runs_folder_says_nothing_of_what_is_imported(place):
    typed("train", "CartPole-v1:ppo", *QUICK)
    run = RunDir.find("@last")
    plant(run.videos, NAMES, place)
    for folder in (str(run.videos), os.path.relpath(run.videos, place)):
        (run.path.parent / ".folders.jsonl").write_text(json.dumps([run.id, folder]) + "\n")
        typed("run_play", *PLAY, cwd=place)
    typed("train", *RESUME, cwd=place)
    said = typed("train", f"{NAMES[0]}:X-v0:ppo", *QUICK, cwd=run.videos, code=2)
    assert f"nothing is imported from {run.videos}: it is in the folder of the run {run.id}" in said
    assert not (place / "ran").exists()


@pytest.mark.slow
def test_nothing_is_imported_from_a_folder_that_others_may_write_to(place):
    folder = place / "shared"
    folder.mkdir()
    plant(folder, NAMES, place)
    folder.chmod(0o1777)
    line = f"nothing is imported from {folder}: every user may write to it"
    for words in ([], ["--seed", "1,2"], ["workers=2", "env_backend=gym"]):
        assert line in typed("train", "CartPole-v1:ppo", *QUICK, *words, cwd=folder)
    assert line in typed("run_play", *PLAY, cwd=folder)
    assert line in typed("run_publish", "--dry-run", place / "card", cwd=folder)
    assert line in typed("train", "numpy:X-v0:ppo", *QUICK, cwd=folder, code=2)
    assert not (place / "ran").exists()


@pytest.mark.slow
def test_ones_own_modules_of_installed_names_break_nothing(place):
    """They are named in one line, and one that the user names is imported; libraries go on with theirs."""
    mine = place / "mine"
    plant(mine, ("sympy", "scipy", "signal"), place)
    (mine / "optuna.py").write_text(STRIDER)
    lines = (
        f"{mine}: not imported: optuna, scipy, signal, sympy; installed modules have the same name",
        f"optuna is imported from {mine / 'optuna.py'}; ",
    )
    said = typed("train", "optuna:Strider-v0:ppo", *QUICK)
    assert all(line in said for line in lines)
    said = typed("run_play", *PLAY, cwd="/")  # remembered, and named by the run's config
    assert all(line in said for line in lines)
    typed("train", "optuna:Strider-v0:ppo", *QUICK, "workers=2", "env_backend=gym")
    said = typed("train", "signal:Strider-v0:ppo", *QUICK, code=2)
    assert "signal.py has the name of" in said and "which is loaded; rename yours" in said
    assert not (place / "ran").exists()


def test_where_the_code_of_a_run_lies_is_remembered_or_asked_for(place, monkeypatch, capsys):
    def ends(command, *words):
        """The exit code as of a new process, and what is wrong."""
        forget()
        capsys.readouterr()
        return command([*words]), capsys.readouterr().err

    assert train.command(["strider:Strider-v0:ppo", *QUICK]) == 0
    monkeypatch.chdir("/")
    assert ends(run_play.command, *PLAY)[0] == 0  # remembered
    monkeypatch.setenv("STRIDE_RUNS", str((place / "runs").rename(place / "moved")))
    for command, words in ((run_play.command, PLAY), (train.command, RESUME)):
        code, said = ends(command, *words)
        assert code == 2 and said.count("\n") == 1
        assert "env_id names the module 'strider', which was not found; --project FOLDER gives the folder" in said
    assert ends(run_play.command, *PLAY, "--project", str(place / "mine"))[0] == 0
    assert ends(train.command, *RESUME)[0] == 0  # by STRIDE_PROJECT, as the flag has set it
    monkeypatch.setenv("STRIDE_PROJECT", "")
    assert ends(run_play.command, *PLAY)[0] == 0  # remembered, as it was trained here
    (place / "mine").rename(place / "gone")
    code, said = ends(run_play.command, *PLAY)
    assert code == 2 and f"trained with {place / 'mine'}: it does not exist" in said
    assert train.command(["CartPole-v1:ppo", *QUICK]) == 0
    monkeypatch.setenv("STRIDE_RUNS", str((place / "moved").rename(place / "again")))
    assert ends(run_play.command, *PLAY)[0] == 0  # what is shipped needs no folder
    code, said = ends(run_play.command, *PLAY, "--project", "/nowhere")
    assert code == 2 and "is not a folder" in said


@pytest.mark.parametrize("fault", ["1 / 0", "import not_there_at_all", "import sys; sys.exit(0)", "x = ("])
def test_a_module_that_raises_is_one_line_with_its_place(place, fault, capsys):
    again = ["strider:Strider-v0:ppo", *QUICK]
    assert train.command(again) == 0
    before = RunDir.find("@last").facts()
    (place / "mine" / "strider.py").write_text(f"# mine\n{fault}\n")
    for command, words in ((run_play.command, PLAY), (train.command, again), (train.command, RESUME)):
        sys.modules.pop("strider", None)
        said = refusal(capsys, command, *words)
        assert re.match(r"error: strider cannot be imported: \w+: .*strider\.py(:2|, line 2)\)$", said), said
    assert RunDir.find("@last").facts() == before  # no run was begun, and none failed


EVERYBODY = "every user may write to it"


@pytest.mark.parametrize(("mode", "user", "group", "why"), [
    (0o755, 0, 0, ""), (0o775, 0, 0, ""), (0o777, 0, 0, EVERYBODY), (0o1777, 0, 0, EVERYBODY),
    (0o775, 0, 12345, "the group 12345 may write to it"), (0o755, 0, 12345, ""),
    (0o755, 12345, 12345, "it belongs to the user 12345; if you trust the files there, add --project"),
])  # fmt: skip
@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user")
def test_which_folders_others_may_write_to(tmp_path, monkeypatch, mode, user, group, why):
    monkeypatch.setenv("STRIDE_PROJECT", "")
    os.chown(tmp_path, user, group)
    tmp_path.chmod(mode)
    refusal = own_modules.import_refusal(tmp_path)
    assert refusal.startswith(why) and bool(refusal) == bool(why)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user")
def test_a_repository_of_another_user_in_a_container(tmp_path, monkeypatch):
    """Its owner is whose the checkout is, under any umask; another folder is, where it is named."""
    checkout, mine = tmp_path / "checkout", tmp_path / "mine"
    for folder in (checkout, mine):
        folder.mkdir()
        os.chown(folder, 12345, 12345)
        folder.chmod(0o775)
    monkeypatch.setenv("STRIDE_PROJECT", str(mine))
    assert own_modules.import_refusal(mine) == ""
    mine.chmod(0o777)
    assert own_modules.import_refusal(mine) == EVERYBODY
    mine.chmod(0o775)
    monkeypatch.setenv("STRIDE_PROJECT", "")
    monkeypatch.setattr(own_modules, "PROJECT", checkout)
    assert own_modules.import_refusal(mine) == "" == own_modules.import_refusal(checkout)


def test_a_folder_inside_a_runs_own_is_recognised_by_what_a_run_holds(tmp_path):
    named, unnamed, project = tmp_path / "20260101-000000-x", tmp_path / "byhand", tmp_path / "project"
    for folder in (named / "checkpoints", unnamed / "videos", project / "checkpoints"):
        folder.mkdir(parents=True)
    (unnamed / "config.json").write_text('{"config": {"algo_id": "ppo"}}')
    (project / "config.json").write_text('{"model": "mine", "config": {}}')
    for folder in (named / "checkpoints", unnamed / "videos"):
        assert own_modules.import_refusal(folder) == f"it is in the folder of the run {folder.parent.name}"
    assert own_modules.import_refusal(project / "checkpoints") == "" == own_modules.import_refusal(tmp_path)
