"""Environments that a program hands over as a function: they have an id for as long as it lends them, and no longer.

Nothing of the function is kept in a run; whoever goes on with it hands the function over again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium

from stride.envs_gym.blame import Blame
from stride.utils.user_error import UserError

NAMESPACE = "given/"
HOW = "env= takes a function that makes an environment, such as env=lambda: MyEnv(): several are stepped side by side"
Maker = Callable[..., gymnasium.Env[Any, Any]]


def is_given(env_id: str) -> bool:
    """Whether the id is one of these."""
    return env_id.startswith(NAMESPACE)


def id_of(maker: Maker) -> str:
    """`given/MyEnv`, by the class of a world that is made to ask it, and closed again."""
    if isinstance(maker, gymnasium.Env) or not callable(maker):
        raise UserError(f"{HOW}; this is {type(maker).__name__}")
    with Blame("env=", doing="__init__"):
        env = maker()
    if not isinstance(env, gymnasium.Env):
        raise UserError(f"{HOW}; this one makes {type(env).__name__}, which is no gymnasium.Env")
    with Blame("env=", [env], "close"):
        env.close()
    return NAMESPACE + type(env.unwrapped).__name__


@contextmanager
def lent(env_id: str, maker: Maker) -> Iterator[None]:
    """While worlds of this id are made, it is known to Gymnasium."""
    gymnasium.register(env_id, entry_point=maker)
    try:
        yield
    finally:
        del gymnasium.registry[env_id]
