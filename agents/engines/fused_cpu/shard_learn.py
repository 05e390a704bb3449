"""Learning from a rollout by kernels when several processes (shards) each play and learn from a part of the worlds.

Before each step of the optimizer the shards exchange gradients and statistics and take their means, so that all shards
make the same step.
"""

import math

import numpy as np
import torch

from stride.agents.engines.fused_cpu.bind import RolloutBound
from stride.agents.engines.fused_cpu.kernel_tables import SHARDED
from stride.agents.engines.plan.numbers import SUMS
from stride.agents.experience.shards import SingleShard
from stride.agents.returns import explained_variance


def learn(bound: RolloutBound, shard: SingleShard, updates: int) -> None:
    """Make all updates of a rollout; stop once the KL divergence exceeds its limit."""
    held, address = bound.frame.held, bound.frame.address
    if "totals" not in held:
        bound.frame.fill(weighings=np.zeros((updates, 3)), totals=np.zeros(SUMS), **SHARDED)
    judge, shard_gradient, shard_step = (bound.checked(name) for name in ("judge", *SHARDED))
    bound.call(judge, address, 0, 0)
    _weigh_rows(bound, shard)
    bound.scale_targets()
    gradient, totals = torch.from_numpy(held["gradient"]), torch.from_numpy(held["totals"])
    for number in range(updates):
        bound.call(shard_gradient, address, number, number + 1)
        means = shard.means([gradient, totals.float()])
        gradient.copy_(means[0])
        totals.copy_(means[1])
        bound.call(shard_step, address, number, number + 1)
        if bound.stats.halted:
            break


def _weigh_rows(bound: RolloutBound, shard: SingleShard) -> None:
    """Compute statistics of the rollout over all shards, and mean, deviation and count of each minibatch's weights.

    Without shards the kernels `judge` and `update` do this, on their own rows.
    """
    held, stats, fields = bound.frame.held, bound.stats, bound.frame.fields
    names = ("weight", "target", "value", "counted")
    weight, target, value, counted = (torch.from_numpy(held[name][: bound.recipe.rows]).double() for name in names)
    sums = [counted.sum(), (weight * counted).sum(), (weight.square() * counted).sum(), (target * counted).sum()]
    count, total, squares, returns = shard.sum(torch.stack(sums)).tolist()
    count = max(count, 1.0)
    stats.weight_mean = total / count
    stats.weight_std = math.sqrt(max(squares / count - stats.weight_mean**2, 0.0))
    stats.return_mean = returns / count
    stats.explained = float(explained_variance(value, target, shard.variance))
    batches = torch.from_numpy(held["order"]).view(-1, fields.minibatch).long()  # [updates, rows]
    weight, counted = weight[batches], counted[batches]
    sums = [counted.sum(1), (weight * counted).sum(1), (weight.square() * counted).sum(1)]
    counts, means, squared = shard.sum(torch.stack(sums))
    counts = counts.clamp(min=1)
    means, squared = means / counts, squared / counts
    deviations = (squared - means.square()).clamp(min=0).sqrt()  # [updates], of `weight` in each minibatch
    if fields.normalize != 1:  # not by minibatch
        means = torch.full_like(means, stats.weight_mean if fields.normalize else 0.0)
        deviations = torch.full_like(means, stats.weight_std if fields.normalize else 1.0)
    inverse = 1 / (deviations + 1e-8) if fields.normalize else deviations
    torch.from_numpy(held["weighings"]).copy_(torch.stack([means, inverse, shard.count / counts], 1))
