"""`precision: bf16`: networks compute in bfloat16 inside, by torch.autocast; everything else stays float32.

Inside a network, layers, convolutions, cells and the activations between them have bfloat16 inputs and outputs. Its
final output is converted to float32, so distributions, log-probabilities, values, losses and returns are float32.
Weights, gradients and the optimizer's moments are float32, too.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from stride.agents.experience.nouns import tree_map
from stride.agents.networks.cnn import Image
from stride.agents.networks.recurrent import Recurrence
from stride.agents.networks.squashed import Critic

WHOLE_NETWORKS = (Image, Recurrence, Critic)  # their forward has nothing but products and activations
PRODUCT_LAYERS = (nn.Linear, nn.Conv2d)
OTHER_LAYERS = (nn.Sequential, nn.LayerNorm, nn.Tanh, nn.ReLU, nn.Identity)  # allowed between products


def compute_in(precision: str | int, agent: nn.Module) -> None:
    """Make every network of an agent compute in `precision` from now on; 32 and tf32 need no change here.

    Called once, when the agent is complete. Copies that are made of its networks later have the same precision.
    """
    if precision == "bf16":
        for network in dict.fromkeys(networks(agent)):  # a network may be found under two names
            region = Region()
            network.register_forward_pre_hook(region.begin)
            network.register_forward_hook(region.end, always_call=True)


def networks(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the largest parts of a module that consist of layers only; maths around them stays float32."""
    if isinstance(module, (*WHOLE_NETWORKS, *PRODUCT_LAYERS)) or _is_stack(module):
        yield module
    else:
        for child in module.children():
            yield from networks(child)


def _is_stack(module: nn.Module) -> bool:
    """Return whether this is a Sequential of known layers, with at least one product."""
    layers = list(module.modules())
    known_layers = (*PRODUCT_LAYERS, *OTHER_LAYERS)
    only_layers = isinstance(module, nn.Sequential) and all(isinstance(x, known_layers) for x in layers)
    return only_layers and any(isinstance(x, PRODUCT_LAYERS) for x in layers)


class Region:
    """Autocast from a network's first operation to its last: two forward hooks.

    Autocast's cache of converted weights is off. So a CUDA graph contains the conversion, and each replay converts the
    present weights.
    """

    def __init__(self) -> None:
        self.open: list[torch.autocast] = []

    def begin(self, network: nn.Module, inputs: tuple[Any, ...]) -> None:
        device = next(network.parameters()).device.type
        self.open.append(torch.autocast(device, torch.bfloat16, cache_enabled=False))
        self.open[-1].__enter__()

    def end(self, network: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        self.open.pop().__exit__(None, None, None)
        return None if output is None else tree_map(Tensor.float, output)  # None: the network raised
