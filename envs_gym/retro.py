"""stable-retro: `Retro/GAME` for every game whose ROM lies where stable-retro looks for it.

There may be one emulator in a process, so each world has a process for its own, started when it is first reset:
training, evaluation and a viewer go side by side.
"""

import importlib.util
import subprocess
import sys
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Literal, NoReturn

import gymnasium
import numpy as np
from gymnasium import spaces

from stride.config.extras import RETRO_EXTRA
from stride.config.scenarios import RETRO, retro_games, retro_starts, some
from stride.envs_gym import retro_emulator
from stride.utils.user_error import UserError, nearest

FRAMES_PER_SECOND = 60
GRACE = 2.0  # seconds an emulator has to end by itself
ACTIONS, OBSERVED = ("choices", "buttons"), ("rgb", "ram")
Asked = tuple[str, str, bool, bool]  # game, start, choices or buttons, memory or screen


class EmulatorError(Exception):
    """An emulator refused or ended; what it said itself."""


class RetroWorld(gymnasium.Env[Any, Any]):
    """One game from one of its starts. An episode is a function of its actions alone."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": FRAMES_PER_SECOND}  # noqa: RUF012

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
        if not isinstance(frames, int) or frames < 1:
            raise UserError(f"env_kwargs.frames must be at least 1, not {frames}")
        for name, value, options in (("actions", actions, ACTIONS), ("obs_type", obs_type, OBSERVED)):
            if value not in options:
                raise UserError(f"env_kwargs.{name} takes {' or '.join(options)}, not {value!r}")
        if state and state not in (starts := retro_starts(game)):
            raise UserError(f"env_kwargs.state: {game} has no {state!r}{nearest(state, starts)}; it has {some(starts)}")
        self.render_mode, self.frames = render_mode, frames
        self.metadata = {**self.metadata, "render_fps": FRAMES_PER_SECOND / frames}
        self._asked = (game, state, actions == "choices", obs_type == "ram")
        shape, count = _spaces(self._asked)
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.action_space = spaces.Discrete(count) if actions == "choices" else spaces.MultiBinary(count)
        self._emulator: Emulator | None = None
        self._screen = np.zeros((1, 1, 3), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if self._emulator is None:
            self._emulator = Emulator(self._asked)
        obs, self._screen = self._emulator.ask((None, 0))
        return obs, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self._emulator is not None  # it was reset
        obs, self._screen, reward, over, info = self._emulator.ask((action, self.frames))
        return obs, reward, over, False, info

    def render(self) -> Any:
        return self._screen

    def close(self) -> None:
        if self._emulator is not None:
            self._emulator.close()
            self._emulator = None


class Emulator:
    """The process of one emulator; it ends when the pipe to it does."""

    def __init__(self, asked: Asked) -> None:
        self.pipe: Connection
        self.pipe, theirs = Pipe()
        # by its file: nothing of ours is imported there; a session of its own: Ctrl-C is for the one that trains
        command = [sys.executable, "-P", retro_emulator.__file__, str(theirs.fileno())]
        self.process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), start_new_session=True)
        theirs.close()
        self.game = asked[0]
        self.pipe.send(asked)
        self.spaces = self._answer()

    def ask(self, message: tuple[Any, int]) -> Any:
        """What it answers; EmulatorError where it is gone."""
        try:
            self.pipe.send(message)
        except (BrokenPipeError, ConnectionResetError):
            self._lost()
        return self._answer()

    def _answer(self) -> Any:
        try:
            problem, answer = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._lost()
        if problem is None:
            return answer
        self.close()
        raise UserError(f"{self.game}: {problem}") if answer else EmulatorError(problem)

    def _lost(self) -> NoReturn:
        self.close()
        raise EmulatorError(f"the emulator of {self.game} ended with exit code {self.process.returncode}")

    def close(self) -> None:
        """End it; again is harmless."""
        self.pipe.close()
        try:
            self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@cache
def _spaces(asked: Asked) -> tuple[tuple[int, ...], int]:
    """Shape of an observation and number of actions, asked of an emulator once."""
    emulator = Emulator(asked)
    emulator.close()
    shape, count = emulator.spaces
    return shape, count


def register(env_id: str) -> None:
    """Make `Retro/GAME` known to Gymnasium, or UserError with the nearest game whose ROM is here."""
    if importlib.util.find_spec(RETRO_EXTRA.module) is None:
        raise UserError(f"{env_id} needs {RETRO_EXTRA.title}: {RETRO_EXTRA.cure}")
    game, games = env_id.removeprefix(RETRO), retro_games()
    if game not in games:
        meant = nearest(game, games) or f"; there are {some(games)}"
        raise UserError(f"no ROM of {game!r} is here: python -m stable_retro.import FOLDER brings those you own{meant}")
    gymnasium.register(env_id, "stride.envs_gym.retro:RetroWorld", kwargs={"game": game})
