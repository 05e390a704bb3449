"""Rewards that guide in VizDoom: potentials of the game's own numbers, which leave the best policy as it is."""

from typing import Any

import gymnasium

from stride.envs_gym.doom import DoomWorld
from stride.envs_gym.wrappers.base import env_name, require
from stride.envs_gym.wrappers.shaping import PotentialShaper

HEALTHY = 100.0


class DoomHealthShaper(PotentialShaper):
    """Phi is the player's health as a share of 100: being hurt costs at once, a medikit pays at once."""

    def __init__(self, env: gymnasium.Env, gamma: float, scale: float = 1.0) -> None:
        self._world = doom_of(env, "DoomHealthShaper")
        super().__init__(env, gamma, scale)

    def potential(self) -> float:
        return max(self._world.variable("HEALTH"), 0.0) / HEALTHY


class DoomKillShaper(PotentialShaper):
    """Phi is the number of monsters killed in this episode."""

    def __init__(self, env: gymnasium.Env, gamma: float, scale: float = 1.0) -> None:
        self._world = doom_of(env, "DoomKillShaper")
        super().__init__(env, gamma, scale)

    def potential(self) -> float:
        return self._world.variable("KILLCOUNT")


def doom_of(env: gymnasium.Env, name: str) -> DoomWorld:
    """The game inside, or UserError for another environment."""
    world: Any = env.unwrapped
    require(isinstance(world, DoomWorld), f"{name} needs one of VizDoom/..., not {env_name(env)}")
    assert isinstance(world, DoomWorld)
    return world
