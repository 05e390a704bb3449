"""Networks that compute in fewer bits: `precision: bf16`. What they are made of and what leaves them stays float32.

Their products (layers, convolutions, cells) take bfloat16 operands and answer in it, and so do the activations between
two of them: torch.autocast. It begins where a network does and ends where it does, so that distributions,
log-probabilities, values, losses and returns are computed in float32 of the network's answer; weights, gradients and
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

WHOLE = (Image, Recurrence, Critic)  # networks with a forward of their own, products and activations in all of it
PRODUCTS = (nn.Linear, nn.Conv2d)
BETWEEN = (nn.Sequential, nn.LayerNorm, nn.Tanh, nn.ReLU, nn.Identity)


def compute_in(precision: str | int, agent: nn.Module) -> None:
    """Have every network of an agent compute in `precision`, from now on; of 32 and tf32 nothing is changed here.

    Once for an agent that is complete. Copies made of it later do the same.
    """
    if precision == "bf16":
        for network in dict.fromkeys(networks(agent)):  # some are known by two names
            region = Region()
            network.register_forward_pre_hook(region.begin)
            network.register_forward_hook(region.end, always_call=True)


def networks(module: nn.Module) -> Iterator[nn.Module]:
    """The largest parts of a module that are nothing but layers; the maths between and behind them is none of it."""
    if isinstance(module, (*WHOLE, *PRODUCTS)) or _is_stack(module):
        yield module
    else:
        for child in module.children():
            yield from networks(child)


def _is_stack(module: nn.Module) -> bool:
    parts = list(module.modules())
    layers = isinstance(module, nn.Sequential) and all(isinstance(part, (*PRODUCTS, *BETWEEN)) for part in parts)
    return layers and any(isinstance(part, PRODUCTS) for part in parts)


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

    def end(self, network: nn.Module, inputs: tuple[Any, ...], answer: Any) -> Any:
        self.open.pop().__exit__(None, None, None)
        return None if answer is None else tree_map(Tensor.float, answer)  # None: the network raised
