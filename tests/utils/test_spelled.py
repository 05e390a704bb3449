"""Commands in messages: they can be pasted where the process was begun, and are spelled as it was."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from stride.utils import places

HERE = Path(sys.executable).parent


@pytest.fixture
def begun(monkeypatch, tmp_path):
    """The command `train` as a process spells it that was begun in this folder, with this PATH."""

    def spelled(by_stride, path, folder=tmp_path):
        monkeypatch.setattr(places, "IS_WHEEL", False)
        monkeypatch.setattr(places, "BY_STRIDE", by_stride)
        monkeypatch.setattr(places, "_began_in", folder)
        monkeypatch.setenv("PATH", str(path))
        return " ".join(places.spelled("run_play"))

    return spelled


def test_a_name_where_path_leads_to_it_else_the_path_from_here(begun, tmp_path):
    other = tmp_path / "bin"
    other.mkdir()
    for name in ("python", "stride"):
        (other / name).write_text("")
        (other / name).chmod(0o755)
    script = os.path.relpath(places.ROOT / "run_play.py", tmp_path)
    assert begun(True, HERE) == "stride play"
    assert begun(False, HERE, places.ROOT) == "python run_play.py"
    assert begun(False, HERE) == f"python {script}"
    for path in ("", other, f"{other}{os.pathsep}{HERE}"):  # none, another one, another one before ours
        assert begun(True, path) == f"{os.path.relpath(HERE, tmp_path)}/stride play"
        assert begun(False, path) == f"{os.path.relpath(HERE, tmp_path)}/python {script}"


def test_what_an_error_names_can_be_pasted_in_another_folder(tmp_path):
    """From a folder with a blank in its name, and a PATH without our Python."""
    folder = tmp_path / "my work"
    folder.mkdir()
    code = "from stride.utils.places import TRAIN; print(TRAIN)"
    environment = {**os.environ, "PATH": os.defpath, "PYTHONPATH": str(places.ROOT)}
    line = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
    words = [*shlex.split(line.stdout), "nosuch:X-v0:ppo"]
    pasted = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    assert "there is no Python module 'nosuch'" in pasted.stderr, (words, pasted)
