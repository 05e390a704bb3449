"""Targets of action values, the values of the actions taken, and networks that follow other networks."""

import torch
from torch import Tensor, nn


def td_target(reward: Tensor, discount: Tensor, next_value: Tensor) -> Tensor:
    """reward + discount * next_value, for values [B] or quantiles [B, K]."""
    if next_value.dim() == 1:
        return torch.addcmul(reward, discount, next_value)
    return reward[:, None] + discount[:, None] * next_value


def pick(values: Tensor, action: Tensor) -> Tensor:
    """The entries of the actions taken: [B, A] -> [B], quantiles [B, A, K] -> [B, K]."""
    if values.dim() == 2:
        return values.gather(1, action[:, None]).squeeze(1)
    return values.gather(1, action[:, None, None].expand(-1, 1, values.shape[2])).squeeze(1)


@torch.no_grad()
def move(target: nn.Module, source: nn.Module, share: float) -> None:
    """target += share * (source - target), parameter by parameter, at once."""
    mine: list[Tensor] = [*target.parameters()]
    theirs: list[Tensor] = [*source.parameters()]
    torch._foreach_lerp_(mine, theirs, share) if share < 1 else torch._foreach_copy_(mine, theirs)
