"""Wrapper that observes the positions of an Atari game's objects, read by OCAtari (Delfosse et al. 2024).

Only OCAtari's functions that read the console's 128 bytes of memory are used, not its environments. The user installs
this package; it is in no extra of Stride.
"""

import ast
import importlib
import importlib.util
import inspect
import sys
from types import ModuleType
from typing import Any

import numpy as np
from gymnasium import Env, ObservationWrapper
from gymnasium.spaces import Box

from stride.envs_gym.wrappers.atari import game_of
from stride.envs_gym.wrappers.base import ResetAnswer, require
from stride.utils.user_error import UserError, describe_error, nearest

WIDTH, HEIGHT = 160, 210  # pixels of the screen
OBJECT_SIZE = 5  # numbers of each object: whether it exists, centre x and y, width and height
READER = "ocatari.ram.extract_ram_info"


class OCAtariObjects(ObservationWrapper):
    """Positions of a game's objects, from OCAtari. For each object: whether it exists (1 or 0), its centre (x, y) in
    [-1, 1], its width and height as fractions of the screen; 0 if it does not exist. Scores and lives are left out.
    """

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._game = game_of(env, "OCAtariObjects")
        self._name = str(env.unwrapped.spec.id if env.unwrapped.spec else "").removeprefix("ALE/").partition("-")[0]
        self._reader: Any = reader_of(self._name)
        self._game._obs_type = "ram"  # the game then renders no screen, which saves time
        self._objects: list[Any] = self._reader.init_objects(self._name, False)
        self.observation_space = Box(-1, 1, (OBJECT_SIZE * len(self._objects),), np.float32)

    def reset(self, **kwargs: Any) -> ResetAnswer:
        self._objects = self._reader.init_objects(self._name, False)  # new ones, without memory of the last episode
        return super().reset(**kwargs)

    def observation(self, observation: object) -> np.ndarray:
        memory = self._game.ale.getRAM().astype(np.int64)  # OCAtari computes with them, and bytes would overflow
        self._reader.detect_objects_ram(self._objects, memory, self._name, False)
        numbers = np.zeros((len(self._objects), OBJECT_SIZE), np.float32)
        for row, game_object in zip(numbers, self._objects, strict=True):
            if game_object:  # an OCAtari object that is not on the screen is false
                x, y, width, height = game_object.xywh
                row[:] = (
                    1,
                    2 * (x + width / 2) / WIDTH - 1,
                    2 * (y + height / 2) / HEIGHT - 1,
                    width / WIDTH,
                    height / HEIGHT,
                )
        return numbers.reshape(-1).clip(-1, 1)


def reader_of(game: str) -> ModuleType:
    """Return OCAtari's module that reads the memory.

    UserError where OCAtari is not installed, does not know the game, or keeps the game's state in global variables,
    which all environments of a process would share.
    """
    if importlib.util.find_spec("ocatari") is None:
        raise UserError(
            f"obs_type objects of {game} needs OCAtari: pip install ocatari; Pong and Breakout need no package, and "
            "every game has obs_type ram"
        )
    try:
        reader = importlib.import_module(READER)
    except ImportError as error:
        raise UserError(f"OCAtari cannot be imported: {describe_error(error)}") from error
    package = READER.rpartition(".")[0]
    module = sys.modules.get(f"{package}.{game.lower()}")
    if module is None:
        games = [name.rpartition(".")[2] for name in sys.modules if name.startswith(f"{package}.")]
        raise UserError(f"OCAtari does not support {game}{nearest(game.lower(), games)}")
    mixes = any(isinstance(node, ast.Global) for node in ast.walk(ast.parse(inspect.getsource(module))))
    problem = f"OCAtari shares its state of {game} among all environments, so no run is reproducible; use obs_type ram"
    require(not mixes, problem)
    return reader
