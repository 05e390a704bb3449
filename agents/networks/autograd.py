"""What a torch.autograd.Function keeps between its two passes, more exactly than torch's own stubs say it."""

from typing import Protocol

from torch import Tensor


class Context(Protocol):
    """The first argument of forward and backward."""

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]: ...
    @property
    def needs_input_grad(self) -> tuple[bool, ...]: ...
    def save_for_backward(self, *tensors: Tensor | None) -> None: ...
    def mark_non_differentiable(self, *tensors: Tensor) -> None: ...
