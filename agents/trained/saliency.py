"""What an answer hangs on: gradients of a policy's answer with regard to what it observed, for people to look at."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stride.agents.experience.collector import Policy
from stride.agents.experience.nouns import Explanation, Tree
from stride.envs_fast.vec_env import Obs

Leaves = dict[str, np.ndarray]  # by the leaf's name, "" for an observation that is no dict


class Saliency(NamedTuple):
    """Of one observation. A leaf of numbers has their gradients; an image how large they are, 255 for the largest.

    Integers and masks have none and are left out.
    """

    action: Leaves
    """of the choice's q where the policy has it, else of its log-probability; of numbers the sum of their means"""
    value: Leaves | None
    """None without a critic"""


def saliency(policy: Policy, obs: Obs, carry: Tree, is_first: Tensor, chosen: Tensor) -> Saliency | None:
    """For one world [1, ...]; `chosen` are the places of its choices, or its numbers. None where no leaf has any."""
    named = obs if isinstance(obs, dict) else {"": obs}
    inputs = {
        name: leaf.detach().float().requires_grad_()
        for name, leaf in named.items()
        if leaf.is_floating_point() or leaf.dtype == torch.uint8
    }
    if not inputs:
        return None
    with torch.enable_grad():
        explanation = policy.explain({**named, **inputs} if isinstance(obs, dict) else inputs[""], carry, is_first)
        action = _gradients(answer(explanation, chosen), inputs, named)
        return Saliency(
            action, None if explanation.value is None else _gradients(explanation.value.sum(), inputs, named)
        )


def answer(explanation: Explanation, chosen: Tensor) -> Tensor:
    """The number whose gradient is taken for the action."""
    if "q" in explanation.distribution:  # the best choice is a step, and a step has no gradient
        return explanation.distribution["q"][0, chosen].sum()
    if "probability" in explanation.distribution:
        return explanation.distribution["probability"][0, chosen].clamp_min(1e-8).log().sum()
    return explanation.distribution["mean"].sum()


def _gradients(of: Tensor, inputs: dict[str, Tensor], named: dict[str, Tensor]) -> Leaves:
    if not of.requires_grad:  # a policy may answer without looking
        return {name: _shown(torch.zeros_like(leaf), named[name]) for name, leaf in inputs.items()}
    found = torch.autograd.grad(of, [*inputs.values()], retain_graph=True, materialize_grads=True)
    return {name: _shown(gradient, named[name]) for name, gradient in zip(inputs, found, strict=True)}


def _shown(gradient: Tensor, leaf: Tensor) -> np.ndarray:
    if leaf.dtype != torch.uint8 or leaf.dim() < 3:
        return gradient[0].numpy()
    size = gradient[0].abs()
    return (size * (255 / size.max().clamp_min(1e-30))).byte().numpy()
