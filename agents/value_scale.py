"""`value_scale` as an agent uses it: targets are learnt by the last layers of all its critics, losses are divided."""

import torch
import torch.distributed as dist
from torch import Tensor, nn

from stride.agents.base import average
from stride.agents.networks.popart import PopArt


class ValueScale:
    """The units of an agent's critics, target networks included; with `value_scale: raw` they are 1."""

    def __init__(self, *networks: nn.Module) -> None:
        self.layers = [part for network in networks for part in network.modules() if isinstance(part, PopArt)]

    def learn(self, target: Tensor) -> dict[str, Tensor]:
        """Learn the moments of targets [...], over all processes; -> metrics."""
        if not self.layers:
            return {}
        x = target.double()
        moments = torch.stack((x.mean(), x.square().mean()))
        if dist.is_initialized():
            average([moments])
        for layer in self.layers:
            layer.learn(*moments)
        mean, deviation = self.layers[0].mean.float(), self.layers[0].deviation.float()
        return {"train/value/target_mean": mean, "train/value/target_deviation": deviation}

    def relative(self, x: Tensor, power: int = 1) -> Tensor:
        """A difference of values in units of the scale; with `power` 2 a squared one."""
        return x / self.layers[0].deviation.to(x.dtype) ** power if self.layers else x
