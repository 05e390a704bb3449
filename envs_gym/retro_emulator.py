"""The program in the process of one emulator: a file that Python runs by itself, with a pipe to the world it is for.

It imports nothing of ours. stable-retro allows one emulator a process, and there are many worlds.
"""

import importlib
import sys
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

# what stable-retro and its cores raise; OSError comes of what is not there
ERRORS = (RuntimeError, OSError, TypeError, ValueError, LookupError, AssertionError, AttributeError)
FILTERED, DISCRETE, IMAGE, RAM = 1, 2, 0, 1  # stable-retro's numbers of Actions and Observations


def serve(pipe: Connection) -> None:
    """Make the game that the first message names, then do what each one says until the pipe closes."""
    try:
        env = make(*pipe.recv())
        pipe.send((None, spaces_of(env)))
        while True:
            action, frames = pipe.recv()
            pipe.send((None, begin(env) if action is None else play(env, action, frames)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the world was closed, or is gone
    except ERRORS as error:  # the world reports it
        pipe.send((f"{type(error).__name__}: {error}", isinstance(error, OSError)))


def make(game: str, state: str, choices: bool, ram: bool) -> Any:
    """The game, where it begins, with actions as choices or buttons, seen by its memory or its screen."""
    stable_retro: Any = importlib.import_module("stable_retro")
    return stable_retro.make(
        game,
        state or stable_retro.State.DEFAULT,
        use_restricted_actions=stable_retro.Actions(DISCRETE if choices else FILTERED),
        obs_type=stable_retro.Observations(RAM if ram else IMAGE),
        render_mode="rgb_array",
    )


def spaces_of(env: Any) -> tuple[tuple[int, ...], int]:
    """Shape of an observation, and the number of choices or of buttons."""
    return env.observation_space.shape, int(env.action_space.n)


def begin(env: Any) -> tuple[np.ndarray, np.ndarray]:
    """The first observation, and the screen."""
    observation, _ = env.reset()
    return np.ascontiguousarray(observation), np.ascontiguousarray(env.get_screen(apply_rotation=True))


def play(env: Any, action: Any, frames: int) -> tuple[np.ndarray, np.ndarray, float, bool, dict[str, Any]]:
    """An action held for some frames: their rewards' sum, and what the last one shows."""
    total_reward = 0.0
    for _ in range(frames):
        observation, reward, terminated, _, info = env.step(action)
        total_reward += float(reward)
        if terminated:
            break
    screen = env.get_screen(apply_rotation=True)
    return np.ascontiguousarray(observation), np.ascontiguousarray(screen), total_reward, bool(terminated), dict(info)


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
