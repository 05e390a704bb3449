"""stable-retro's games as Gymnasium environments: `Retro/GAME` for every game whose ROM stable-retro finds.

stable-retro allows one emulator in a process. So each world starts a process for its own at its first reset
(retro_emulator.py), and training, evaluation and a viewer can run at the same time.
"""

import importlib.util
import subprocess
import sys
from functools import cache
from multiprocessing import Pipe
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import Env
from gymnasium.spaces import Box, Discrete, MultiBinary

from stride.config.extras import RETRO_EXTRA
from stride.config.scenarios import RETRO, retro_games, retro_starts, some
from stride.envs_gym import retro_emulator
from stride.envs_gym.answers import Info
from stride.envs_gym.wrappers.base import ResetAnswer, StepAnswer, require_positive
from stride.utils.user_error import UserError, nearest

FRAMES_PER_SECOND = 60
GRACE_SECONDS = 2.0  # time that an emulator has to end by itself before it is killed
ACTION_KINDS, OBS_TYPES = ("choices", "buttons"), ("rgb", "ram")
GameRequest = tuple[str, str, bool, bool]  # game, start ("": its own), actions are choices, memory is observed


class EmulatorError(Exception):
    """An emulator raised or ended; the message is the emulator's own."""


class RetroWorld(Env):
    """One game from one of its starts. Nothing is random: an episode depends only on its actions."""

    metadata: Info = {"render_modes": ["rgb_array"], "render_fps": FRAMES_PER_SECOND}  # noqa: RUF012

    def __init__(
        self,
        game: str,
        state: str = "",
        frames: int = 4,
        actions: Literal["choices", "buttons"] = "choices",
        obs_type: Literal["rgb", "ram"] = "rgb",
        render_mode: str | None = None,
    ) -> None:
        """`state`: where an episode begins, "" = the game's own start. `frames`: how many frames (60 a second) an
        action is held. `actions`: "choices" = one of the useful combinations of buttons, "buttons" = each by itself."""
        require_positive("env_kwargs.frames", frames)
        for name, value, options in (("actions", actions, ACTION_KINDS), ("obs_type", obs_type, OBS_TYPES)):
            if value not in options:
                raise UserError(f"env_kwargs.{name} takes {' or '.join(options)}, not {value!r}")
        starts = retro_starts(game)
        if state and state not in starts:
            raise UserError(f"env_kwargs.state: {game} has no {state!r}{nearest(state, starts)}; it has {some(starts)}")
        self.render_mode = render_mode
        self.frames = frames
        self.metadata = {**self.metadata, "render_fps": FRAMES_PER_SECOND / frames}
        self._request = (game, state, actions == "choices", obs_type == "ram")
        shape, count = _spaces(self._request)
        self.observation_space = Box(0, 255, shape, np.uint8)
        self.action_space = Discrete(count) if actions == "choices" else MultiBinary(count)
        self._emulator: Emulator | None = None
        self._screen = np.zeros((1, 1, 3), np.uint8)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> ResetAnswer:
        super().reset(seed=seed)
        if self._emulator is None:
            self._emulator = Emulator(self._request)
        observation, self._screen = self._emulator.ask((None, 0))
        return observation, {}

    def step(self, action: Any) -> StepAnswer:
        assert self._emulator is not None  # `reset` comes before `step`
        observation, self._screen, reward, terminated, info = self._emulator.ask((action, self.frames))
        return observation, reward, terminated, False, info

    def render(self) -> Any:
        return self._screen

    def close(self) -> None:
        if self._emulator is not None:
            self._emulator.close()
            self._emulator = None


class Emulator:
    """The process of one emulator. It ends when the pipe to it closes."""

    def __init__(self, request: GameRequest) -> None:
        self.pipe, child_pipe = Pipe()
        # started by its file, so that it imports nothing of Stride; in a session of its own, so that Ctrl-C does not
        # reach it: only the training may answer that
        command = [sys.executable, "-P", retro_emulator.__file__, str(child_pipe.fileno())]
        self.process = subprocess.Popen(command, pass_fds=(child_pipe.fileno(),), start_new_session=True)
        child_pipe.close()
        self.game = request[0]
        self.spaces = self.ask(request)

    def ask(self, message: tuple[Any, ...]) -> Any:
        """Send a message and return the emulator's answer.

        UserError for a file that is missing, EmulatorError where the emulator raised otherwise or has ended.
        """
        try:
            self.pipe.send(message)
            problem, result = self.pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            self.close()
            code = self.process.returncode
            raise EmulatorError(f"the emulator of {self.game} ended with exit code {code}") from error
        if problem is None:
            return result
        self.close()
        raise UserError(f"{self.game}: {problem}") if result else EmulatorError(problem)

    def close(self) -> None:
        """End the process; a second call does nothing."""
        self.pipe.close()
        try:
            self.process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@cache
def _spaces(request: GameRequest) -> Any:
    """Return the shape of an observation and the number of actions; this starts an emulator once for each request."""
    emulator = Emulator(request)
    emulator.close()
    return emulator.spaces


def register(env_id: str) -> None:
    """Register `Retro/GAME` in Gymnasium; UserError, with the nearest games, where there is no ROM of it."""
    if importlib.util.find_spec(RETRO_EXTRA.module) is None:
        raise UserError(RETRO_EXTRA.need(env_id))
    game = env_id.removeprefix(RETRO)
    games = retro_games()
    if game not in games:
        hint = nearest(game, games) or f"; installed: {some(games)}"
        raise UserError(f"there is no ROM of {game!r}: import yours with python -m stable_retro.import FOLDER{hint}")
    gymnasium.register(env_id, "stride.envs_gym.retro:RetroWorld", kwargs={"game": game})
