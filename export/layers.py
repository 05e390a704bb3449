"""A policy as the plain layers that C is written from: what each feature is made of, then weights, then the choice."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from agents.networks.encoders import FlatEncoder, Float, MultiOneHot, OneHot, RunningNorm, StaticNorm
from agents.networks.heads import Categorical, Gaussian, MultiCategorical
from envs_gym.spaces import MASK
from export.decisions import OfActor, OfRecurrent, OfSquashed, OfValues
from export.graph import Deployed
from export.ports import start
from utils.user_error import UserError

ACTIVATIONS: dict[type[nn.Module], str] = {nn.Tanh: "tanh", nn.ReLU: "relu"}


class Layer(NamedTuple):
    """x -> activation(norm(x weight + bias))"""

    weight: np.ndarray
    """[in, out]"""
    bias: np.ndarray
    norm: tuple[np.ndarray, np.ndarray, float] | None = None
    """of a layer norm: scale, shift, epsilon"""
    activation: str = ""


class Numbers(NamedTuple):
    """Observed numbers that become (x - shift) * scale, cut at +-bound where there is one."""

    first: int
    shift: np.ndarray
    scale: np.ndarray
    bound: float


class Option(NamedTuple):
    """An observed integer, counted from `start`, that becomes one-hot."""

    first: int
    start: int
    size: int


class Stack(NamedTuple):
    """All of a policy."""

    observed: int
    """numbers of an observation, its leaves one after the other"""
    parts: list[Numbers | Option]
    layers: list[Layer]
    choices: list[int]
    """options of each choice; none where actions are numbers"""
    mask: int | None
    """where the mask of the choices begins in an observation"""
    scores: str
    """probability, q or nothing"""


def stack(policy: Deployed) -> Stack:
    """UserError for what is more than layers over numbers."""
    decide = policy.module.decide
    mine: Any = decide.policy
    if isinstance(decide, OfRecurrent) or not isinstance(decide, OfActor | OfValues | OfSquashed):
        raise _refusal("tables" if not policy.face.state else "policies with a memory")
    choices: list[int] = []
    if isinstance(decide, OfValues):
        encoder, choices = mine.network.encoder, [mine.network.actions]
        layers = [*read(mine.network.torso), values(mine.network)]
    elif isinstance(decide, OfActor):
        encoder, head = mine.encoder, mine.head
        choices = head.choices if isinstance(head, MultiCategorical) else []
        choices = [head.linear.out_features] if isinstance(head, Categorical) else choices
        layers = read(nn.Sequential(mine.trunk, mine.actor))
    else:
        encoder, half = mine.encoder, mine.draws
        layers = [
            *read(mine.torso),
            Layer(array(mine.head.weight[:half].T), array(mine.head.bias[:half]), None, "tanh"),
        ]
    places, observed = {}, 0
    for leaf in policy.face.leaves:
        places[leaf.name] = observed
        observed += int(np.prod(leaf.shape))
    mask = places[MASK] if not isinstance(decide, OfSquashed) and mine.masked else None
    scores = next((port.name for port in policy.face.outputs if port.name in ("probability", "q")), "")
    return Stack(observed, [*features(encoder, policy, places)], layers, choices, mask, scores)


def features(encoder: FlatEncoder, policy: Deployed, places: dict[str, int]) -> Iterator[Numbers | Option]:
    """In the order in which the first layer gets them."""
    spaces = {leaf.name: leaf.space for leaf in policy.face.leaves}
    for name, module in zip(encoder.keys or [""], encoder.leaf, strict=True):
        first, space = places[name], spaces[name]
        size = int(np.prod(space.shape or ()))
        if isinstance(module, Float):
            yield Numbers(first, np.zeros(size), np.ones(size), np.inf)
        elif isinstance(module, RunningNorm):
            scale = (module.var + module.epsilon).rsqrt()
            yield Numbers(first, array(module.mean), array(scale), module.bound)
        elif isinstance(module, StaticNorm):
            yield Numbers(first, array(module.centre), array(module.scale), np.inf)
        elif isinstance(module, OneHot):
            yield Option(first, int(start(space)), len(module.table))
        elif isinstance(module, MultiOneHot):
            for place, (least, onehot) in enumerate(zip(start(space).ravel(), module.onehots, strict=True)):
                yield Option(first + place, int(least), len(onehot.table))  # type: ignore[arg-type]
        else:
            raise _refusal("networks that read images")


def read(module: nn.Module) -> list[Layer]:
    """A stack of torch's layers."""
    found: list[Layer] = []
    for part in parts_of(module):
        if isinstance(part, nn.Linear):
            found.append(Layer(array(part.weight.T), array(part.bias)))
        elif isinstance(part, nn.LayerNorm) and found:
            found[-1] = found[-1]._replace(norm=(array(part.weight), array(part.bias), part.eps))
        elif type(part) in ACTIVATIONS and found:
            found[-1] = found[-1]._replace(activation=ACTIVATIONS[type(part)])
        else:
            raise _refusal(f"{type(part).__name__} layers")
    return found


def parts_of(module: nn.Module) -> Iterator[nn.Module]:
    """Its layers in order, whatever holds them."""
    if isinstance(module, nn.Sequential):
        for child in module:
            yield from parts_of(child)
    elif isinstance(module, Categorical | MultiCategorical | Gaussian):
        yield module.linear
    elif not isinstance(module, nn.Identity):
        yield module


def values(network: Any) -> Layer:
    """The last layer of a Q network; means over quantiles and V + A - mean(A) only add rows up, so it is one layer."""
    layer, value = network.advantage, network.state_value
    weight = layer.weight.double().unflatten(0, (network.actions, network.quantiles)).mean(1)
    bias = layer.bias.double().unflatten(0, (network.actions, network.quantiles)).mean(1)
    if value is not None:
        weight = weight - weight.mean(0) + value.weight.double().mean(0)
        bias = bias - bias.mean(0) + value.bias.double().mean(0)
    return Layer(array(weight.T), array(bias))


def array(x: Tensor) -> np.ndarray:
    """As float32."""
    return x.detach().to(torch.float32).numpy()


def _refusal(what: str) -> UserError:
    return UserError(f"--c writes MLPs (layers of tanh or relu over numbers), not {what}; --onnx and --torch take them")
