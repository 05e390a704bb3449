"""Backends make the worlds of a config: a row for each, and the fixed rule by which `auto` chooses among them.

A backend is a file with NAME, `why_not(config)` ("" where it can play it, else the reason) and
`make(config, num_envs)`. Bits and resume differ between backends, so no stopwatch chooses.
"""

from typing import Any, NamedTuple

import gymnasium
import torch

from stride.config.schema import Config
from stride.envs_fast.vec_env import VecEnv
from stride.envs_gym.blame import registered
from stride.utils.user_error import UserError, nearest
from stride.utils.wings import load_wing


class Backend(NamedTuple):
    """The chosen backend, and why."""

    name: str
    reason: str


class BackendRow(NamedTuple):
    """A backend, imported only where it may be the one."""

    name: str
    why: str = ""  # why `auto` chooses it; "": because the others refused
    on_devices: bool = False  # makes its worlds on any device itself: make(config, num_envs, device)

    def load(self) -> Any:
        return load_wing(self.name)

    def why_not(self, config: Config) -> str:
        reason: str = self.load().why_not(config)
        return reason

    def may_play(self, config: Config) -> bool:
        """Whether `auto` asks it at all, which needs its import."""
        name = config.env_id.rpartition(":")[2]
        if self.name == "ale":
            return name.startswith("ALE/")
        env_spec = registered(name)
        return self.name != "torch" or (env_spec is not None and env_spec.vector_entry_point is not None)


ROWS = (  # in the order in which `auto` asks
    BackendRow("torch", "it is one simulation that returns tensors", on_devices=True),
    BackendRow("fast", "compiled; supports everything this config uses", on_devices=True),
    BackendRow("ale", "ale-py's vector environment supports this config"),
    BackendRow("gym"),
)
LAST = ROWS[-1]  # its message for an unknown id is the best


def choose_backend(config: Config) -> Backend:
    """The one that the config names, if it can play this; `auto`: the first row that can. Its modules are imported."""
    if config.env_backend == "auto":
        backend, reason = _auto(config)
        return Backend(backend.name, reason)
    backend = _find_row(config.env_backend)
    reason = backend.why_not(config)
    if reason and backend is not LAST:
        other, _ = _auto(config)
        instead = f"; use env_backend=auto, which takes {other.name}"
        if other.why_not(config):
            instead = nearest(config.env_id, gymnasium.registry)
        raise UserError(f"env_backend {backend.name} does not support this config: {reason}{instead}")
    return Backend(backend.name, "as configured")


def make_worlds(config: Config, num_envs: int, device: torch.device) -> VecEnv:
    """`num_envs` worlds of the chosen backend, on `device` if it can compute there, else on the CPU."""
    backend = _find_row(choose_backend(config).name)
    if backend is not LAST and config.workers not in ("auto", 0):
        itself = f"{backend.name} steps its environments itself"
        raise UserError(f"workers are for env_backend gym; {itself}; use workers=auto")
    devices = [device] if backend.on_devices else []
    worlds: VecEnv = backend.load().make(config, num_envs, *devices)
    return worlds


def _find_row(name: str) -> BackendRow:
    for backend in ROWS:
        if backend.name == name:
            return backend
    raise UserError(f"unknown env_backend {name}; use {', '.join(backend.name for backend in ROWS)}")


def _auto(config: Config) -> tuple[BackendRow, str]:
    reason = ""  # of the last one that refused: the more particular ones come later
    for backend in ROWS:
        if backend.may_play(config):
            refusal = backend.why_not(config)
            if not refusal:
                return backend, backend.why or reason
            reason = refusal
    return LAST, reason
