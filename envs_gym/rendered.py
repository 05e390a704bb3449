"""One environment of a config as Gymnasium makes it, drawn where wanted: for watching, recording and playing.

Training never comes here. Whatever a renderer raises leaves as RenderError: renderers fail in their own ways.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np

from stride.config.schema import Config
from stride.envs_gym import backend_gym
from stride.envs_gym.alone import Alone
from stride.envs_gym.answers import check_flags, real
from stride.envs_gym.blame import Blame, EnvError, of_traceback
from stride.envs_gym.make import env_errors, import_module, make_envs
from stride.envs_gym.step_watch import WatchedBlame, blame
from stride.envs_gym.wrappers.registry import world_kwargs, wrap, wrappers_of
from stride.utils.interrupted import by_signal
from stride.utils.user_error import UserError, describe_error

INVISIBLE = ("", "dummy", "offscreen")  # values of SDL_VIDEODRIVER under which nobody sees a window
FPS = 30.0  # of environments that do not say


class RenderError(RuntimeError):
    """An environment could not be drawn; names it and the cause."""

    missing = False  # whether a package is all it takes


@contextmanager
def rendering(env_id: str, envs: Sequence[gymnasium.Env] = ()) -> Iterator[None]:
    """Around drawing: whatever a renderer raises is a RenderError."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, UserError) or by_signal(error):
            raise
        render = Blame(env_id, envs, "render")
        accused = error if isinstance(error, EnvError) else render.accuse(describe_error(error), of_traceback(error))
        found = RenderError(f"{env_id} cannot be drawn: {accused.reason}")
        if "pygame" in accused.reason and isinstance(error, gymnasium.error.DependencyNotInstalled | ImportError):
            found = RenderError(f"{found}; pip install 'stride-rl[video]'")
            found.missing = True
        raise found from error


class Checked(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Outermost around a world that is watched: says whose fault it is, and takes only answers of the right types."""

    def __init__(self, env: gymnasium.Env, env_id: str, step_timeout: float | None) -> None:
        super().__init__(env)
        self._blame = blame(env_id, [env], step_timeout)

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[Any, dict[str, Any]]:
        with self._blame as found:
            found.doing = "reset"
            obs, info = self.env.reset(seed=seed, options=options)
        return obs, info

    def step(self, action: object) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        with self._blame as found:
            found.doing = "step"
            obs, reward, terminated, truncated, info = self.env.step(action)
            check_flags(terminated, truncated)
            return obs, real(reward), bool(terminated), bool(truncated), info

    def close(self) -> None:
        with self._blame as found:
            found.doing = "close"
            self.env.close()
        if isinstance(self._blame, WatchedBlame):
            self._blame.close()


def has_display() -> bool:
    """Whether a window could be seen by anybody."""
    if os.environ.get("SDL_VIDEODRIVER", "") not in INVISIBLE or not sys.platform.startswith("linux"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def make_rendered(config: Config, render_mode: str | None = "rgb_array", fps: float | None = None) -> gymnasium.Env:
    """A single Gymnasium environment: rgb_array to take frames from, human for a window, None to draw nothing."""
    env = _make(config, None)
    if render_mode is None:
        return env
    modes = env.metadata.get("render_modes", [])
    env.close()
    if render_mode not in modes:
        raise UserError(f"{config.env_id} has no render mode {render_mode}; it has {', '.join(modes) or 'none'}")
    if not has_display():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # else SDL looks for one and complains
    with rendering(config.env_id):
        env = _make(config, render_mode)
    if fps is not None:
        env.unwrapped.metadata = {**env.unwrapped.metadata, "render_fps": fps}  # of this one; the class has its own
    return env


def _make(config: Config, render_mode: str | None) -> gymnasium.Env:
    """With the arguments that make_envs gives each of its worlds, so that one seed means one episode."""
    kwargs = world_kwargs(config)
    if render_mode is not None:
        kwargs["render_mode"] = render_mode
    import_module(config.env_id)
    if backend_gym.why_not(config):  # no single world, or an id that nobody knows, which is said there
        return Checked(Alone(config.env_id, make_envs(config, 1)), config.env_id, config.step_timeout)
    with env_errors(config):
        env = gymnasium.make(
            config.env_id, max_episode_steps=config.max_episode_steps, disable_env_checker=True, **kwargs
        )
        return Checked(wrap(env, wrappers_of(config)).env, config.env_id, config.step_timeout)


def frame_of(env: gymnasium.Env) -> np.ndarray:
    """The picture of the present state, uint8 [height, width, 3]; a copy."""
    env_id = env.spec.id if env.spec else str(env)
    with rendering(env_id, [env]):
        frame = np.array(env.render())
        if frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8:
            raise ValueError(f"its frame is {frame.dtype}{list(frame.shape)}, not uint8 [height, width, 3]")
    return frame


def frames_per_second(env: gymnasium.Env) -> float:
    """At which the environment wants to be watched."""
    return float(env.metadata.get("render_fps") or FPS)
