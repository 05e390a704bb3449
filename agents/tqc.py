"""Truncated quantile critics, TQC (Kuznetsov et al. 2020): losses as pure functions, then the agent, a kind of SAC.

Each critic learns K quantiles of the return (atoms in the paper). Letters in shapes: n critics, B samples.
"""

from torch import Tensor

from stride.agents.dqn import quantile_loss
from stride.agents.sac import SAC
from stride.config.schema import TQCConfig

HUBER_LIMIT = 1.0  # kappa: the loss is linear for larger errors, in units of the value scale


def truncated(quantiles: Tensor, drop: int) -> Tensor:
    """Sort the n K quantiles of all critics and leave out the n * drop largest: [n, B, K] -> [B, n (K - drop)].

    Critics overestimate most in the largest quantiles, so targets without these overestimate less.
    """
    n, _, k = quantiles.shape
    return quantiles.movedim(0, 1).flatten(1).sort().values[:, : n * (k - drop)]


def critic_loss(quantiles: Tensor, target: Tensor, weight: Tensor | float = 1.0) -> Tensor:
    """J_Z: the quantile Huber loss, averaged over samples, critics and quantiles. -> []

    `quantiles` [n, B, K], `target` [B, M] samples of the return, `weight` [B] for draws by priority, else 1.
    """
    return (weight * quantile_loss(quantiles, target, HUBER_LIMIT)).mean() / quantiles.shape[-1]


class TQC(SAC):
    """SAC, with the mean of all quantiles in place of the smaller value of two critics."""

    config: TQCConfig

    @property
    def critic_sizes(self) -> tuple[int, int]:
        return self.config.n_critics, self.config.quantiles

    def next_value(self, q: Tensor, log_prob: Tensor, alpha: Tensor) -> Tensor:
        """Return the kept quantiles less the entropy's cost, z_j - alpha log pi(a'|s'), [B, n (K - drop)]."""
        return truncated(q, self.config.drop_quantiles) - (alpha * log_prob)[:, None]

    def value(self, q: Tensor, log_prob: Tensor, alpha: Tensor) -> Tensor:
        """Return the mean of all n K quantiles minus alpha log pi(a|s), [B]; nothing is left out here."""
        return q.mean((0, 2)) - alpha * log_prob

    def regression(self, q: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        relative = self.value_scale.relative
        return critic_loss(relative(q), relative(target), weight)
