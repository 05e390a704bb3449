"""Memory for a network whose config came from elsewhere: its tensors may be as large as the weights that came with it.

Checked where torch makes a tensor, so whatever key or class of policy asks for it; a larger one is never made.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from stride.utils.user_error import UserError

SPARE = 16 << 20  # bytes of a tensor that is none of the weights: a rollout of one row, an optimizer's step
TIMES = 16  # what may be made in all, for each byte of weights: targets, gradients, and what initialisation works with


class Allowance(TorchDispatchMode):
    """Limits the tensors that are made while a policy is built; `owner` begins the line of the error."""

    def __init__(self, weights: Mapping[str, Tensor], obs_bytes: int, owner: str) -> None:
        super().__init__()
        storages = (tensor.untyped_storage() for tensor in weights.values() if isinstance(tensor, Tensor))
        sizes = {storage.data_ptr(): storage.nbytes() for storage in storages}  # a view may claim more than it has
        self.largest = max(sizes.values(), default=0) + obs_bytes + SPARE
        self.remaining = TIMES * (sum(sizes.values()) + obs_bytes + SPARE)
        self.owner = owner

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        size = _size_of(args, kwargs) if str(func).startswith(MAKING) else 0
        self.remaining -= size
        if size > self.largest or self.remaining < 0:
            raise UserError(
                f"{self.owner}: the config needs a tensor of {size:,} bytes, but no tensor of these weights is "
                f"larger than {self.largest:,}: weights and config do not match"
            )
        return func(*args, **kwargs)


MAKING = tuple(f"aten.{name}" for name in (
    "empty", "new_empty", "zeros", "new_zeros", "ones", "new_ones", "full", "new_full", "rand", "arange", "eye",
))  # fmt: skip


def _size_of(args: Sequence[object], kwargs: Mapping[str, object]) -> int:
    """Bytes of the tensor that a call of MAKING makes."""
    sizes = next((argument for argument in args if isinstance(argument, list | tuple)), None)
    numbers = [argument for argument in args if isinstance(argument, int | float) and not isinstance(argument, bool)]
    count = math.prod(sizes) if sizes is not None else int(max(numbers, default=0))
    dtype = kwargs.get("dtype")
    return count * (dtype if isinstance(dtype, torch.dtype) else torch.get_default_dtype()).itemsize
