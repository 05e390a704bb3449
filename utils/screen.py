"""Whether a person could see a window, and what MuJoCo draws with where nobody could."""

import os
import sys
from ctypes.util import find_library
from importlib import import_module
from typing import Any

from stride.utils.user_error import UserError, describe_error

LIBRARIES = {"egl": ("EGL", "libegl1"), "osmesa": ("OSMesa", "libosmesa6")}  # by MUJOCO_GL, with Debian's package
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
    if "MUJOCO_GL" in os.environ:
        return _lacking()
    if has_display():
        return ""
    if not find_library("EGL"):
        return "there is neither a screen nor EGL; install libegl1"
    os.environ["MUJOCO_GL"] = "egl"
    return ""


def import_mujoco() -> Any:
    """MuJoCo's package; ImportError where it is not installed, UserError where MUJOCO_GL names what is not there.

    The package loads that library at once, and errors of many kinds follow where it cannot.
    """
    try:
        return import_module("mujoco")
    except ModuleNotFoundError:
        raise
    except Exception as error:
        raise UserError(f"MuJoCo cannot be imported: {_lacking() or describe_error(error)}") from error


def _lacking() -> str:
    """The library that MUJOCO_GL names, where there is none."""
    name = os.environ.get("MUJOCO_GL", "").lower().strip()
    library, debian = LIBRARIES.get(name, ("", ""))
    if not library or find_library(library):
        return ""
    return f"MUJOCO_GL is {name}, but there is no {library}; install {debian}, or unset MUJOCO_GL"
