"""The wings by name: the one table in which the core names them, each imported when it is first asked for.

Whatever else the core needs of a wing is handed in by the roof: train.py and its like, scripts/, stride/.
"""

from importlib import import_module
from typing import Any

WINGS = {
    # who steps worlds (envs_gym/backends.py)
    "torch": "envs_gym.backend_torch",
    "fast": "envs_gym.backend_fast",
    "ale": "envs_gym.backend_ale",
    "gym": "envs_gym.backend_gym",  # the core's own, after all others
    "workers": "envs_gym.async_env",
    # ids of environments (envs_gym/make.py): `register(env_id)` makes one known
    "Bandit": "envs_gym.bandits",
    "Retro": "envs_gym.retro",
    "VizDoom": "envs_gym.doom",
    "dm_control": "envs_gym.dmc",
    "brax": "envs_gym.brax_worlds",  # its import does
    # wrappers (envs_gym/wrappers/registry.py)
    "AtariObjects": "envs_gym.wrappers.atari_objects",
    "BreakoutFeatures": "envs_gym.wrappers.atari_objects",
    "PongFeatures": "envs_gym.wrappers.atari_objects",
    "PongShaper": "envs_gym.wrappers.atari_objects",
    "DoomHealthShaper": "envs_gym.wrappers.doom",
    "DoomKillShaper": "envs_gym.wrappers.doom",
    "MiniGridFlat": "envs_gym.wrappers.minigrid",
    "MiniGridMask": "envs_gym.wrappers.minigrid",
    "MiniGridPlanes": "envs_gym.wrappers.minigrid",
    # published runs (agents/trained/loading.py)
    "hub": "publishing.hub_run",
}


def load_wing(name: str) -> Any:
    """The module of a row."""
    return import_module(WINGS[name])
