"""Makes the world of a MuJoCo task; model, constants and arguments are read from Gymnasium's own environment."""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import load_env_creator
from gymnasium.spaces import Box

from stride.envs_fast.bodies.library import function_addresses, package
from stride.envs_fast.bodies.physics import ARRAYS, Physics
from stride.envs_fast.world import NUMBA, Kernels, Setting, World, plain_gym_state

LEFT_OUT = ("self", "xml_file", "default_camera_config", "kwargs")  # arguments of Gymnasium's that we do not accept
MIN_DATAS = 4  # number of MjData objects of a world, at least


@dataclass(frozen=True)
class Task:
    """What differs between Gymnasium's MuJoCo tasks."""

    env_id: str
    kernels: Kernels
    parameters: Callable[[Any], Any]  # of Gymnasium's environment
    with_forces: bool = False  # whether it reads `cfrc_ext`, which MuJoCo computes on request


class BodySetting:
    """`World.setting` of a task: a function whose arguments and defaults are those of Gymnasium's constructor."""

    def __init__(self, task: Task) -> None:
        self._task = task

    @property
    def __signature__(self) -> inspect.Signature:
        creator: Any = load_env_creator(str(gymnasium.spec(self._task.env_id).entry_point))
        parameters = inspect.signature(creator.__init__).parameters.values()
        return inspect.Signature([parameter for parameter in parameters if parameter.name not in LEFT_OUT])

    def __call__(self, **kwargs: Any) -> Setting:
        env: Any = gymnasium.make(self._task.env_id, disable_env_checker=True, **kwargs).unwrapped
        space, numbers = env.action_space, self._task.parameters(env)
        physics, owners = physics_of(env, self._task.with_forces)
        return Setting(
            observation_space=Box(-np.inf, np.inf, env.observation_space.shape, np.float32),
            action_space=Box(-1.0, 1.0, space.shape, np.float32),
            gym_action_space=space,
            in_gym_units=True,
            parameters=numbers,
            gym_parameters=numbers._replace(in_units=1),
            tables=physics,
            state_size=int(env.observation_space.shape[0] + 1 + mujoco_numbers(env.model)),
            owners=owners,
        )


def physics_of(env: Any, with_forces: bool) -> tuple[Physics, tuple[Any, ...]]:
    """Return the tables of the world, and the objects that own the memory whose addresses are in them."""
    mujoco, model = package(), env.model
    datas = [mujoco.MjData(model) for _ in range(max(MIN_DATAS, os.cpu_count() or 1))]
    rows = [[data._address, *(getattr(data, name).ctypes.data for name in ARRAYS)] for data in datas]
    seen, which = env.observation_space.shape[0], int(mujoco.mjtState.mjSTATE_INTEGRATION)
    low, high = (bound.astype(np.float64) for bound in (env.action_space.low, env.action_space.high))
    physics = Physics(
        functions=np.array(function_addresses(), np.int64),
        model=np.array([model._address], np.int64),
        rows=np.array(rows, np.int64),
        lent=np.zeros(len(datas), np.int64),
        counts=np.array([getattr(datas[0], name).size for name in ARRAYS], np.int64),
        sizes=np.array([seen, mujoco_numbers(model), which, env.frame_skip, with_forces], np.int64),
        scale=np.stack([low / 2 + high / 2, high / 2 - low / 2, low, high]),
        first=np.concatenate([env.init_qpos, env.init_qvel]),
        masses=np.append(model.body_mass, model.body_mass.sum()),
    )
    return physics, (model, *datas)


def mujoco_numbers(model: Any) -> int:
    """Return how many numbers MuJoCo's state (mjSTATE_INTEGRATION) has."""
    mujoco = package()
    return int(mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_INTEGRATION))


def pose(env: Any, column: np.ndarray) -> None:
    """Set Gymnasium's environment to the state in a world's column."""
    mujoco = package()
    which = mujoco.mjtState.mjSTATE_INTEGRATION
    numbers = np.ascontiguousarray(column[-mujoco_numbers(env.model) :])
    mujoco.mj_setState(env.model, env.data, numbers, which)
    mujoco.mj_forward(env.model, env.data)


def world_of(task: Task) -> World:
    """Make the world of a task."""
    spec = gymnasium.spec(task.env_id)
    return World(
        env_id=task.env_id,
        setting=BodySetting(task),
        kernels={NUMBA: task.kernels},
        state_size=0,  # the setting knows it
        gym_state=plain_gym_state,
        pose=pose,
        time_limit=spec.max_episode_steps,
        reward_threshold=spec.reward_threshold,
        by_world=True,
        heavy=True,
        compile_seconds=10,
    )
