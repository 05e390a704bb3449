"""Chooses the backend that makes the worlds of a config: the one that `env_backend` names, or by a fixed rule.

A backend is a file backend_*.py with NAME, `why_not(config)` (the reason why it cannot play this config, "" where it
can) and `make(config, num_envs)`. Results differ bit by bit between backends, so `auto` follows a fixed order (ROWS)
instead of measuring speed.
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
    """The name of the chosen backend, and the reason for the choice."""

    name: str
    reason: str


class BackendRow(NamedTuple):
    """A backend. Its module is imported only when `auto` asks it or the config names it."""

    name: str
    why: str = ""  # why `auto` chooses it; "": because the others refused
    on_devices: bool = False  # whether it makes worlds on any device: make(config, num_envs, device)

    def load(self) -> Any:
        """Return the backend's module."""
        return load_wing(self.name)

    def why_not(self, config: Config) -> str:
        """Return why this backend cannot play the config, "" where it can."""
        reason: str = self.load().why_not(config)
        return reason

    def may_play(self, config: Config) -> bool:
        """Whether `auto` asks this backend; asking imports it, so ids that it surely cannot play are left out."""
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
GYM_ROW = ROWS[-1]  # it is chosen where all others refuse, because its message for an unknown id is the best


def choose_backend(config: Config) -> Backend:
    """Return the backend that the config names, or for `auto` the first row that can play it; its module is imported.

    UserError where the named backend cannot play the config.
    """
    if config.env_backend == "auto":
        backend, reason = _auto(config)
        return Backend(backend.name, reason)
    backend = _find_row(config.env_backend)
    reason = backend.why_not(config)
    if reason and backend is not GYM_ROW:
        other, _ = _auto(config)
        instead = f"; use env_backend=auto, which takes {other.name}"
        if other.why_not(config):
            instead = nearest(config.env_id, gymnasium.registry)
        raise UserError(f"env_backend {backend.name} does not support this config: {reason}{instead}")
    return Backend(backend.name, "as configured")


def make_worlds(config: Config, num_envs: int, device: torch.device) -> VecEnv:
    """Make `num_envs` worlds by the chosen backend, on `device` if it can compute there, else on the CPU."""
    backend = _find_row(choose_backend(config).name)
    if backend is not GYM_ROW and config.workers not in ("auto", 0):
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
    """Return the first backend in ROWS that can play the config (else GYM_ROW), and the reason for the choice."""
    reason = ""  # of the last backend that refused: later rows know the config better
    for backend in ROWS:
        if backend.may_play(config):
            refusal = backend.why_not(config)
            if not refusal:
                return backend, backend.why or reason
            reason = refusal
    return GYM_ROW, reason
