"""Packages that are optional: the extra that installs each, which environments need it, and other uses."""

import re
from importlib.util import find_spec
from typing import NamedTuple

from stride.utils.user_error import UserError, nearest


class Extra(NamedTuple):
    """An optional dependency: its title, the extra that installs it, its module, and how ids begin that need it."""

    title: str
    name: str
    module: str
    ids: tuple[str, ...]
    registers: bool = False
    """Whether its ids are there only once its module has been imported."""

    @property
    def cure(self) -> str:
        """The command that installs it."""
        return f"pip install 'stride-rl[{self.name}]'"

    def need(self, env_id: str) -> str:
        """The line for an environment without its package."""
        return f"{env_id} needs {self.title}: {self.cure}"

    def meant_by(self, term: str) -> bool:
        """Whether ids that begin as the term does are its own, in capitals or not."""
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

# ids of MiniGrid's tasks that are compiled here (envs_fast/minigrid), which need no package
COMPILED = re.compile("MiniGrid-(Empty-|DoorKey-|Unlock-v|KeyCorridorS|FourRooms-|LavaGapS|MultiRoom-)")
ENVPOOL = "env_backend envpool was removed: register the task with Gymnasium, see docs/families/envpool.md"


def extra_of(env_id: str) -> Extra | None:
    """The extra that an id needs; None where it needs none."""
    return next((extra for extra in EXTRAS if env_id.startswith(extra.ids)), None)


def missing(env_id: str) -> Extra | None:
    """The extra that an id needs and that is not installed; nothing is imported."""
    extra = None if COMPILED.match(env_id) else extra_of(env_id)
    return extra if extra and find_spec(extra.module) is None else None


LOCAL = "local"
MACHINES = (LOCAL, "ray", "ray:local")  # where --on has several runs trained
NEEDS_OPTUNA = "a sweep needs Optuna: pip install 'stride-rl[tune]'"


def check_machines(where: str) -> None:
    """UserError for an --on that names nothing, or whose package is not installed."""
    if where not in MACHINES:
        raise UserError(f"--on {where}: {', '.join(MACHINES)}{nearest(where, MACHINES)}")
    if where != LOCAL and find_spec("ray") is None:
        raise UserError(f"--on {where} needs Ray: pip install 'stride-rl[cluster]'")
