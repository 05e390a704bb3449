"""Whether a person could see a window, and what MuJoCo draws with where nobody could."""

import os
import sys
from ctypes.util import find_library

INVISIBLE = ("", "dummy", "offscreen")  # values of SDL_VIDEODRIVER that open no window


def has_display() -> bool:
    """Whether a person could see a window."""
    if os.environ.get("SDL_VIDEODRIVER", "") not in INVISIBLE or not sys.platform.startswith("linux"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def offer_egl() -> str:
    """Have Gymnasium draw MuJoCo's tasks by EGL where there is no screen; what is missing for it, "" if nothing.

    Its own first choice, GLFW, only warns that there is no screen, and an error of OpenGL follows.
    """
    if has_display() or "MUJOCO_GL" in os.environ:
        return ""
    if not find_library("EGL"):
        return "there is neither a screen nor EGL; install libegl1"
    os.environ["MUJOCO_GL"] = "egl"
    return ""
