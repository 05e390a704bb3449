"""Callbacks of the user's own, as the key `callbacks` names them, and what a checkpoint may keep of them."""

from collections.abc import Iterator, Mapping
from typing import Any

import lightning as L
from torch import Tensor

from stride.agents.networks.policies import checked_options
from stride.config.plugins import find
from stride.config.schema import Config
from stride.utils.user_error import UserError

PLAIN = (str, int, float, bool, type(None), Tensor)  # what a checkpoint holds, and whatever is made of these


def find_callback(name: str) -> type[L.Callback]:
    """The class of `module:Name`; UserError where there is none, or it is none of Lightning's."""
    found = find("callbacks", "callbacks", name)
    if not isinstance(found, type) or not issubclass(found, L.Callback):
        raise UserError(f"callbacks: {name} is no Lightning callback: a subclass of lightning.Callback is")
    return found


def own_callbacks(config: Config) -> list[L.Callback]:
    """One of each, in the order of the config; the last of the list watches over what they give to checkpoints."""
    made: list[L.Callback] = []
    for name, arguments in named(config):
        kind = find_callback(name)
        made.append(kind(**checked_options(name, kind, arguments)))
        check_state(name, made[-1].state_dict())
    keys = [callback.state_key for callback in made]
    if len(set(keys)) < len(keys):
        raise UserError("callbacks: two of one class need a state_key each, by which a checkpoint tells them apart")
    return [*made, PlainStates()] if made else []


def named(config: Config) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each callback's name and its arguments."""
    for each in config.callbacks:
        given = {"id": each} if isinstance(each, str) else dict(each)
        yield str(given.pop("id")), given


class PlainStates(L.Callback):
    """A checkpoint holds plain data, or nobody could read it again: what is more is refused before it is written."""

    def on_save_checkpoint(self, trainer: L.Trainer, agent: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        for name, state in checkpoint.get("callbacks", {}).items():
            check_state(name, state)


def check_state(name: str, state: object) -> None:
    """UserError unless the state is numbers, texts, tensors, lists and mappings of these."""
    if type(state) in PLAIN:
        return
    if isinstance(state, Mapping):
        for item in (*state.keys(), *state.values()):
            check_state(name, item)
    elif isinstance(state, list | tuple):
        for item in state:
            check_state(name, item)
    else:
        raise UserError(
            f"callbacks: the state_dict of {name} holds a {type(state).__name__}; a checkpoint keeps numbers, texts, "
            "tensors, lists and mappings of these"
        )
