"""Rewards that guide in VizDoom: potentials of the game's own numbers, which leave the best policy as it is."""

from stride.envs_gym.doom import DoomWorld
from stride.envs_gym.wrappers.shaping import PotentialShaper

HEALTHY = 100.0


class DoomShaper(PotentialShaper):
    """A potential of a number that VizDoom gives."""

    world_class = DoomWorld
    world_name = "one of VizDoom/..."


class DoomHealthShaper(DoomShaper):
    """Phi is the player's health as a fraction of 100, so that damage costs and a medikit pays immediately."""

    def potential(self) -> float:
        return max(float(self._world.variable("HEALTH")), 0.0) / HEALTHY


class DoomKillShaper(DoomShaper):
    """Phi is the number of monsters killed in this episode."""

    def potential(self) -> float:
        return float(self._world.variable("KILLCOUNT"))
