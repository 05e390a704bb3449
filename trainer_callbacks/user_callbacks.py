"""Make the user's own callbacks that the config key `callbacks` names, and check what they store in checkpoints."""

from collections.abc import Mapping
from typing import Any

import lightning as L
from torch import Tensor

from stride.agents.networks.policies import checked_options
from stride.config.plugins import find
from stride.config.schema import Config
from stride.utils.user_error import UserError

PLAIN_TYPES = (str, int, float, bool, type(None), Tensor)  # a checkpoint may hold these, and lists and mappings of them


def user_callbacks(config: Config) -> list[L.Callback]:
    """Return the callbacks in the order of the config, then PlainStates, which checks what they give to checkpoints."""
    callbacks: list[L.Callback] = []
    for entry in config.callbacks:
        options: dict[str, Any] = {"id": entry} if isinstance(entry, str) else dict(entry)
        name = str(options.pop("id"))
        kind = find_callback(name)
        callback = kind(**checked_options(name, kind, options))
        check_state(name, callback.state_dict())
        callbacks.append(callback)
    if len({callback.state_key for callback in callbacks}) < len(callbacks):
        raise UserError("callbacks: two callbacks of the same class each need their own state_key in the checkpoint")
    return [*callbacks, PlainStates()] if callbacks else []


def find_callback(name: str) -> type[L.Callback]:
    """Import the class `module:Name`; UserError if it does not exist or is not a subclass of Lightning's Callback."""
    kind = find("callbacks", "callbacks", name)
    if not isinstance(kind, type) or not issubclass(kind, L.Callback):
        raise UserError(f"callbacks: {name} is not a subclass of lightning.Callback")
    return kind


class PlainStates(L.Callback):
    """Refuses other than plain data before a checkpoint is written: loading allows plain data only."""

    def on_save_checkpoint(self, trainer: L.Trainer, agent: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        for name, state in checkpoint.get("callbacks", {}).items():
            check_state(name, state)


def check_state(name: str, state: object) -> None:
    """Raise UserError unless the state consists of numbers, texts, tensors, and lists and mappings of these."""
    if isinstance(state, Mapping):
        check_state(name, [*state.keys(), *state.values()])
    elif isinstance(state, list | tuple):
        for item in state:
            check_state(name, item)
    elif type(state) not in PLAIN_TYPES:
        raise UserError(
            f"callbacks: the state_dict of {name} has a {type(state).__name__}; a checkpoint can store numbers, texts, "
            "tensors, lists and mappings of these"
        )
