"""Says whether windows can be shown, and chooses the OpenGL library with which MuJoCo draws without a screen."""

import os
import sys
from ctypes.util import find_library
from importlib import import_module
from typing import Any

from stride.utils.user_error import UserError, describe_error

LIBRARIES = {"egl": ("EGL", "libegl1"), "osmesa": ("OSMesa", "libosmesa6")}  # by MUJOCO_GL, with Debian's package
INVISIBLE = ("", "dummy", "offscreen")  # values of SDL_VIDEODRIVER with which no window is visible


def has_display() -> bool:
    """Say whether a person could see a window."""
    if os.environ.get("SDL_VIDEODRIVER", "") not in INVISIBLE or not sys.platform.startswith("linux"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def offer_egl() -> str:
    """Set MUJOCO_GL=egl if there is no screen, so that Gymnasium draws MuJoCo's tasks with EGL.

    Return what is missing for that, "" if nothing. Gymnasium would first try GLFW, which only warns that there is no
    screen; then an unclear error of OpenGL follows.
    """
    if "MUJOCO_GL" in os.environ:
        return _lacking()
    if has_display():
        return ""
    if not find_library("EGL"):
        return "there is neither a screen nor EGL; install libegl1"
    os.environ["MUJOCO_GL"] = "egl"
    return ""


def import_mujoco() -> Any:
    """Import MuJoCo's package; ImportError if it is not installed, UserError if its OpenGL library is missing.

    The package loads the library that MUJOCO_GL names at once, and raises errors of many types if it cannot.
    """
    try:
        return import_module("mujoco")
    except ModuleNotFoundError:
        raise
    except Exception as error:
        raise UserError(f"MuJoCo cannot be imported: {_lacking() or describe_error(error)}") from error


def _lacking() -> str:
    """Say which library MUJOCO_GL names but is not installed; "" if it is installed or not set."""
    name = os.environ.get("MUJOCO_GL", "").lower().strip()
    library, debian = LIBRARIES.get(name, ("", ""))
    if not library or find_library(library):
        return ""
    return f"MUJOCO_GL is {name}, but there is no {library}; install {debian}, or unset MUJOCO_GL"
