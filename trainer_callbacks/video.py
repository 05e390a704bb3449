"""The callback that films an evaluation episode every video_freq_epochs, to videos/epoch=NN.mp4.

Training does not depend on it: it uses an environment of its own and draws no random numbers of the training.
"""

import logging
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import gymnasium
import lightning as L
from lightning.pytorch.callbacks import Callback

from stride.agents.base import Agent
from stride.agents.trained.episode import record
from stride.agents.trained.player import EpisodeStart, Mode, Player
from stride.config.schema import Config
from stride.envs_gym.gym_env import EnvError
from stride.envs_gym.rendered import RenderError, frames_per_second, make_rendered
from stride.runstore import run_files
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.evaluate import is_due, worlds_seed
from stride.utils.counter_rng import EVALUATE
from stride.utils.user_error import UserError
from stride.utils.video_file import VideoError, VideoFile

log = logging.getLogger("stride")


class Video(Callback):
    """Films the episode that the first environment of an evaluation plays; after a failure, which is logged, none."""

    def __init__(self, config: Config, run: RunDir, on_written: Callable[[Path], None]) -> None:
        """`on_written(path)` is called after each video."""
        self.config = config
        self.run = run
        self.on_written = on_written
        self._env: gymnasium.Env | None = None
        self._failed = False

    def on_train_batch_end(self, trainer: L.Trainer, agent: Agent, *rest: object) -> None:  # type: ignore[override]
        if not self.is_due(agent):
            return
        try:
            self.film(agent)
        except (RenderError, VideoError, EnvError, UserError) as error:
            self._failed = True
            log.warning(f"no videos in this run: {error}")

    def is_due(self, agent: Agent) -> bool:
        """Return whether the weights after the present iteration are to be filmed."""
        due = agent.epoch_ended and is_due(agent.epoch, self.config.video_freq_epochs, 0)
        return due and not self._failed

    def film(self, agent: Agent) -> None:
        """Play one episode with the present weights and write each frame to the file at once."""
        config = self.config
        env = self._env = self._env or make_rendered(config)
        policy = deepcopy(agent.policy).cpu()  # for a single environment the CPU is faster than a GPU
        player = Player(policy, env.observation_space, env.action_space)
        start = EpisodeStart(worlds_seed(config, EVALUATE, 0), 0, EVALUATE)
        mode: Mode = "greedy" if config.eval_deterministic else "sampled"
        path = run_files.check(self.run.videos / f"epoch={agent.epoch:02d}.mp4")
        with VideoFile(path, frames_per_second(env)) as video:
            record(env, player, config, start, mode, config.video_max_steps, video.add)
        self.on_written(path)

    def close(self) -> None:
        """Release the renderer."""
        if self._env is not None:
            self._env.close()
