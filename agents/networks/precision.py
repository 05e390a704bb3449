"""Networks that compute in fewer bits: `precision: bf16`. Their weights and their outputs stay float32.

Their products (layers, convolutions, cells) take bfloat16 operands and answer in it, and so do the activations between
two of them: torch.autocast. It begins where a network does and ends where it does, so that distributions,
log-probabilities, values, losses and returns are computed in float32 of the network's output; weights, gradients and
the optimizer's moments are float32 all along.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from stride.agents.experience.nouns import tree_map
from stride.agents.networks.cnn import Image
from stride.agents.networks.recurrent import Recurrence
from stride.agents.networks.squashed import Critic

COMPLETE = (Image, Recurrence, Critic)  # networks with a forward of their own, all of it products and activations
PRODUCTS = (nn.Linear, nn.Conv2d)
BETWEEN = (nn.Sequential, nn.LayerNorm, nn.Tanh, nn.ReLU, nn.Identity)


def compute_in(precision: str | int, agent: nn.Module) -> None:
    """Make every network of an agent compute in `precision` from now on; for 32 and tf32 nothing is changed here.

    Called once for an agent that is complete. Copies made of it later compute so, too.
    """
    if precision == "bf16":
        for network in dict.fromkeys(networks(agent)):  # some have two names
            region = Region()
            network.register_forward_pre_hook(region.begin)
            network.register_forward_hook(region.end, always_call=True)


def networks(module: nn.Module) -> Iterator[nn.Module]:
    """The largest parts of a module that are nothing but layers; the maths between and after them is left out."""
    if isinstance(module, (*COMPLETE, *PRODUCTS)) or _is_stack(module):
        yield module
    else:
        for child in module.children():
            yield from networks(child)


def _is_stack(module: nn.Module) -> bool:
    layers = list(module.modules())
    only_layers = isinstance(module, nn.Sequential) and all(isinstance(x, (*PRODUCTS, *BETWEEN)) for x in layers)
    return only_layers and any(isinstance(x, PRODUCTS) for x in layers)


class Region:
    """From a network's first operation to its last; autocast's cache of weights is off, so that a CUDA graph holds
    their conversion, and follows them as they are learnt.
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
