"""The backend `envpool`: what EnvPool simulates in C++ threads. Only where it is asked for: there a resume is a seam.

`envpool/TASK` is any of its own names. Other ids are taken under its name for the same world: Gymnasium's as they are,
`ALE/Pong-v5` as Pong-v5 with ALE's settings, `dm_control/walker-walk` as WalkerWalk-v1.
"""

import warnings
from importlib.util import find_spec
from typing import Any

from config.schema import Config
from envs_fast.vec_env import VecEnv
from envs_gym.blame import REFUSALS, EnvError
from envs_gym.envpool_env import EnvPoolEnv
from envs_gym.tensor_env import Together
from envs_gym.wrappers.images import SQUARE, checked_size
from envs_gym.wrappers.registry import wrappers_of
from utils.one_line import one_line
from utils.user_error import UserError, nearest

NAME = "envpool"
OWN = "envpool/"  # ids of which only EnvPool knows
OURS = ("num_envs", "seed", "env_seed", "batch_size", "max_episode_steps")  # set by us, not through env_kwargs
# what ALE/X-v5 is in Gymnasium; EnvPool would press fire, and repeat no action
ALE = {"use_fire_reset": False, "repeat_action_probability": 0.25, "noop_max": 0}
SCREEN = {"id": "AtariScreen", "grayscale": True, "size": SQUARE, "stack": 1}  # as EnvPool draws it, but for the stack


def why_not(config: Config) -> str:
    """Where EnvPool is not installed, has no such task, or would have to be wrapped."""
    if find_spec("envpool") is None:
        return "it needs EnvPool: pip install 'stride-rl[envpool]'"
    task, known = task_of(config.env_id), tasks()
    if task not in known:
        close = nearest(task, known)
        return f"EnvPool has no {task}{close}"
    if not _drawn(config) and (wanted := wrappers_of(config)):
        return f"EnvPool's worlds take no {wanted[0]['id']}"
    return ""


def make(config: Config, num_envs: int) -> VecEnv:
    """Worlds of the CPU; UserError for arguments that EnvPool refuses."""
    import envpool

    task, arguments = task_of(config.env_id), _arguments(config)
    for name in OURS:
        if name in config.env_kwargs:
            raise UserError(f"env_kwargs cannot set {name!r}: it is a key of its own")
    try:
        with Together(config.env_id) as blame:
            blame.doing = "__init__"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Gymnasium's, of bounds that EnvPool writes in more digits
                spec = envpool.make_spec(task, num_envs=num_envs, **arguments)
            players = spec.config.max_num_players
            if players > 1:
                raise UserError(f"{config.env_id} is played by {players}, and only worlds for one are trained here")
            return EnvPoolEnv(
                config.env_id, task, num_envs, arguments, spec, envpool.make_gymnasium, config.step_timeout
            )
    except EnvError as error:
        if isinstance(error.__cause__, ImportError):  # Procgen wants Qt of the system, and says so
            raise UserError(f"{config.env_id} cannot be made: {error.reason}") from error
        if config.env_kwargs and isinstance(error.__cause__, REFUSALS):
            plain = one_line(str(dict(config.env_kwargs)))
            raise UserError(f"{config.env_id} refuses env_kwargs {plain}: {error.reason}") from error
        raise


def tasks() -> list[str]:
    """EnvPool's own names."""
    import envpool

    return list(envpool.list_all_envs())


def task_of(env_id: str) -> str:
    """EnvPool's name of an id."""
    name = env_id.rpartition(":")[2]
    if name.startswith("dm_control/"):
        words = name.removeprefix("dm_control/").partition("-v")[0].replace("-", "_").split("_")
        return "".join(word[:1].upper() + word[1:] for word in words) + "-v1"
    return name.removeprefix(OWN).removeprefix("ALE/")


def _drawn(config: Config) -> bool:
    """Whether the wrappers of a config ask for just what EnvPool's Atari is: grey, 84 by 84, some frames together."""
    if not config.env_id.rpartition(":")[2].startswith("ALE/"):
        return False
    asked = [{**SCREEN, **wrapper} for wrapper in wrappers_of(config)]
    plain = [{**wrapper, "stack": 1, "size": checked_size("AtariScreen", wrapper["size"])} for wrapper in asked]
    return plain == [SCREEN]


def _arguments(config: Config) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    if config.env_id.rpartition(":")[2].startswith("ALE/"):
        arguments |= {**ALE, "stack_num": config.frame_stack}
    arguments |= config.env_kwargs
    if config.max_episode_steps is not None:
        arguments["max_episode_steps"] = config.max_episode_steps
    return arguments
