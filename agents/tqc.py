"""TQC: the losses of SAC whose critics learn quantiles, as pure functions, then the agent (Kuznetsov et al. 2020)."""

from torch import Tensor

from stride.agents.dqn import quantile_loss
from stride.agents.sac import SAC
from stride.config.schema import TQCConfig

HUBER = 1.0  # beyond this error, in units of the value scale, the loss is linear


def truncated(quantiles: Tensor, drop: int) -> Tensor:
    """The quantiles of all critics in one order, without the `drop` largest per critic: [n, B, K] -> [B, n (K - drop)].

    A critic errs upwards most where its return may be largest, and a target without that end errs less.
    """
    n, _, k = quantiles.shape
    return quantiles.movedim(0, 1).flatten(1).sort().values[:, : n * (k - drop)]


def critic_loss(quantiles: Tensor, target: Tensor, weight: Tensor | float = 1.0) -> Tensor:
    """Mean over critics and quantiles of the quantile regression: [n, B, K] towards [B, M]; weights [B]."""
    return (weight * quantile_loss(quantiles, target, HUBER)).mean() / quantiles.shape[-1]


class TQC(SAC):
    """SAC with the mean of all quantiles where SAC has the smaller value of two critics."""

    config: TQCConfig

    @property
    def critic_sizes(self) -> tuple[int, int]:
        return self.config.n_critics, self.config.quantiles

    def next_value(self, q: Tensor, log_prob: Tensor, alpha: Tensor) -> Tensor:
        return truncated(q, self.config.drop_quantiles) - (alpha * log_prob)[:, None]

    def value(self, q: Tensor, log_prob: Tensor, alpha: Tensor) -> Tensor:
        return q.mean((0, 2)) - alpha * log_prob

    def regression(self, q: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        relative = self.value_scale.relative
        return critic_loss(relative(q), relative(target), weight)
