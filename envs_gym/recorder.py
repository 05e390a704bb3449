"""What one of many worlds is shown, does and is paid, episode by episode, written down while all of them are stepped.

A recorder is a VecEnv around any other: whoever steps it notices nothing.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from stride.envs_fast.vec_env import Obs, Step, VecEnv
from stride.envs_gym.spaces import has_image
from stride.utils.durable_file import replacing
from stride.utils.video_file import VideoFile

FPS = 15.0
LARGE = 320  # pixels that a picture's longer side is enlarged to, by whole numbers


class Recording(NamedTuple):
    """An episode as the policy lived it: one observation more than actions."""

    observations: dict[str, np.ndarray]  # by name, "" of one that is alone
    actions: np.ndarray
    rewards: np.ndarray  # as the policy got them; their sum is the return where no wrapper changes them
    episode_return: float
    terminated: bool

    def save(self, path: Path) -> None:
        """An .npz of all of it, whole or not there."""
        columns: dict[str, Any] = {name or "observation": column for name, column in self.observations.items()}
        columns |= {"actions": self.actions, "rewards": self.rewards}
        columns |= {"episode_return": np.float64(self.episode_return), "terminated": np.bool_(self.terminated)}
        with replacing(path) as file:
            np.savez_compressed(file, **columns)

    @property
    def images(self) -> list[str]:
        """Names of the images among the observations."""
        return [name for name, column in self.observations.items() if column.dtype == np.uint8 and column.ndim == 4]

    def film(self, path: Path, name: str) -> None:
        """The image of that name as an mp4: of stacked frames the newest one."""
        with VideoFile(path, FPS) as video:
            for image in self.observations[name]:
                video.add(picture(image))


class Recorder:
    """The worlds of `envs`; every episode of `world` that ends is handed to `taken`."""

    def __init__(self, envs: VecEnv, taken: Callable[[Recording], None], world: int = 0) -> None:
        self.envs, self.num_envs, self.device = envs, envs.num_envs, envs.device
        self.observation_space, self.action_space = envs.observation_space, envs.action_space
        self.time_limit, self.resume, self.reward_threshold = envs.time_limit, envs.resume, envs.reward_threshold
        self._taken, self._world = taken, world
        self._seen: list[dict[str, np.ndarray]] = []
        self._actions: list[np.ndarray] = []
        self._rewards: list[float] = []

    @property
    def wrong(self) -> Tensor | None:
        """As the worlds have it."""
        return self.envs.wrong

    @property
    def is_image(self) -> bool:
        """Whether an image is among what is observed."""
        return has_image(self.observation_space)

    def reset(self, seed: int) -> Obs:
        """Start every world afresh, and a recording."""
        obs = self.envs.reset(seed)
        self._begin(obs)
        return obs

    def step(self, action: Tensor) -> Step:
        """Advance every world; waits for the device where they lie on one."""
        done = action[self._world].cpu().numpy().copy()
        step = self.envs.step(action)
        terminated, truncated = bool(step.terminated[self._world]), bool(step.truncated[self._world])
        if self._seen:  # else it went on within an episode whose beginning nobody recorded
            self._actions.append(done)
            self._rewards.append(float(step.reward[self._world]))
            self._seen.append(_row(step.final_obs if terminated or truncated else step.obs, self._world))
        if terminated or truncated:
            if self._seen:
                self._taken(self._recording(float(step.episode_return[self._world]), terminated))
            self._begin(step.obs)
        return step

    def _recording(self, episode_return: float, terminated: bool) -> Recording:
        columns = {name: np.stack([row[name] for row in self._seen]) for name in self._seen[0]}
        rewards = np.array(self._rewards, np.float32)
        return Recording(columns, np.stack(self._actions), rewards, episode_return, terminated)

    def _begin(self, obs: Obs) -> None:
        self._seen, self._actions, self._rewards = [_row(obs, self._world)], [], []

    def state_dict(self) -> dict[str, Any]:
        """That of the worlds; what is recorded of a running episode is not in it."""
        return self.envs.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken: the episode that runs there is recorded from there on."""
        self.envs.load_state_dict(state)
        self._seen = []

    def close(self) -> None:
        """Release what the worlds hold."""
        self.envs.close()


def picture(image: np.ndarray) -> np.ndarray:
    """[channels, height, width] as [height, width, 3], enlarged: the newest frame, grey unless its colours are told."""
    colours = image[-3:] if image.shape[0] % 3 == 0 else image[-1:].repeat(3, 0)
    times = max(1, LARGE // max(image.shape[1:]))
    return colours.transpose(1, 2, 0).repeat(times, 0).repeat(times, 1)


def _row(obs: Obs, world: int) -> dict[str, np.ndarray]:
    """One world's observation by name, copied."""
    named = obs if isinstance(obs, dict) else {"": obs}
    return {name: leaf[world].cpu().numpy().copy() for name, leaf in named.items()}
