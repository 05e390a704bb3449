"""Makes the worlds of a MiniGrid task, one for each id, from its kernels and parameters."""

from collections.abc import Callable, Mapping

import numpy as np
from gymnasium.spaces import Box, Discrete

from stride.envs_fast.minigrid import rules
from stride.envs_fast.minigrid.pictures import SCENE
from stride.envs_fast.minigrid.rules import Parameters
from stride.envs_fast.world import Kernels, Setting, World


def worlds_of(kernels: Mapping[str, Kernels], tasks: Mapping[str, Parameters], more: int = 0) -> tuple[World, ...]:
    """Return a world for each id of `tasks`; `more`: how many numbers of the state are behind the grid."""
    return tuple(
        World(
            env_id=env_id,
            setting=_setting_of(parameters),
            kernels=kernels,
            state_size=rules.CELLS + parameters.width * parameters.height + more,
            state_dtype=np.int32,
            by_world=True,
            time_limit=parameters.most_steps,
            scene=SCENE,
            compile_seconds=10,
        )
        for env_id, parameters in tasks.items()
    )


def _setting_of(parameters: Parameters) -> Callable[..., Setting]:
    def setting() -> Setting:
        """There are no arguments."""
        return Setting(
            observation_space=Box(0, rules.LIT, (rules.PLANES, rules.SIDE, rules.SIDE), np.uint8),
            action_space=Discrete(rules.ACTIONS),
            parameters=parameters,
        )

    return setting
