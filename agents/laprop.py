"""The optimizer LaProp (Ziyin et al. 2020) with adaptive gradient clipping (Brock et al. 2021), as in DreamerV3.

A tensor's gradient g is clipped to a fraction of the norm of its weights, divided by its running root mean square, then
averaged: m = b1 m + (1 - b1) g / (sqrt(v) + eps). Adam averages g first and divides then, so its momentum mixes
gradients of different scales; here everything in the momentum has a scale of about 1.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

MIN_WEIGHT_NORM = 1e-3  # clipping counts smaller norms of weights as this, so that weights can leave 0


class LaProp(torch.optim.Optimizer):
    """LaProp whose steps a flag on the device can turn into nothing, without a wait of the host.

    `found_inf` is that flag, a tensor with 1 or 0: 1 leaves weights, moments and counts unchanged (None: never).
    torch's fused optimizers have an attribute of the same name. `clip`: the largest norm of a gradient as a fraction of
    the norm of its weights, None for no limit. `warmup`: number of steps over which the rate rises linearly from 0.
    """

    found_inf: Tensor | None = None

    def __init__(
        self,
        parameters: list[nn.Parameter],
        lr: float | Tensor,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-20,
        weight_decay: float = 0.0,
        clip: float | None = 0.3,
        warmup: int = 0,
    ) -> None:
        """`weight_decay` is decoupled from the gradient, as in AdamW."""
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "clip": clip, "warmup": warmup}
        super().__init__(parameters, options)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Make one step for every parameter that has a gradient; gradients are not changed."""
        assert closure is None, "a loss is differentiated once, by the caller"
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            if weights:
                self._move(weights, group)

    def _move(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        """Make the step of one group of parameters; an engine's optimizer overrides this."""
        b1, b2 = group["betas"]
        one = torch.ones((), device=weights[0].device)
        states = [self.state_of(p) for p in weights]
        step_counts = [state["updates"] for state in states]
        squares = [state["square"] for state in states]
        momenta = [state["mean"] for state in states]
        skip = torch.zeros_like(one, dtype=torch.bool) if self.found_inf is None else self.found_inf.reshape(()).bool()
        go = one.masked_fill(skip, 0)  # 1, or 0 for a step that must change nothing
        # filled, not multiplied: NaN times 0 is NaN
        gradients = [p.grad.masked_fill(skip, 0) for p in weights if p.grad is not None]
        if group["clip"] is not None:
            sizes = torch.stack(torch._foreach_norm(weights))
            norms = torch.stack(torch._foreach_norm(gradients))
            scales = (group["clip"] * sizes.clamp(min=MIN_WEIGHT_NORM) / norms).clamp(max=1)
            torch._foreach_mul_(gradients, scales.unbind())
        torch._foreach_add_(step_counts, [go] * len(step_counts))
        # at least 1, as every step so far may have been skipped; double, as 1 - 0.999 has only four digits in float32
        count = torch.stack(step_counts).double().clamp(min=1)
        # v = b2 v + (1 - b2) g^2, then g / (sqrt(v / (1 - b2^count)) + eps)
        torch._foreach_lerp_(squares, torch._foreach_mul(gradients, gradients), [(1 - b2) * go] * len(squares))
        denominators = torch._foreach_div(squares, (1 - b2**count).float().unbind())
        torch._foreach_sqrt_(denominators)
        torch._foreach_add_(denominators, group["eps"])
        torch._foreach_div_(gradients, denominators)
        torch._foreach_lerp_(momenta, gradients, [(1 - b1) * go] * len(momenta))
        step_rates = group["lr"] * go * (count / max(1, group["warmup"])).clamp(max=1)
        if group["weight_decay"]:
            torch._foreach_mul_(weights, (1 - group["weight_decay"] * step_rates).float().unbind())
        torch._foreach_add_(weights, torch._foreach_mul(momenta, (-step_rates / (1 - b1**count)).float().unbind()))

    def state_of(self, p: Tensor) -> dict[str, Tensor]:
        """Return the count of steps, v (`square`) and m (`mean`) of a parameter; zeros at first."""
        state: dict[str, Tensor] = self.state[p]
        if not state:
            state["updates"] = torch.zeros((), device=p.device)
            state["square"] = torch.zeros_like(p)
            state["mean"] = torch.zeros_like(p)
        return state
