"""dm_control's suite as Gymnasium environments `dm_control/DOMAIN-TASK`, observed as one flat vector.

It replaces Shimmy's version. Here each episode gets a seed of its own, drawn from `np_random`, so replaying its actions
is exact; in Shimmy one RandomState goes on from episode to episode. Gymnasium keeps the time limits.
"""

import logging
import os
import sys
from ctypes.util import find_library
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import Env
from gymnasium.spaces import Box

from stride.envs_gym.answers import Info
from stride.envs_gym.snapshot import MUJOCO_CLASSES
from stride.envs_gym.wrappers.base import ResetAnswer, StepAnswer
from stride.envs_gym.wrappers.pixels import RENDERERS, Draw
from stride.utils.screen import import_mujoco

if TYPE_CHECKING:
    import mujoco

PREFIX = "dm_control/"
EPISODE_STEPS = 1000  # the limit of every task of the suite; LQR has none there, and gets the same one
SEEDS = 2**32  # seeds of RandomState are below this number
UNBOUNDED = 1e10  # dm_control's bound for an actuator without limits
CAMERAS = {"quadruped": 2}  # domain -> number of a camera that follows the body, where camera 0 does not


class DmControl(Env[np.ndarray, np.ndarray]):
    """One task. Its observation is all entries of the suite's own observation, in their order, as float32."""

    def __init__(
        self,
        domain: str,
        task: str,
        render_mode: str | None = None,
        camera: int | None = None,
        reflections: bool = True,
        width: int = 320,
        height: int = 240,
    ) -> None:
        """`camera`, `reflections`: settings of pictures, also for `obs: pixels`; without a GPU reflections take most of
        the time. `width`, `height`: pixels of films."""
        import_suite()
        from dm_control import suite

        # `random` only decides the springs of LQR; `reset` gives each episode a seed of its own
        self._env = suite.load(domain, task, task_kwargs={"random": 0, "time_limit": float("inf")})
        self._physics, self._task = self._env.physics, self._env.task
        sizes = [int(np.prod(component.shape, dtype=int)) for component in self._env.observation_spec().values()]
        self.observation_space = Box(-np.inf, np.inf, (sum(sizes),), np.float32)
        action = self._env.action_spec()
        lower, upper = (np.broadcast_to(side, action.shape) for side in (action.minimum, action.maximum))
        lower = np.where(lower <= -UNBOUNDED, -np.inf, lower)
        upper = np.where(upper >= UNBOUNDED, np.inf, upper)
        self.action_space = Box(lower, upper, dtype=np.float64)
        fps = round(1 / self._env.control_timestep())
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": fps}
        self.render_mode = render_mode
        self._camera = CAMERAS.get(domain, 0) if camera is None else camera
        self._flags = {} if reflections else {"reflection": False, "shadow": False}
        self._size = width, height

    @property
    def data(self) -> "mujoco.MjData":
        """MuJoCo's own data of the physics; snapshot.py compares it after a resume."""
        data: mujoco.MjData = self._physics.data.ptr
        return data

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> ResetAnswer:
        super().reset(seed=seed)
        self._task.random.seed(int(self.np_random.integers(SEEDS)))
        return _flat(self._env.reset().observation), {}

    def step(self, action: np.ndarray) -> StepAnswer:
        time_step = self._env.step(action)
        is_last = bool(time_step.last())
        terminated = is_last and bool(time_step.discount == 0)  # dm_control marks a true end by a discount of 0
        return _flat(time_step.observation), time_step.reward, terminated, is_last and not terminated, {}

    def render(self) -> np.ndarray:
        width, height = self._size
        return self.picture(height, width)

    def picture(self, height: int, width: int) -> np.ndarray:
        """Return a picture of the present state, uint8 [height, width, 3]."""
        image: np.ndarray = self._physics.render(
            height, width, camera_id=self._camera, render_flag_overrides=self._flags
        )
        return image

    def close(self) -> None:
        self._env.close()


def dm_control(world: DmControl, height: int, width: int) -> Draw:
    """Return a function that draws the world's picture for `obs: pixels`, channels first."""
    return lambda world: world.picture(height, width).transpose(2, 0, 1)


RENDERERS[DmControl] = (3, dm_control)
MUJOCO_CLASSES.append(DmControl)


def register() -> None:
    """Register every task of the suite in Gymnasium; ModuleNotFoundError without dm_control."""
    import_suite()
    from dm_control import suite

    for domain, task in suite.ALL_TASKS:
        name, kwargs = f"{PREFIX}{domain}-{task}", {"domain": domain, "task": task}
        if name not in gymnasium.registry:
            gymnasium.register(name, "stride.envs_gym.dmc:DmControl", max_episode_steps=EPISODE_STEPS, kwargs=kwargs)


def import_suite() -> None:
    """Import dm_control's suite so that it draws without a window where no display exists, with any MuJoCo version."""
    if "dm_control.suite" in sys.modules:
        return
    no_window = sys.platform.startswith("linux") and not {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ)
    if no_window and find_library("EGL"):
        os.environ.setdefault("MUJOCO_GL", "egl")  # the import reads it once; else it would try to open a window
    mujoco = import_mujoco()
    from dm_control.mujoco.wrapper.mjbindings import sizes

    # dm_control 1.0.50 lists MuJoCo 3's fields, and fails on those that MuJoCo 4 renamed. These fields describe soft
    # bodies, which no task of the suite has, so they are deleted from its lists
    model = mujoco.MjModel.from_xml_string("<mujoco/>")
    for name, struct in (("mjmodel", model), ("mjdata", mujoco.MjData(model))):
        listed = sizes.array_sizes[name]
        for field in set(listed) - set(dir(struct)):
            del listed[field]
    logging.getLogger("absl").setLevel(logging.ERROR)  # it warns about the suite's own files for each world made
    import dm_control.suite  # noqa: F401


def _flat(observation: dict[str, Any]) -> np.ndarray:
    return np.concatenate([*map(np.ravel, observation.values())], dtype=np.float32, casting="same_kind")
