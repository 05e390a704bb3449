"""Wrappers that shape rewards in VizDoom by potentials of the game's own numbers (see shaping.py)."""

from stride.envs_gym.doom import DoomWorld
from stride.envs_gym.wrappers.shaping import PotentialShaper

FULL_HEALTH = 100.0


class DoomShaper(PotentialShaper):
    """Base class: a potential that is computed from a number of the game."""

    world_class = DoomWorld
    world_name = "one of VizDoom/..."


class DoomHealthShaper(DoomShaper):
    """Phi is the player's health as a fraction of 100, so that damage costs and a medikit pays immediately."""

    def potential(self) -> float:
        return max(float(self._world.variable("HEALTH")), 0.0) / FULL_HEALTH


class DoomKillShaper(DoomShaper):
    """Phi is the number of monsters killed in this episode."""

    def potential(self) -> float:
        return float(self._world.variable("KILLCOUNT"))
