"""Compiled environments, thousands at a time: `envs_fast.make("CartPole-v1", num_envs=4096, seed=0)`.

Importing this registers `fast/<id>` with Gymnasium, for `gymnasium.make_vec("fast/CartPole-v1", num_envs=4096)`;
a world that Gymnasium has not got goes by its plain id too.
"""

if __name__ == "envs_fast":
    raise ImportError("write stride.envs_fast")

import gymnasium

from stride.envs_fast.numba_env import NumbaEnv
from stride.envs_fast.registry import WORLDS, make

__all__ = ["WORLDS", "NumbaEnv", "make"]

for _world in WORLDS.values():
    for _name in (f"fast/{_world.env_id}", *([_world.env_id] if _world.gym_state is None else [])):
        gymnasium.register(
            _name,
            entry_point="stride.envs_fast.gym_single:single_env",
            vector_entry_point="stride.envs_fast.gym_face:FastVectorEnv",
            max_episode_steps=_world.time_limit,
            reward_threshold=_world.reward_threshold,
            nondeterministic=_name == _world.env_id,  # its streams go on outside np_random, from which resumes replay
            kwargs={"env_id": _world.env_id},
        )
