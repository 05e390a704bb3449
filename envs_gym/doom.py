"""VizDoom as Gymnasium environments: `VizDoom/basic` and all other scenarios that are found, seen as the screen.

It replaces the package's own Gymnasium environments: these report an episode that reached its time limit as terminated,
return a black last picture, and draw frames that are not observed. Each world is a process of the game.
"""

import importlib
import importlib.util
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import Env
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from stride.config.extras import DOOM_EXTRA
from stride.config.scenarios import DOOM, doom_scenarios, some
from stride.envs_gym.answers import Info
from stride.envs_gym.wrappers.base import ResetAnswer, StepAnswer, require_positive
from stride.utils.user_error import UserError, nearest

TICS_PER_SECOND = 35
LEFTOVER = Path("_vizdoom")  # an empty folder that the game makes in the working directory


class DoomWorld(Env):
    """One scenario. Its time limit truncates. The last observation of an episode repeats the one before it."""

    metadata: Info = {  # noqa: RUF012
        "render_modes": ["rgb_array"],
        "render_fps": TICS_PER_SECOND,
        "workers": 0,  # eight of these processes took 7 to 15 times as long in two workers on two cores
    }

    def __init__(
        self,
        scenario: str = "",
        config_path: str = "",
        tics: int = 4,
        resolution: str = "160x120",
        buttons: Literal["one", "any"] = "one",
        variables: bool = False,
        render_mode: str | None = None,
    ) -> None:
        """`config_path`: a .cfg in place of the scenario's. `tics`: 35ths of a second that an action is held, of which
        the last is drawn. `buttons`: one at a time (or none), or any together. `variables`: the scenario's numbers
        (health, ammunition) are observed beside the screen."""
        require_positive("env_kwargs.tics", tics)
        if buttons not in ("one", "any"):
            raise UserError(f"env_kwargs.buttons takes one or any, not {buttons!r}")
        self.render_mode = render_mode
        self.tics = tics
        self.config = _config(scenario, config_path)
        self.metadata = {**self.metadata, "render_fps": TICS_PER_SECOND / tics}
        self.doom: Any = importlib.import_module("vizdoom")
        self._guards: list[subprocess.Popen[bytes]] = []
        self._folder = tempfile.TemporaryDirectory(prefix="stride-doom-")
        self.game = self._game(resolution)
        self._screen = np.zeros((self.game.get_screen_height(), self.game.get_screen_width(), 3), np.uint8)
        self._numbers = np.zeros(self.game.get_available_game_variables_size(), np.float32)
        self._with_numbers = variables
        screen = Box(0, 255, self._screen.shape, np.uint8)
        numbers = Box(-np.inf, np.inf, self._numbers.shape, np.float32)
        self.observation_space = Dict({"screen": screen, "variables": numbers}) if variables else screen
        if variables and not self._numbers.size:
            raise UserError(f"{self.config.stem} has no game variables to observe; leave env_kwargs.variables out")
        count = self.game.get_available_buttons_size()
        self._presses = np.vstack([np.zeros(count), np.eye(count)]).tolist() if buttons == "one" else None
        self.action_space = Discrete(count + 1) if self._presses else MultiBinary(count)

    def _game(self, resolution: str) -> Any:
        """Return the scenario's game, but without sound and window, and waiting for each action."""
        doom = self.doom
        game = doom.DoomGame()
        try:
            game.load_config(str(self.config))
        except doom.FileDoesNotExistException as error:  # for example a WAD file that must be bought
            raise UserError(f"{self.config.stem} cannot be played here: {error}") from error
        sizes = [name.removeprefix("RES_").replace("X", "x") for name in doom.ScreenResolution.__members__]
        if resolution not in sizes:
            raise UserError(f"env_kwargs.resolution has no {resolution!r}{nearest(str(resolution), sizes)}")
        pressed = [button for button in game.get_available_buttons() if not doom.is_delta_button(button)]
        if not pressed:
            raise UserError(f"{self.config.stem} has only continuous buttons (amounts), which are not supported")
        game.set_available_buttons(pressed)
        game.set_screen_resolution(doom.ScreenResolution.__members__[f"RES_{resolution.upper()}"])
        game.set_screen_format(doom.ScreenFormat.RGB24)
        game.set_mode(doom.Mode.PLAYER)
        game.set_window_visible(False)
        game.set_sound_enabled(False)
        game.set_audio_buffer_enabled(False)
        game.set_doom_config_path(str(Path(self._folder.name) / "doom.ini"))
        return game

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> ResetAnswer:
        super().reset(seed=seed)
        self.game.set_seed(int(self.np_random.integers(1 << 32)))
        if self.game.is_running():
            self.game.new_episode()
        else:
            self._start()
        return self._observe(), {}

    def _start(self) -> None:
        """Start the game's process, and a guard that ends it if this process is killed."""
        existed = LEFTOVER.exists()
        earlier_games = _games()
        try:
            with _ignoring_ctrl_c():
                self.game.init()
        except self.doom.FileDoesNotExistException as error:
            raise UserError(f"{self.config.stem} cannot be played here: {error}") from error
        self._guards = [_start_guard(game) for game in _games() - earlier_games]
        if not existed:
            with suppress(OSError):  # the folder is not empty, or another world has removed it
                LEFTOVER.rmdir()

    def step(self, action: int | np.ndarray) -> StepAnswer:
        pressed = self._presses[int(action)] if self._presses else np.asarray(action).tolist()
        reward = float(self.game.make_action(pressed, self.tics))
        finished = bool(self.game.is_episode_finished())
        truncated = finished and bool(self.game.is_episode_timeout_reached()) and not self.game.is_player_dead()
        return self._observe(), reward, finished and not truncated, truncated, {}

    def _observe(self) -> Any:
        """Return the present observation; after an episode's end the one before, as the game then has no screen."""
        state = self.game.get_state()
        if state is not None:
            self._screen = state.screen_buffer
            if self._with_numbers:
                self._numbers = np.asarray(state.game_variables, np.float32)
        return {"screen": self._screen, "variables": self._numbers} if self._with_numbers else self._screen

    def variable(self, name: str) -> float:
        """Return a number of the game by VizDoom's name, such as HEALTH or KILLCOUNT, whether it is observed or not."""
        return float(self.game.get_game_variable(self.doom.GameVariable.__members__[name]))

    def render(self) -> Any:
        return self._screen

    def close(self) -> None:
        for guard in self._guards:  # first, as another process may get the game's process id after it ends
            guard.kill()
            guard.communicate()
        self._guards = []
        self.game.close()
        self._folder.cleanup()


