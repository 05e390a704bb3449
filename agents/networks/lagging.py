"""`lag: 1`: a rollout is played by the actor of one iteration before, so that playing need not wait for learning.

Always by that one, whoever is faster: bits do not depend on timing.
"""

from copy import deepcopy

import torch
from torch import Tensor, nn

from stride.agents.experience.nouns import Rollout, copy_into
from stride.agents.networks.actor_critic import ActorCritic


class Lagging(nn.Module):
    """A policy as it was one iteration ago: its weights, and the statistics of observations that belong to them.

    What it saw is normalised by its own; the present policy judges the same raw observations by the present ones.
    """

    def __init__(self, policy: ActorCritic) -> None:
        super().__init__()
        self.policy = deepcopy(policy).requires_grad_(False)

    @torch.no_grad()
    def log_prob(self, rollout: Rollout) -> Tensor:
        """Of the actions it chose, as it chose them, [T, N]."""
        row = rollout.row
        return self.policy.evaluate(row.obs, rollout.start, row.is_first, row.action).log_prob

    @torch.no_grad()
    def follow(self, policy: ActorCritic) -> None:
        """Become what `policy` is now; every tensor stays where it lies, as a graph wants it."""
        copy_into(_numbers(self.policy), _numbers(policy))


def _numbers(policy: ActorCritic) -> list[Tensor]:
    return [*policy.parameters(), *policy.buffers()]
