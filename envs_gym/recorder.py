"""Records the episodes of one of many worlds while all of them are stepped: observations, actions and rewards.

A Recorder wraps a VecEnv and returns its results unchanged. Part of the Python interface (stride/__init__.py).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from stride.envs_fast.vec_env import Obs, Step, VecEnv
from stride.envs_gym.answers import State
from stride.envs_gym.on_device import VecEnvWrapper
from stride.envs_gym.spaces import has_image
from stride.utils.durable_file import replacing
from stride.utils.video_file import VideoFile

FILM_FPS = 15.0  # pictures a second
PICTURE_PIXELS = 320  # a picture is enlarged by a whole number, until its longer side has at most so many pixels


class EpisodeRecording(NamedTuple):
    """An episode as the policy saw it: T + 1 observations, T actions and T rewards."""

    observations: dict[str, np.ndarray]  # [T + 1, ...] by name; "" where the observation is one tensor
    actions: np.ndarray  # [T, ...]
    rewards: np.ndarray  # [T], with the changes of wrappers, so their sum may differ from `episode_return`
    episode_return: float
    terminated: bool  # else truncated

    def save(self, path: Path) -> None:
        """Write the recording as an .npz file; the file is complete or does not exist."""
        columns: dict[str, Any] = {name or "observation": column for name, column in self.observations.items()}
        columns["actions"] = self.actions
        columns["rewards"] = self.rewards
        columns["episode_return"] = np.float64(self.episode_return)
        columns["terminated"] = np.bool_(self.terminated)
        with replacing(path) as file:
            np.savez_compressed(file, **columns)

    @property
    def images(self) -> list[str]:
        """Names of the observations that are images."""
        return [name for name, column in self.observations.items() if column.dtype == np.uint8 and column.ndim == 4]

    def film(self, path: Path, name: str) -> None:
        """Write the images of that name as an mp4 film; of stacked frames only the newest one."""
        with VideoFile(path, FILM_FPS) as video:
            for image in self.observations[name]:
                video.add(picture(image))


class Recorder(VecEnvWrapper):
    """The environments of `envs`. Each finished episode of the one with number `world` is passed to `receive`."""

    def __init__(self, envs: VecEnv, receive: Callable[[EpisodeRecording], None], world: int = 0) -> None:
        super().__init__(envs)
        self._receive = receive
        self._world = world
        self._observations: list[dict[str, np.ndarray]] = []
        self._actions: list[np.ndarray] = []
        self._rewards: list[float] = []

    @property
    def is_image(self) -> bool:
        """Whether a part of the observation is an image."""
        return has_image(self.observation_space)

    def reset(self, seed: int) -> Obs:
        """Reset every environment and start a new recording."""
        observation = self.envs.reset(seed)
        self._begin(observation)
        return observation

    def step(self, action: Tensor) -> Step:
        """Step every environment; this waits for a GPU's results."""
        world = self._world
        world_action = action[world].cpu().numpy().copy()
        step = self.envs.step(action)
        finished = bool(step.terminated[world] or step.truncated[world])
        if self._observations:  # empty after loading a checkpoint: the episode's beginning is unknown
            self._actions.append(world_action)
            self._rewards.append(float(step.reward[world]))
            self._observations.append(_row(step.final_obs if finished else step.obs, world))
            if finished:
                self._receive(self._recording(float(step.episode_return[world]), bool(step.terminated[world])))
        if finished:
            self._begin(step.obs)
        return step

    def _recording(self, episode_return: float, terminated: bool) -> EpisodeRecording:
        names = self._observations[0]
        columns = {name: np.stack([row[name] for row in self._observations]) for name in names}
        rewards = np.array(self._rewards, np.float32)
        return EpisodeRecording(columns, np.stack(self._actions), rewards, episode_return, terminated)

    def _begin(self, observation: Obs) -> None:
        self._observations = [_row(observation, self._world)]
        self._actions = []
        self._rewards = []

    def load_state_dict(self, state: State) -> None:
        """Continue from the state; the episode in progress there is not recorded."""
        super().load_state_dict(state)
        self._observations = []


def picture(image: np.ndarray) -> np.ndarray:
    """Return an image [channels, height, width] as a picture [height, width, 3], enlarged by a whole number.

    Of stacked frames it shows the newest; it is grey unless the channels are a multiple of three colours.
    """
    colours = image[-3:] if image.shape[0] % 3 == 0 else image[-1:].repeat(3, 0)
    times = max(1, PICTURE_PIXELS // max(image.shape[1:]))
    return colours.transpose(1, 2, 0).repeat(times, 0).repeat(times, 1)


def _row(observation: Obs, world: int) -> dict[str, np.ndarray]:
    """Return a copy of one world's observation, by name."""
    named = observation if isinstance(observation, dict) else {"": observation}
    return {name: tensor[world].cpu().numpy().copy() for name, tensor in named.items()}
