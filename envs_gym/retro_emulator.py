"""The program of one emulator's process: retro.py runs this file, and sends actions through a pipe.

It imports nothing of Stride. stable-retro allows one emulator in a process, and a training has many worlds.
"""

import importlib
import sys
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

# errors that stable-retro and its cores raise; OSError: a file is missing
ERRORS = (RuntimeError, OSError, TypeError, ValueError, LookupError, AssertionError, AttributeError)
FILTERED, DISCRETE, IMAGE, RAM = 1, 2, 0, 1  # values of stable-retro's Actions (first two) and Observations


def serve(pipe: Connection) -> None:
    """Make the game that the first message names, then answer each (action, frames) until the pipe closes.

    An answer is (None, result), or (problem, whether a file is missing). The action None means reset.
    """
    try:
        env = make(*pipe.recv())
        pipe.send((None, spaces_of(env)))
        while True:
            action, frames = pipe.recv()
            pipe.send((None, begin(env) if action is None else play(env, action, frames)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the world was closed, or is gone
    except ERRORS as error:  # the world in the other process raises it again
        pipe.send((f"{type(error).__name__}: {error}", isinstance(error, OSError)))


def make(game: str, state: str, choices: bool, ram: bool) -> Any:
    """Make the game. `choices`: an action is a number, else buttons; `ram`: its memory is observed, else its screen."""
    stable_retro: Any = importlib.import_module("stable_retro")
    return stable_retro.make(
        game,
        state or stable_retro.State.DEFAULT,
        use_restricted_actions=stable_retro.Actions(DISCRETE if choices else FILTERED),
        obs_type=stable_retro.Observations(RAM if ram else IMAGE),
        render_mode="rgb_array",
    )


def spaces_of(env: Any) -> tuple[tuple[int, ...], int]:
    """Return the shape of an observation, and the number of choices or of buttons."""
    return env.observation_space.shape, int(env.action_space.n)


def begin(env: Any) -> tuple[np.ndarray, np.ndarray]:
    """Reset the game; return the first observation and the screen."""
    observation, _ = env.reset()
    return np.ascontiguousarray(observation), np.ascontiguousarray(env.get_screen(apply_rotation=True))


def play(env: Any, action: Any, frames: int) -> tuple[np.ndarray, np.ndarray, float, bool, dict[str, Any]]:
    """Hold an action for some frames; return the last (observation, screen, sum of rewards, terminated, info)."""
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
