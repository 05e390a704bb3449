"""stable-retro: `Retro/GAME` for every game whose ROM is where stable-retro looks for it.

There may be one emulator in a process, so each world has a process for its own, started when it is first reset:
training, evaluation and a viewer go side by side.
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
GRACE = 2.0  # seconds an emulator has to end by itself
ACTIONS, OBSERVED = ("choices", "buttons"), ("rgb", "ram")
GameRequest = tuple[str, str, bool, bool]  # game, start, choices or buttons, memory or screen


class EmulatorError(Exception):
    """An emulator refused or ended; its own message."""


class RetroWorld(Env):
    """One game from one of its starts. An episode is a function of its actions alone."""

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
        """`state`: where an episode begins, "" = the game's own start. `frames`: of 60 a second, that an action is
        held. `actions`: one of the combinations that make sense, or every button by itself."""
        require_positive("env_kwargs.frames", frames)
        for name, value, options in (("actions", actions, ACTIONS), ("obs_type", obs_type, OBSERVED)):
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
        assert self._emulator is not None  # it was reset
        observation, self._screen, reward, terminated, info = self._emulator.ask((action, self.frames))
        return observation, reward, terminated, False, info

    def render(self) -> Any:
        return self._screen

    def close(self) -> None:
        if self._emulator is not None:
            self._emulator.close()
            self._emulator = None


class Emulator:
    """The process of one emulator; it ends when the pipe to it does."""

    def __init__(self, request: GameRequest) -> None:
        self.pipe, child_pipe = Pipe()
        # by its file: nothing of ours is imported there; a session of its own: Ctrl-C is for the one that trains
        command = [sys.executable, "-P", retro_emulator.__file__, str(child_pipe.fileno())]
        self.process = subprocess.Popen(command, pass_fds=(child_pipe.fileno(),), start_new_session=True)
        child_pipe.close()
        self.game = request[0]
        self.spaces = self.ask(request)

    def ask(self, message: tuple[Any, ...]) -> Any:
        """The emulator's answer; EmulatorError where it is gone."""
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
        """End it; again is harmless."""
        self.pipe.close()
        try:
            self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@cache
def _spaces(request: GameRequest) -> Any:
    """Shape of an observation and number of actions, asked of an emulator once."""
    emulator = Emulator(request)
    emulator.close()
    return emulator.spaces


def register(env_id: str) -> None:
    """Make `Retro/GAME` known to Gymnasium, or UserError with the nearest game whose ROM is here."""
    if importlib.util.find_spec(RETRO_EXTRA.module) is None:
        raise UserError(RETRO_EXTRA.need(env_id))
    game = env_id.removeprefix(RETRO)
    games = retro_games()
    if game not in games:
        hint = nearest(game, games) or f"; installed: {some(games)}"
        raise UserError(f"there is no ROM of {game!r}: import yours with python -m stable_retro.import FOLDER{hint}")
    gymnasium.register(env_id, "stride.envs_gym.retro:RetroWorld", kwargs={"game": game})
