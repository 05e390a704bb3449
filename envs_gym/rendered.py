"""Makes one environment of a config as a `gymnasium.Env` that can be drawn, for watching, recording and playing.

Training does not use it. All errors of drawing become a RenderError, because each renderer raises other ones.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import Env, Space, Wrapper
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Dict, Discrete
from torch import Tensor

from stride.config.schema import Config
from stride.envs_fast.vec_env import Obs, VecEnv
from stride.envs_gym import backend_gym
from stride.envs_gym.answers import Info, check_flags, real
from stride.envs_gym.blame import Blame, EnvError, of_traceback
from stride.envs_gym.make import env_errors, import_module, make_envs
from stride.envs_gym.snapshot import MUJOCO_ENTRY
from stride.envs_gym.step_watch import make_blame
from stride.envs_gym.wrappers.base import ResetAnswer, StepAnswer
from stride.envs_gym.wrappers.registry import world_kwargs, wrap, wrappers_of
from stride.utils.interrupted import by_signal
from stride.utils.screen import has_display, offer_egl
from stride.utils.user_error import UserError, describe_error

DEFAULT_FPS = 30.0  # of environments whose metadata has no render_fps


class RenderError(RuntimeError):
    """An environment could not be drawn. The message names it and the cause."""

    missing = False  # whether the cause is only a package that is not installed


@contextmanager
def rendering(env_id: str, envs: Sequence[Env] = ()) -> Iterator[None]:
    """Turn everything that drawing raises inside this block into a RenderError."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, UserError) or by_signal(error):
            raise
        env_error = error
        if not isinstance(env_error, EnvError):
            env_error = Blame(env_id, envs, "render").accuse(describe_error(error), of_traceback(error))
        text = f"{env_id} cannot be drawn: {env_error.reason}"
        installable = isinstance(error, gymnasium.error.DependencyNotInstalled | ImportError)
        missing = installable and "pygame" in env_error.reason
        render_error = RenderError(f"{text}; pip install 'stride-rl[video]'" if missing else text)
        render_error.missing = missing
        raise render_error from error


class CheckedEnv(Wrapper):
    """The outermost wrapper of a single world: its errors name the code to blame, and it checks types of answers."""

    def __init__(self, env: Env, env_id: str, step_timeout: float | None) -> None:
        super().__init__(env)
        self._blame = make_blame(env_id, [env], step_timeout)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> ResetAnswer:
        with self._blame.during("reset"):
            observation, info = self.env.reset(seed=seed, options=options)
        return observation, info

    def step(self, action: object) -> StepAnswer:
        with self._blame.during("step"):
            observation, reward, terminated, truncated, info = self.env.step(action)
            check_flags(terminated, truncated)
            return observation, real(reward), bool(terminated), bool(truncated), info

    def close(self) -> None:
        with self._blame.during("close"):
            self.env.close()
        self._blame.close()


class SingleWorldEnv(Env):
    """A vector environment of one world as a `gymnasium.Env`, for ids of which Gymnasium has no single world.

    Its spaces are the policy's, and it cannot be drawn. Its episodes differ from those of many worlds with the same
    seed. A step after an episode's end belongs to the next episode.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, env_id: str, envs: VecEnv) -> None:
        self.envs = envs
        self.spec = EnvSpec(env_id.rpartition(":")[2])
        self.observation_space = envs.observation_space
        self.action_space = envs.action_space
        self._dtype = torch.float32 if isinstance(envs.action_space, Box) else torch.int64

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> ResetAnswer:
        """Begin the first episode of a seed; without a seed, of one drawn from `np_random`."""
        super().reset(seed=seed)
        return self._as_numpy(self.envs.reset(int(self.np_random.integers(1 << 31)) if seed is None else seed)), {}

    def step(self, action: Any) -> StepAnswer:
        """Advance the world by the policy's action; at an episode's end the observation is the episode's last one."""
        step = self.envs.step(torch.as_tensor(np.asarray(action), dtype=self._dtype, device=self.envs.device)[None])
        terminated, truncated = bool(step.terminated), bool(step.truncated)
        observation = self._as_numpy(step.final_obs if terminated or truncated else step.obs)
        return observation, float(step.reward), terminated, truncated, {}

    def _as_numpy(self, observation: Obs) -> Any:
        """Return a copy of the world's observation as Gymnasium's spaces have it."""
        space = self.observation_space
        if not isinstance(observation, dict):
            return _world_value(observation, space)
        assert isinstance(space, Dict)
        return {name: _world_value(tensor, space[name]) for name, tensor in observation.items()}

    def close(self) -> None:
        """Release the worlds."""
        self.envs.close()


def _world_value(tensor: Tensor, space: Space) -> Any:
    if isinstance(space, Discrete):
        return int(tensor[0])
    return tensor[0].cpu().numpy().astype(space.dtype, copy=True)


def make_rendered(config: Config, render_mode: str | None = "rgb_array", fps: float | None = None) -> Env:
    """Make a single environment that can be drawn.

    `render_mode`: rgb_array for `frame_of`, human for a window, None to draw nothing. `fps`: pictures a second instead
    of the environment's own speed. UserError for a mode that the environment does not have.
    """
    env = _make(config, None)
    if render_mode is None:
        return env
    modes = env.metadata.get("render_modes", [])
    env.close()
    if render_mode not in modes:
        raise UserError(f"{config.env_id} has no render mode {render_mode}; it has {', '.join(modes) or 'none'}")
    if not has_display():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # else SDL looks for a display and prints errors
        is_body = env.spec is not None and str(env.spec.entry_point).startswith(MUJOCO_ENTRY)
        if is_body and (lacking := offer_egl()):
            raise RenderError(f"{config.env_id} cannot be drawn: {lacking}")
    with rendering(config.env_id):
        env = _make(config, render_mode)
    if fps is not None:
        env.unwrapped.metadata = {**env.unwrapped.metadata, "render_fps": fps}  # a copy: the class keeps its own
    return env


def _make(config: Config, render_mode: str | None) -> Env:
    """Make the environment with the arguments of make_envs, so that a seed gives the same episode as there."""
    kwargs = world_kwargs(config)
    if render_mode is not None:
        kwargs["render_mode"] = render_mode
    kwargs["max_episode_steps"] = config.max_episode_steps
    env_id = config.env_id
    import_module(env_id)
    if backend_gym.why_not(config):  # no single world, or an unknown id, for which make_envs raises
        return CheckedEnv(SingleWorldEnv(env_id, make_envs(config, 1)), env_id, config.step_timeout)
    with env_errors(config):
        env = gymnasium.make(env_id, disable_env_checker=True, **kwargs)
        return CheckedEnv(wrap(env, wrappers_of(config)).env, env_id, config.step_timeout)


def frame_of(env: Env) -> np.ndarray:
    """Return a picture of the present state, a copy, uint8 [height, width, 3]; RenderError where that fails."""
    with rendering(env.spec.id if env.spec else str(env), [env]):
        frame = np.array(env.render())
        if frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8:
            raise ValueError(f"its frame is {frame.dtype}{list(frame.shape)}, not uint8 [height, width, 3]")
    return frame


def frames_per_second(env: Env) -> float:
    """Return the environment's own speed for watching, pictures a second."""
    return float(env.metadata.get("render_fps") or DEFAULT_FPS)
