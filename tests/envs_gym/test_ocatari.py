"""`obs_type: objects` of games that OCAtari reads: its API as of 2.2.1 in a package made up here, and refusals."""

import sys

import numpy as np
import pytest
import torch
from playing import refused

from stride.config.schema import Config
from stride.envs_gym.make import make_envs

pytest.importorskip("ale_py")
GAME = "ALE/Seaquest-v5"
READER = """
import sys
class Thing:
    def __init__(self): self.xywh, self.there = (0, 0, 8, 10), False
    def __bool__(self): return self.there
def init_objects(game, hud): return [Thing(), Thing()]
def detect_objects_ram(objects, ram, game, hud):
    assert (game, hud) == ("Seaquest", False)
    objects[0].there, objects[0].xywh = True, (int(ram[70]) + 200 - 200, 46, 16, 11)
"""
OBJECTS = {"env_id": GAME, "env_kwargs": {"obs_type": "objects"}}


@pytest.fixture
def ocatari(tmp_path, monkeypatch):
    """OCAtari as far as it is used: two games, of which one keeps a fact in its module."""
    folder = tmp_path / "ocatari" / "ram"
    folder.mkdir(parents=True)
    (tmp_path / "ocatari" / "__init__.py").write_text("")
    (folder / "__init__.py").write_text("from . import qbert, seaquest")
    (folder / "seaquest.py").write_text("MAX_NB_OBJECTS = {}\n")
    (folder / "qbert.py").write_text("last = 0\ndef look():\n    global last\n    last += 1\n")
    (folder / "extract_ram_info.py").write_text(READER)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "ocatari"]:
        del sys.modules[name]


def played(envs, steps):
    return [envs.step(torch.tensor([t % 4])).obs.clone() for t in range(steps)]


def test_things_are_seen_where_ocatari_finds_them_and_resume_to_the_bit(ocatari):
    envs = make_envs(Config(**OBJECTS), 1)
    envs.reset(3)
    assert envs.observation_space.shape == (10,)
    observations = played(envs, 20)
    ram = int(envs.envs[0].unwrapped.ale.getRAM()[70])
    expected = [1, 2 * (ram + 8) / 160 - 1, 2 * (46 + 5.5) / 210 - 1, 16 / 160, 11 / 210, 0, 0, 0, 0, 0]
    assert observations[-1][0].tolist() == pytest.approx(np.clip(expected, -1, 1).tolist(), abs=1e-6)
    other = make_envs(Config(**OBJECTS), 1)
    other.load_state_dict(envs.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(played(envs, 10), played(other, 10), strict=True))
    envs.close(), other.close()


def test_what_ocatari_cannot_do_is_one_line(ocatari, monkeypatch):
    assert "OCAtari does not support Skiing" in refused(**{**OBJECTS, "env_id": "ALE/Skiing-v5"})
    line = refused(**{**OBJECTS, "env_id": "ALE/Qbert-v5"})
    assert "OCAtari shares its state of Qbert among all environments" in line and "obs_type ram" in line
    with monkeypatch.context() as patch:  # undone before the fixture forgets the package
        patch.setitem(sys.modules, "ocatari.ram.extract_ram_info", None)
        assert "OCAtari cannot be imported: ModuleNotFoundError" in refused(**OBJECTS)


def test_without_ocatari_the_line_says_what_to_install():
    line = refused(**OBJECTS)
    assert "objects of Seaquest needs OCAtari: pip install ocatari" in line
    line = refused(env_id=GAME, env_kwargs={"obs_type": "objcts"})
    assert "has no env_kwargs.obs_type 'objcts'; did you mean objects? (it takes rgb, grayscale, ram, objects)" in line
