"""Lists the optional packages: which environments need each, and which pip extra installs it (`stride-rl[mujoco]`)."""

import re
from importlib.util import find_spec
from typing import NamedTuple

from stride.utils.user_error import UserError, nearest


class Extra(NamedTuple):
    """An optional package that some environments need."""

    title: str  # its name for people
    name: str  # the pip extra that installs it
    module: str  # the module to import
    ids: tuple[str, ...]  # the ids that need it start with one of these
    registers: bool = False
    """Whether its ids are known to Gymnasium only after its module has been imported."""

    @property
    def cure(self) -> str:
        """The command that installs the package."""
        return f"pip install 'stride-rl[{self.name}]'"

    def need(self, env_id: str) -> str:
        """Return the message for an environment whose package is missing."""
        return f"{env_id} needs {self.title}: {self.cure}"

    def meant_by(self, term: str) -> bool:
        """Return whether a search term means this package's ids: one begins with the other, in any case."""
        folded = term.casefold()
        return any(start.casefold().startswith(folded) or folded.startswith(start.casefold()) for start in self.ids)


MUJOCO = ("Ant", "HalfCheetah", "Hopper", "Humanoid", "Inverted", "Pusher", "Reacher", "Swimmer", "Walker2d")
DOOM_EXTRA = Extra("VizDoom", "vizdoom", "vizdoom", ("VizDoom/",), registers=True)
RETRO_EXTRA = Extra("stable-retro", "retro", "stable_retro", ("Retro/",), registers=True)
EXTRAS = (
    Extra("Box2D", "box2d", "Box2D", ("BipedalWalker", "CarRacing", "LunarLander")),
    Extra("MuJoCo", "mujoco", "mujoco", MUJOCO),
    Extra("ale-py", "atari", "ale_py", ("ALE/",), registers=True),
    Extra("Brax", "brax", "brax", ("brax/",), registers=True),
    Extra("dm_control", "dmc", "dm_control", ("dm_control/",), registers=True),
    Extra("MiniGrid", "minigrid", "minigrid", ("MiniGrid-", "BabyAI-"), registers=True),
    DOOM_EXTRA,
    RETRO_EXTRA,
)

# MiniGrid tasks that Stride has compiled (envs_fast/minigrid), which need no package
COMPILED = re.compile("MiniGrid-(Empty-|DoorKey-|Unlock-v|KeyCorridorS|FourRooms-|LavaGapS|MultiRoom-)")
ENVPOOL = "env_backend envpool was removed: register the task with Gymnasium, see docs/families/envpool.md"


def extra_of(env_id: str) -> Extra | None:
    """Return the optional package that an id needs; None if it needs none."""
    return next((extra for extra in EXTRAS if env_id.startswith(extra.ids)), None)


def missing(env_id: str) -> Extra | None:
    """Return the package that an id needs if it is not installed, else None; nothing is imported."""
    extra = None if COMPILED.match(env_id) else extra_of(env_id)
    return extra if extra and find_spec(extra.module) is None else None


LOCAL = "local"
MACHINES = (LOCAL, "ray", "ray:local")  # values of --on: where several runs are trained
NEEDS_OPTUNA = "a sweep needs Optuna: pip install 'stride-rl[tune]'"


def check_machines(where: str) -> None:
    """Raise UserError for an unknown value of --on, or if it needs Ray and Ray is not installed."""
    if where not in MACHINES:
        raise UserError(f"--on {where}: {', '.join(MACHINES)}{nearest(where, MACHINES)}")
    if where != LOCAL and find_spec("ray") is None:
        raise UserError(f"--on {where} needs Ray: pip install 'stride-rl[cluster]'")