def register(env_id: str) -> None:
    """Register `VizDoom/NAME` in Gymnasium; UserError, with the nearest names, for an unknown scenario."""
    name = env_id.removeprefix(DOOM)
    if importlib.util.find_spec(DOOM_EXTRA.module) is None:
        raise UserError(DOOM_EXTRA.need(env_id))
    scenarios = doom_scenarios()
    if name not in scenarios:
        hint = nearest(name, scenarios) or f"; it has {some(list(scenarios))}"
        raise UserError(f"VizDoom has no scenario {name!r}{hint}")
    # about one frame in a thousand differs when an episode is played again, so episodes cannot be restored exactly
    gymnasium.register(env_id, "stride.envs_gym.doom:DoomWorld", nondeterministic=True, kwargs={"scenario": name})


def _config(scenario: str, config_path: str) -> Path:
    """Return the file of a scenario, or `config_path` where that is given."""
    if not config_path:
        return doom_scenarios()[scenario]
    path = Path(config_path).expanduser()
    if not path.is_file():
        raise UserError(f"env_kwargs.config_path: there is no file {config_path}")
    return path.absolute()


def _games() -> set[int]:
    """Return the process ids of the games that this process has started; empty where there is no /proc."""
    games = set()
    for path in Path("/proc/self/task").glob("*/children"):
        for child in path.read_text().split():
            if Path(f"/proc/{child}/comm").read_text().strip() == "vizdoom":
                games.add(int(child))
    return games


def _start_guard(game: int) -> "subprocess.Popen[bytes]":
    """Start a small process that kills the game when this process dies: otherwise the game would wait for ever.

    `read` returns when the pipe from this process closes.
    """
    command = ["sh", "-c", f"read line; kill -9 {game}"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                            start_new_session=True)  # fmt: skip


@contextmanager
def _ignoring_ctrl_c() -> Iterator[None]:
    """While this block runs, started processes ignore Ctrl-C: only their parent may answer it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
