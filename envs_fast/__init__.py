"""Compiled environments, thousands at a time: `envs_fast.make("CartPole-v1", num_envs=4096, seed=0)`.

Importing this registers `fast/<id>` with Gymnasium, for `gymnasium.make_vec("fast/CartPole-v1", num_envs=4096)`. An
environment that Gymnasium does not have is registered under its plain id, too, unless its own package has done that.
"""

if __name__ == "envs_fast":
    raise ImportError("write stride.envs_fast")

import warnings

import gymnasium

from stride.envs_fast.numba_env import NumbaEnv
from stride.envs_fast.registry import make
from stride.envs_fast.world import BODIES, COMPILED, WORLDS, fast_id

__all__ = ["BODIES", "WORLDS", "NumbaEnv", "make"]

for _world in COMPILED.values():
    _is_plain = _world.gym_state is None and _world.env_id not in gymnasium.registry
    for _name in (fast_id(_world.env_id), *([_world.env_id] if _is_plain else [])):
        gymnasium.register(
            _name,
            entry_point="stride.envs_fast.gym_single:single_env",
            vector_entry_point="stride.envs_fast.gym_face:FastVectorEnv",
            max_episode_steps=_world.time_limit,
            reward_threshold=_world.reward_threshold,
            nondeterministic=_name == _world.env_id,  # resumes replay np_random, which it does not use
            kwargs={"env_id": _world.env_id},
        )

# POPGym and MiniGrid, if they are imported later, register their own ids again, and Gymnasium would warn
warnings.filterwarnings("ignore", ".*Overriding environment (popgym|MiniGrid)-")
