"""Saliency: gradients of a policy's choice and value with respect to the observation, for the inspector."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stride.agents.experience.collector import Policy
from stride.agents.experience.nouns import Explanation, Tree, by_name
from stride.envs_fast.vec_env import Obs

Leaves = dict[str, np.ndarray]  # by name of the part of the observation; "" if it is not a dict


class Saliency(NamedTuple):
    """Gradients for one observation: floats for numbers; uint8 for images, absolute values scaled to 0 .. 255.

    Integers and masks have no gradients and are left out.
    """

    action: Leaves
    """gradient of the chosen q if the policy has it, else of the log-probability; for numbers, of the sum of means"""
    value: Leaves | None
    """gradient of V; None without a critic"""


def saliency(policy: Policy, obs: Obs, carry: Tree, is_first: Tensor, chosen: Tensor) -> Saliency | None:
    """Return gradients for one environment, tensors [1, ...]; None if no part of the observation can have any.

    `chosen`: indices of the choices, or the numbers of the action.
    """
    parts = by_name(obs)
    inputs = {
        name: x.detach().float().requires_grad_()
        for name, x in parts.items()
        if x.is_floating_point() or x.dtype == torch.uint8
    }
    if not inputs:
        return None
    with torch.enable_grad():
        explanation = policy.explain({**parts, **inputs} if isinstance(obs, dict) else inputs[""], carry, is_first)
        action = _gradients(answer(explanation, chosen), inputs, parts)
        value = explanation.value
        return Saliency(action, None if value is None else _gradients(value.sum(), inputs, parts))


def answer(explanation: Explanation, chosen: Tensor) -> Tensor:
    """Return the number [] whose gradient is the action's saliency; see `Saliency.action`."""
    distribution = explanation.distribution
    if "q" in distribution:  # not the probability: epsilon-greedy is a step function of q, without gradient
        return distribution["q"][0, chosen].sum()
    if "probability" in distribution:
        return distribution["probability"][0, chosen].clamp_min(1e-8).log().sum()
    return distribution["mean"].sum()


def _gradients(output: Tensor, inputs: dict[str, Tensor], parts: dict[str, Tensor]) -> Leaves:
    """Return the gradients of `output` [] with respect to each input; `parts`: the observation, with its dtypes."""
    if output.requires_grad:
        gradients = torch.autograd.grad(output, [*inputs.values()], retain_graph=True, materialize_grads=True)
    else:  # a policy may answer without using the observation
        gradients = tuple(torch.zeros_like(x) for x in inputs.values())
    return {name: _displayed(gradient, parts[name]) for name, gradient in zip(inputs, gradients, strict=True)}


def _displayed(gradient: Tensor, observed: Tensor) -> np.ndarray:
    """Return the gradient without the dimension 1; for an image, absolute values as bytes, 255 for the largest."""
    if observed.dtype != torch.uint8 or observed.dim() < 3:
        return gradient[0].numpy()
    magnitude = gradient[0].abs()
    return (magnitude * (255 / magnitude.max().clamp_min(1e-30))).byte().numpy()
