"""What an action is to a world model, and any action whatever."""

import math

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from stride.agents.networks.encoders import MultiOneHot, OneHot
from stride.agents.networks.heads import check_choices
from stride.utils.user_error import UserError


class Actions(nn.Module):
    """The actions of a space as a model reads them, and any of them."""

    counts: Tensor

    def __init__(self, space: gym.Space) -> None:
        super().__init__()
        self.several = isinstance(space, gym.spaces.MultiDiscrete)
        options: list[int] = space.nvec.tolist() if isinstance(space, gym.spaces.MultiDiscrete) else []
        self.options = options = [int(space.n)] if isinstance(space, gym.spaces.Discrete) else options
        """of each choice; none where actions are numbers"""
        if not options and not (isinstance(space, gym.spaces.Box) and np.isfinite([space.low, space.high]).all()):
            raise UserError(f"a world model needs choices, or numbers with bounds, not {space}; ppo takes any action")
        for count in options:
            check_choices(count, count)  # each as a one-hot row
        self.register_buffer("counts", torch.tensor(options), persistent=False)
        self.table = MultiOneHot(options) if self.several else OneHot(options[0]) if options else None
        self.draws = len(options) or math.prod(space.shape or ())
        """uniforms that one of them takes"""
        self.size = sum(options) or self.draws

    def forward(self, action: Tensor) -> Tensor:
        """[...] of one choice, [..., A] else -> [..., size]: one-hot, or numbers cut at +-1, as worlds do."""
        encoded: Tensor = self.table(action) if self.table else action.float().clamp(-1, 1)
        return encoded

    def any(self, u: Tensor) -> Tensor:
        """Each with the same chance, from uniforms [N, draws]."""
        if not self.table:
            return 2 * u - 1
        choice = (u * self.counts).long().minimum(self.counts - 1)
        return choice if self.several else choice[:, 0]
