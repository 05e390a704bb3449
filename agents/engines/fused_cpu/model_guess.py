"""A guess of a world model as a node of torch's graph: log-probabilities of logits, whose insides are kernels."""

from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from agents.engines.fused_cpu.kernels import model_guess
from agents.engines.fused_cpu.kernels.calls import Kernel
from agents.engines.fused_cpu.kernels.model_guess import MIX, Mix
from agents.engines.fused_cpu.model_nets import Crew, Entry, filled
from agents.networks.autograd import Context

CALLED: tuple[Kernel, ...] = (model_guess.forward, model_guess.backward)


class _Guessed(Context, Protocol):
    crew: Crew
    model: np.ndarray
    soft: Tensor


class Guessing(torch.autograd.Function):
    """Log-probabilities [N, F] of logits [N, F], by the table of the model's sizes."""

    @staticmethod
    def forward(ctx: _Guessed, crew: Crew, model: np.ndarray, logits: Tensor) -> Tensor:
        log_probs, ctx.soft = torch.empty_like(logits), torch.empty_like(logits)
        ctx.crew, ctx.model = crew, model
        _run(model_guess.forward, ctx, logits, {Mix.LOGITS: logits, Mix.LOG_PROBS: log_probs})
        return log_probs

    @staticmethod
    def backward(ctx: _Guessed, *slope: Tensor) -> tuple[Tensor | None, ...]:
        of_log_probs, of_logits = slope[0].contiguous(), torch.empty_like(ctx.soft)
        entries: dict[IntEnum, Entry] = {Mix.SLOPE_LOG_PROBS: of_log_probs, Mix.SLOPE_LOGITS: of_logits}
        _run(model_guess.backward, ctx, of_logits, entries)
        return None, None, of_logits


def _run(kernel: Kernel, ctx: _Guessed, like: Tensor, entries: dict[IntEnum, Entry]) -> None:
    rows, count = like.shape
    scratch, size = ctx.crew.scratch(3 * count)
    counts: dict[IntEnum, Entry] = {
        Mix.MODEL: ctx.model.ctypes.data, Mix.ROWS: rows, Mix.THREADS: ctx.crew.threads, Mix.SOFT: ctx.soft,
        Mix.SCRATCH: scratch, Mix.SCRATCH_SIZE: size,
    }  # fmt: skip
    ctx.crew.run(kernel, filled(MIX, counts | entries))


guessing: Callable[..., Tensor] = Guessing.apply
