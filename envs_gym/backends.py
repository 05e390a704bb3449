"""Whose worlds a config is played in: a row for each backend, and the fixed rule by which `auto` chooses among them.

A backend is a file with NAME, `why_not(config)` ("" where it can play it, else why not, in words) and
`make(config, num_envs)`. Bits and resume differ between backends, so no stopwatch chooses.
"""

import re
from typing import NamedTuple, Protocol, cast

import gymnasium
import torch

from stride.config.schema import Config
from stride.envs_fast.vec_env import VecEnv
from stride.utils.user_error import UserError, nearest
from stride.utils.wings import load_wing


class Backend(NamedTuple):
    """Whose worlds, and why."""

    name: str
    reason: str


class Worlds(Protocol):
    """What the file of a backend offers."""

    NAME: str

    def why_not(self, config: Config) -> str: ...
    def make(self, config: Config, num_envs: int) -> VecEnv: ...


class WorldsOnDevices(Protocol):
    """The same of a backend that computes where the policy is."""

    def make(self, config: Config, num_envs: int, device: torch.device) -> VecEnv: ...


class Row(NamedTuple):
    """A backend, imported only where it may be the one."""

    name: str
    why: str = ""  # what makes it `auto`'s choice; "" = what kept the others from being it
    ids: str = ""  # a pattern of how the ids begin that `auto` asks it about
    auto: bool = True  # False: only where it is asked for
    on_devices: bool = False  # makes its worlds on any device itself: make(config, num_envs, device)

    def load(self) -> Worlds:
        return cast(Worlds, load_wing(self.name))

    def refusal(self, config: Config) -> str:
        return self.load().why_not(config)


ROWS = (  # in the order in which `auto` asks
    Row("torch", "it is one simulation that answers tensors", on_devices=True),
    Row("fast", "the config asks for nothing that only Gymnasium has", on_devices=True),
    Row("ale", "ale-py's vector environment shows what it asks for", r"(\w+:)?ALE/"),
    Row("gym"),
)
LAST = ROWS[-1]  # which says best what is wrong with an id that nobody knows


def choose_backend(config: Config) -> Backend:
    """The one that the config names, if it can play this; `auto`: the first row that can. Its modules are imported."""
    if config.env_backend == "auto":
        row, reason = _auto(config)
        return Backend(row.name, reason)
    row = _named(config.env_backend)
    if row is not LAST and (reason := row.refusal(config)):
        other, _ = _auto(config)
        known = not other.refusal(config)
        instead = f"; auto takes {other.name}" if known else nearest(config.env_id, gymnasium.registry)
        raise UserError(f"env_backend {row.name} cannot play this: {reason}{instead}")
    return Backend(row.name, "as configured")


def make_worlds(config: Config, num_envs: int, device: torch.device) -> VecEnv:
    """`num_envs` worlds of whoever plays this config, on `device` if the backend can compute there, else on the CPU."""
    row = _named(choose_backend(config).name)
    if row is not LAST and config.workers not in ("auto", 0):
        raise UserError(f"workers are processes of env_backend gym; {row.name} steps its worlds itself: workers=auto")
    worlds = row.load()
    if row.on_devices:
        return cast(WorldsOnDevices, worlds).make(config, num_envs, device)
    return worlds.make(config, num_envs)


def _named(name: str) -> Row:
    for row in ROWS:
        if row.name == name:
            return row
    raise UserError(f"there is no env_backend {name} here; there are {', '.join(row.name for row in ROWS)}")


def _auto(config: Config) -> tuple[Row, str]:
    reason = ""  # of the last one that refused: the more particular ones come later
    for row in ROWS:
        if row.auto and re.match(row.ids, config.env_id):
            refusal = row.refusal(config)
            if not refusal:
                return row, row.why or reason
            reason = refusal
    return LAST, reason
