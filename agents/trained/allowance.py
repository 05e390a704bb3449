"""A limit of memory while a policy is built from a config that came from elsewhere, such as the Hub.

A malicious or damaged config could ask for huge tensors. The weights that came with it show how large its tensors may
be. The check is where torch makes a tensor, so it covers every config key and policy class; a larger one is never made.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from stride.utils.user_error import UserError

SPARE_BYTES = 16 << 20  # for tensors that are not weights, such as a rollout of one row
MAX_BYTES_PER_BYTE = 16  # of all tensors made, for each byte of weights: target networks, work of initialisation


class Allowance(TorchDispatchMode):
    """Inside the `with` block, UserError if torch makes a tensor that is too large, or too many tensors.

    `weights`: tensors by name, as read from a file. `obs_bytes`: of one observation. `owner`: begins the error line.
    """

    def __init__(self, weights: Mapping[str, Tensor], obs_bytes: int, owner: str) -> None:
        super().__init__()
        storages = (tensor.untyped_storage() for tensor in weights.values() if isinstance(tensor, Tensor))
        sizes = {storage.data_ptr(): storage.nbytes() for storage in storages}  # a view may claim more than it has
        self.largest = max(sizes.values(), default=0) + obs_bytes + SPARE_BYTES
        self.remaining = MAX_BYTES_PER_BYTE * (sum(sizes.values()) + obs_bytes + SPARE_BYTES)
        self.owner = owner

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        size = _size_of(args, kwargs) if str(func).startswith(MAKERS) else 0
        self.remaining -= size
        if size > self.largest or self.remaining < 0:
            raise UserError(
                f"{self.owner}: the config needs a tensor of {size:,} bytes, but no tensor of these weights is "
                f"larger than {self.largest:,}: weights and config do not match"
            )
        return func(*args, **kwargs)


# operations of torch that make a new tensor
MAKERS = tuple(f"aten.{name}" for name in (
    "empty", "new_empty", "zeros", "new_zeros", "ones", "new_ones", "full", "new_full", "rand", "arange", "eye",
))  # fmt: skip


def _size_of(args: Sequence[object], kwargs: Mapping[str, object]) -> int:
    """Return the bytes of the tensor that a call of one of MAKERS makes: its shape, or the largest number given."""
    sizes = next((argument for argument in args if isinstance(argument, list | tuple)), None)
    numbers = [argument for argument in args if isinstance(argument, int | float) and not isinstance(argument, bool)]
    count = math.prod(sizes) if sizes is not None else int(max(numbers, default=0))
    dtype = kwargs.get("dtype")
    return count * (dtype if isinstance(dtype, torch.dtype) else torch.get_default_dtype()).itemsize
