"""A world model's pass through observed sequences, as a node of torch's graph: kernels compute it and its gradients.

model_losses.py calls `scan`. Letters for shapes are those of kernels/model_tables.py.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from stride.agents.engines.fused_cpu.kernels import model_scan
from stride.agents.engines.fused_cpu.kernels.calls import CompiledKernel
from stride.agents.engines.fused_cpu.kernels.model_tables import ModelTable, ScanSlopes, ScanTable
from stride.agents.engines.fused_cpu.model_nets import KernelPool
from stride.agents.engines.plan.layout import LANES
from stride.agents.networks.layers import Context
from stride.agents.networks.world_model import RSSM, DenseCell, ModelSizes, State

KERNELS: tuple[CompiledKernel, ...] = (model_scan.forward, model_scan.backward)


def scan_weights(rssm: RSSM) -> dict[str, Tensor]:
    """Return the weights that a scan reads, by their entry in ModelTable, in the order of the gradients."""
    cell = rssm.cell
    assert isinstance(cell, DenseCell)
    return {
        "from_stoch": cell.from_stoch.weight,
        "input_scale": cell.input_norm.scale,
        "gates": cell.gates.weight,
        "gates_scale": cell.gates_norm.scale,
        "from_deter": rssm.from_deter.weight,
        "posterior_scale": rssm.posterior_norm.scale,
        "posterior": rssm.posterior.weight,
        "posterior_bias": rssm.posterior.bias,
    }


def model_table(rssm: RSSM) -> ModelTable:
    """Return a table of sizes and of the weights' present addresses; make a new one after weights have moved."""
    sizes = rssm.sizes
    return ModelTable(
        deter=sizes.deter, width=sizes.width, choices=sizes.stoch, classes=sizes.classes,
        stoch=sizes.stoch * sizes.classes, unimix=rssm.unimix, **scan_weights(rssm),
    )  # fmt: skip


def letter_sizes(sizes: ModelSizes, steps: int, sequences: int) -> dict[str, int]:
    """Return the sizes of a scan's arrays by the letters that ScanTable and ScanSlopes use, such as "W+D"."""
    deter = sizes.deter
    width = sizes.width
    stoch = sizes.stoch * sizes.classes
    return {
        "T": steps, "B": sequences, "B/16": sequences // LANES, "D": deter, "W": width, "F": stoch, "3D": 3 * deter,
        "W+D": width + deter, "2W+3D": 2 * width + 3 * deter,
        "residuals": model_scan.residual_size.py_func(deter, width, stoch),
        "scratch": model_scan.scratch_size.py_func(deter, width, stoch),
    }  # fmt: skip


class _ScanContext(Context, Protocol):
    pool: KernelPool
    sizes: dict[str, int]
    table: ScanTable


class Scan(torch.autograd.Function):
    """A node of torch's graph: deter, stoch and log-probabilities [T, B, ..] from projected actions and observations.

    `prepared` [T, B, W]: projected actions; `tokens` [T, B, W]: projected observations; `keep` [T, B]: 0 where an
    episode begins; `u` [T, B, S]: uniform numbers that sample the states.
    """

    @staticmethod
    def forward(
        ctx: _ScanContext, pool: KernelPool, rssm: RSSM, keep: Tensor, u: Tensor, prepared: Tensor, tokens: Tensor,
        *weights: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        steps, sequences = keep.shape
        sizes = letter_sizes(rssm.sizes, steps, sequences)
        table = ScanTable(
            sizes, model=model_table(rssm), threads=min(pool.threads, sequences // LANES), steps=steps,
            sequences=sequences, prepared=prepared.contiguous(), tokens=tokens.contiguous(), keep=keep.contiguous(),
            uniforms=u.contiguous(),
        )  # fmt: skip
        pool.run(model_scan.forward, table)
        # results leave the table: a node that holds its own results is never freed
        deter, stoch, log_probs = (table.tensors.pop(name) for name in ("deter", "stoch", "log_probs"))
        ctx.save_for_backward(deter, *weights)
        ctx.pool = pool
        ctx.sizes = sizes
        ctx.table = table
        return deter, stoch, log_probs

    @staticmethod
    def backward(ctx: _ScanContext, deter: Tensor, stoch: Tensor, log_probs: Tensor) -> tuple[Tensor | None, ...]:
        table = ctx.table
        sizes = ctx.sizes
        slopes = ScanSlopes(
            sizes, deter=deter.contiguous(), stoch=stoch.contiguous(), log_probs=log_probs.contiguous()
        )  # fmt: skip
        table.fill(slopes=slopes)
        ctx.pool.run(model_scan.backward, table)
        gradients = ctx.pool.products(
            (slopes["prepared"].flatten(0, 1), table["stoch_before"].flatten(0, 1)),
            (slopes["gates"].flatten(0, 1), table["joined"].flatten(0, 1)),
            (slopes["tokens"].flatten(0, 1), ctx.saved_tensors[0].flatten(0, 1)),
            (slopes["logits"].flatten(0, 1), table["hidden"].flatten(0, 1)),
        )
        scales = slopes["scales"].sum((0, 2)).split((sizes["W"], sizes["3D"], sizes["W"]))
        weights = []
        for matrix, scale in zip(gradients, (*scales, slopes["logits"].sum((0, 1))), strict=True):
            weights += [matrix, scale]
        return (None, None, None, None, slopes["prepared"], slopes["tokens"], *weights)


apply_scan: Callable[..., tuple[Tensor, Tensor, Tensor]] = Scan.apply


def scan(
    pool: KernelPool, rssm: RSSM, tokens: Tensor, action: Tensor, is_first: Tensor, u: Tensor
) -> tuple[State, Tensor]:
    """Return the states that RSSM.observe returns, and the log-probabilities [T, B, F] of its posteriors."""
    prepared, tokens = rssm.ahead(tokens, action, is_first)
    keep = (~is_first).to(tokens.dtype)
    deter, stoch, log_probs = apply_scan(pool, rssm, keep, u, prepared, tokens, *scan_weights(rssm).values())
    return State(deter, stoch), log_probs
