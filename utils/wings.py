"""The table of modules in wings (optional parts such as envs_gym/) that the core uses, imported when first needed.

The core imports no wing directly. What else it needs of a wing is passed to it by the commands in stride/commands/.
"""

from importlib import import_module
from typing import Any

WINGS = {
    # backends, which step environments (envs_gym/backends.py)
    "torch": "stride.envs_gym.backend_torch",
    "fast": "stride.envs_gym.backend_fast",
    "ale": "stride.envs_gym.backend_ale",
    "gym": "stride.envs_gym.backend_gym",  # used if no other backend fits
    "workers": "stride.envs_gym.async_env",
    # families of environments (envs_gym/make.py): `register(env_id)` registers an id with Gymnasium
    "Bandit": "stride.envs_gym.bandits",
    "Retro": "stride.envs_gym.retro",
    "VizDoom": "stride.envs_gym.doom",
    "dm_control": "stride.envs_gym.dmc",
    "brax": "stride.envs_gym.brax_worlds",  # importing it registers all ids
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
    """Import the module of a row of WINGS and return it."""
    return import_module(WINGS[name])
