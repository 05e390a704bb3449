"""Saliency: gradients of a policy's answer with respect to its observation, for people to look at."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stride.agents.experience.collector import Policy
from stride.agents.experience.nouns import Explanation, Tree, by_name
from stride.envs_fast.vec_env import Obs

Leaves = dict[str, np.ndarray]  # by the name of a part of the observation, "" for one that is no dict


class Saliency(NamedTuple):
    """Gradients for one observation. Numbers have theirs; images have absolute values, 255 for the largest.

    Integers and masks have none and are left out.
    """

    action: Leaves
    """of the choice's q where the policy has it, else of its log-probability; of numbers the sum of their means"""
    value: Leaves | None
    """None without a critic"""


def saliency(policy: Policy, obs: Obs, carry: Tree, is_first: Tensor, chosen: Tensor) -> Saliency | None:
    """For one world [1, ...]; `chosen`: indices of its choices, or its numbers. None where no part has gradients."""
    named = by_name(obs)
    inputs = {
        name: x.detach().float().requires_grad_()
        for name, x in named.items()
        if x.is_floating_point() or x.dtype == torch.uint8
    }
    if not inputs:
        return None
    with torch.enable_grad():
        explanation = policy.explain({**named, **inputs} if isinstance(obs, dict) else inputs[""], carry, is_first)
        action = _gradients(answer(explanation, chosen), inputs, named)
        value = explanation.value
        return Saliency(action, None if value is None else _gradients(value.sum(), inputs, named))


def answer(explanation: Explanation, chosen: Tensor) -> Tensor:
    """The number whose gradient is taken for the action."""
    distribution = explanation.distribution
    if "q" in distribution:  # the best choice is a step function, and a step has no gradient
        return distribution["q"][0, chosen].sum()
    if "probability" in distribution:
        return distribution["probability"][0, chosen].clamp_min(1e-8).log().sum()
    return distribution["mean"].sum()


def _gradients(of: Tensor, inputs: dict[str, Tensor], named: dict[str, Tensor]) -> Leaves:
    if of.requires_grad:
        gradients = torch.autograd.grad(of, [*inputs.values()], retain_graph=True, materialize_grads=True)
    else:  # a policy may answer without using the observation
        gradients = tuple(torch.zeros_like(x) for x in inputs.values())
    return {name: _displayed(gradient, named[name]) for name, gradient in zip(inputs, gradients, strict=True)}


def _displayed(gradient: Tensor, observed: Tensor) -> np.ndarray:
    if observed.dtype != torch.uint8 or observed.dim() < 3:
        return gradient[0].numpy()
    magnitude = gradient[0].abs()
    return (magnitude * (255 / magnitude.max().clamp_min(1e-30))).byte().numpy()
