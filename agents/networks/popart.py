"""PopArt (van Hasselt et al. 2016): critics learn in units of their targets' spread, whatever the size of rewards.

A critic's last layer computes n = (value - mu) / sigma, with running mean mu and deviation sigma of its targets.
`PopArt` around the layer returns sigma n + mu, so that all other code gets raw values; only losses are divided by
sigma. When mu and sigma change, the layer's weights change such that every value stays the same ("preserve outputs").

A target network learns the same mu and sigma, and changes its own last layer. So its values stay the same, too, and
since both networks have the same units, an average of their weights is an average of their values.
"""

import torch
from torch import Tensor, nn

from stride.agents.experience.shards import SINGLE, SingleShard
from stride.config.schema import Config
from stride.utils.user_error import UserError

MIN_DEVIATION = 1e-4  # of targets; that of equal targets would be 0


class PopArt(nn.Module):
    """A linear layer whose outputs are values in raw units. The first targets only set mu and sigma."""

    mean: Tensor
    square: Tensor
    share: Tensor

    def __init__(self, layer: nn.Linear, rate: float) -> None:
        super().__init__()
        self.layer, self.rate = layer, rate
        # running E[target] and E[target^2], float64 because a variance is their small difference
        self.register_buffer("mean", torch.zeros((), dtype=torch.float64))
        self.register_buffer("square", torch.ones((), dtype=torch.float64))
        # 1 - (1 - rate)^n after n steps: total weight of targets in the averages; corrects their start, as in Adam
        self.register_buffer("share", torch.zeros((), dtype=torch.float64))

    @property
    def deviation(self) -> Tensor:
        """The targets' standard deviation sigma, [] float64."""
        return (self.square - self.mean.square()).clamp(min=MIN_DEVIATION**2).sqrt()

    def forward(self, x: Tensor, *options: bool) -> Tensor:
        """Return values in raw units; `options` are passed to the layer."""
        y: Tensor = self.layer(x, *options)
        y = y.to(torch.promote_types(y.dtype, torch.float32))  # bfloat16 is too coarse for a mean and a little more
        return y * self.deviation.to(y.dtype) + self.mean.to(y.dtype)

    @torch.no_grad()
    def learn(self, mean: Tensor, square: Tensor) -> None:
        """Move mu and sigma towards new targets with this E[target] and E[target^2], [] float64; preserve all values.

        Non-finite ones change nothing, and the host does not wait to find out.
        """
        mean_before, deviation_before = self.mean.clone(), self.deviation
        is_first, is_finite = self.share == 0, (mean + square).isfinite()
        share = self.share + self.rate * (1 - self.share)
        step = self.rate / share  # 1 at first, `rate` in the end
        moved = (self.mean + step * (mean - self.mean), self.square + step * (square - self.square), share)
        for old, new in zip((self.mean, self.square, self.share), moved, strict=True):
            old.copy_(torch.where(is_finite, new, old))
        ratio = torch.where(is_first, 1.0, deviation_before / self.deviation)
        shift = torch.where(is_first, 0.0, (mean_before - self.mean) / self.deviation)
        self.layer.weight.copy_(self.layer.weight.double() * ratio)
        self.layer.bias.copy_(self.layer.bias.double() * ratio + shift)


def unscaled(layer: nn.Module) -> nn.Linear:
    """Return a critic's last linear layer itself, without a PopArt around it."""
    inner = layer.layer if isinstance(layer, PopArt) else layer
    assert isinstance(inner, nn.Linear)
    return inner


def scale_values(network: nn.Module, config: Config, *names: str) -> None:
    """With `value_scale: popart`, put PopArt around the layers of these names, the critics' last ones."""
    keys = vars(config)
    if keys.get("value_scale", "raw") == "raw":
        return
    for name in names:
        layer = dict(network.named_modules()).get(name)
        if not isinstance(layer, nn.Linear):
            raise UserError(f"value_scale: popart needs a linear layer {name}, which policy {config.policy} has not")
        network.set_submodule(name, PopArt(layer, keys["value_scale_rate"]))


class ValueScale:
    """The units in which an agent's critics learn, target networks included; with `value_scale: raw` the unit is 1."""

    def __init__(self, *networks: nn.Module) -> None:
        self.layers = [part for network in networks for part in network.modules() if isinstance(part, PopArt)]

    def learn(self, target: Tensor, shard: SingleShard = SINGLE) -> dict[str, Tensor]:
        """Update mu and sigma by targets [...] of all shards; -> metrics ({} with `value_scale: raw`)."""
        if not self.layers:
            return {}
        x = target.double()
        moments = shard.mean(torch.stack((x.mean(), x.square().mean())))
        for layer in self.layers:
            layer.learn(*moments)
        mean, deviation = self.layers[0].mean.float(), self.layers[0].deviation.float()
        return {"train/value/target_mean": mean, "train/value/target_deviation": deviation}

    def units(self) -> tuple[float, float]:
        """Return (mu, sigma) as floats; (0, 1) with `value_scale: raw`."""
        if not self.layers:
            return 0.0, 1.0
        return self.layers[0].mean.item(), self.layers[0].deviation.item()

    def relative(self, x: Tensor, power: int = 1) -> Tensor:
        """Return x / sigma^power: `power` 1 for a difference of values, 2 for a squared one."""
        return x / self.layers[0].deviation.to(x.dtype) ** power if self.layers else x
