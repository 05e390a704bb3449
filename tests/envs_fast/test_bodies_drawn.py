"""Compiled bodies are drawn by Gymnasium's environment: without a screen by EGL, and without both one line says so."""

import os
from ctypes.util import find_library

import gymnasium
import numpy as np
import pytest

from stride.config.schema import ALGORITHMS
from stride.envs_fast.bodies.task import pose
from stride.envs_gym.rendered import RenderError, frame_of, make_rendered
from stride.utils import screen
from stride.utils.user_error import UserError

CHEETAH = "HalfCheetah-v5"
CONFIG = ALGORITHMS["ppo"](env_id=CHEETAH, algo_id="ppo", max_timesteps=1000, env_backend="fast")
SEEN_BY = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER", "MUJOCO_GL")


@pytest.fixture(autouse=True)
def no_screen(monkeypatch):
    pytest.importorskip("mujoco")
    monkeypatch.setattr(os, "environ", {name: value for name, value in os.environ.items() if name not in SEEN_BY})


@pytest.mark.slow
@pytest.mark.skipif(find_library("EGL") is None, reason="needs EGL: libegl1")
def test_what_is_played_is_drawn_and_so_is_the_state_of_a_compiled_world():
    env = make_rendered(CONFIG)
    env.reset(seed=1)
    first = frame_of(env)
    for _ in range(20):
        env.step(env.action_space.high)
    assert first.shape == (480, 480, 3) and (frame_of(env) != first).mean() > 0.01
    env.close()
    face = gymnasium.make_vec(f"fast/{CHEETAH}", num_envs=2, render_mode="rgb_array")
    face.reset(seed=1)
    for _ in range(20):
        face.step(np.ones((2, 6), np.float32))
    pictures, theirs = face.render(), gymnasium.make(CHEETAH, render_mode="rgb_array")
    theirs.reset(seed=0)
    for world, picture in enumerate(pictures):  # the camera looks where the first one is
        pose(theirs.unwrapped, face.env.state[:, world])
        assert np.array_equal(picture, theirs.render())
    assert not np.array_equal(*pictures)
    face.close()
    theirs.close()


def test_without_screen_and_egl_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr(screen, "find_library", lambda name: None)
    line = f"{CHEETAH} cannot be drawn: there is neither a screen nor EGL; install libegl1"
    with pytest.raises(RenderError, match=line):
        make_rendered(CONFIG)
    face = gymnasium.make_vec(f"fast/{CHEETAH}", num_envs=1, render_mode="rgb_array")
    face.reset(seed=1)
    with pytest.raises(UserError, match=line):
        face.render()
    face.close()


def test_a_library_that_mujoco_gl_names_and_nobody_has_is_one_line(monkeypatch):
    monkeypatch.setattr(screen, "find_library", lambda name: None)
    monkeypatch.setitem(os.environ, "MUJOCO_GL", "osmesa")
    line = "MUJOCO_GL is osmesa, but there is no OSMesa; install libosmesa6, or unset MUJOCO_GL"
    with pytest.raises(RenderError, match=f"{CHEETAH} cannot be drawn: {line}"):
        make_rendered(CONFIG)

    def broken(name):
        raise AttributeError("'NoneType' object has no attribute 'glGetError'")  # PyOpenGL's own words

    monkeypatch.setattr(screen, "import_module", broken)
    with pytest.raises(UserError, match=f"^MuJoCo cannot be imported: {line}$"):
        make_rendered(CONFIG)
    monkeypatch.delitem(os.environ, "MUJOCO_GL")
    with pytest.raises(UserError, match=r"^MuJoCo cannot be imported: .*glGetError"):
        make_rendered(CONFIG)
