"""The wings by name: the one table in which the core names them, each imported when it is first asked for.

Whatever else the core needs of a wing is handed in by the roof: train.py and its like, scripts/, stride/.
"""

from importlib import import_module
from typing import Any

WINGS = {
    # who steps worlds (envs_gym/backends.py)
    "torch": "stride.envs_gym.backend_torch",
    "fast": "stride.envs_gym.backend_fast",
    "ale": "stride.envs_gym.backend_ale",
    "gym": "stride.envs_gym.backend_gym",  # the core's own, after all others
    "workers": "stride.envs_gym.async_env",
    # ids of environments (envs_gym/make.py): `register(env_id)` makes one known
    "Bandit": "stride.envs_gym.bandits",
    "Retro": "stride.envs_gym.retro",
    "VizDoom": "stride.envs_gym.doom",
    "dm_control": "stride.envs_gym.dmc",
    "brax": "stride.envs_gym.brax_worlds",  # its import does
    # wrappers (envs_gym/wrappers/registry.py)
    "AtariObjects": "stride.envs_gym.wrappers.atari_objects",
    "BreakoutFeatures": "stride.envs_gym.wrappers.atari_objects",
    "OCAtariObjects": "stride.envs_gym.wrappers.ocatari_objects",
    "PongFeatures": "stride.envs_gym.wrappers.atari_objects",
    "PongShaper": "stride.envs_gym.wrappers.atari_objects",
    "DoomHealthShaper": "stride.envs_gym.wrappers.doom",
    "DoomKillShaper": "stride.envs_gym.wrappers.doom",
    "MiniGridFlat": "stride.envs_gym.wrappers.minigrid",
    "MiniGridMask": "stride.envs_gym.wrappers.minigrid",
    "MiniGridPlanes": "stride.envs_gym.wrappers.minigrid",
    # published runs (agents/trained/loading.py)
    "hub": "stride.publishing.hub_run",
}


def load_wing(name: str) -> Any:
    """The module of a row."""
    return import_module(WINGS[name])
