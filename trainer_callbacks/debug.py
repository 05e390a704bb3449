"""The callback of --debug: check every layer for non-finite numbers, log weights and gradients, record a trace.

It costs time, so a run without --debug does not have it. logs/debug.csv has a line for each iteration and parameter;
logs/trace.json opens in chrome://tracing or Perfetto.
"""

import csv
import io
import logging
from contextlib import ExitStack
from functools import partial
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn

from stride.agents.base import Agent
from stride.runstore import run_files
from stride.runstore.run_dir import RunDir
from stride.utils.user_error import NumbersError

COLUMNS = ("iteration", "parameter", "mean", "std", "largest", "gradient_norm", "gradient_largest")
TRACED = range(2, 5)  # iterations; the first one compiles and fills caches

log = logging.getLogger("stride")


class OneWorld(Callback):
    """Marks a training that a person steps through with a debugger: evaluation uses one environment, too."""


class Debug(OneWorld):
    """Checks the inputs and outputs of the policy's layers, writes a line per parameter, traces a few iterations."""

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self._lines: list[tuple[Any, ...]] = []
        self._cleanup = ExitStack()
        self._profiler: torch.profiler.profile | None = None

    def on_train_start(self, trainer: L.Trainer, agent: Agent) -> None:  # type: ignore[override]
        for name, value in agent.policy.named_parameters():
            log.info(f"debug: {name:<40} {list(value.shape)!s:<16} {value.numel():>9,}")
        for name, module in agent.policy.named_modules():
            if not list(module.children()):
                hook = module.register_forward_hook(partial(check, name))
                self._cleanup.callback(hook.remove)
        # torch then says which operation gave a NaN gradient; the earlier setting is restored at the end
        anomaly = torch.is_anomaly_enabled()
        torch.autograd.set_detect_anomaly(True)
        self._cleanup.callback(torch.autograd.set_detect_anomaly, anomaly)

    def on_train_batch_start(self, trainer: L.Trainer, agent: Agent, *rest: object) -> None:  # type: ignore[override]
        if agent.progress["iterations"] + 1 == TRACED.start:
            self._profiler = torch.profiler.profile(record_shapes=True)
            self._profiler.start()

    def on_train_batch_end(self, trainer: L.Trainer, agent: Agent, *rest: object) -> None:  # type: ignore[override]
        if agent.progress["iterations"] + 1 == TRACED.stop:
            self._end_trace()
        self._lines += [row(agent.progress["iterations"], *named) for named in agent.policy.named_parameters()]

    def _end_trace(self) -> None:
        if self._profiler is not None:
            self._profiler.stop()
            self._profiler.export_chrome_trace(str(run_files.check(self.run.logs / "trace.json")))
            log.info(f"debug: {self.run.logs / 'trace.json'} has a trace of iterations {TRACED[0]} to {TRACED[-1]}")
        self._profiler = None

    def on_train_end(self, trainer: L.Trainer, agent: L.LightningModule) -> None:
        self._close()

    def on_exception(self, trainer: L.Trainer, agent: L.LightningModule, exception: BaseException) -> None:
        self._close()

    def _close(self) -> None:
        self._end_trace()
        self._cleanup.close()
        text = io.StringIO(newline="")
        csv.writer(text).writerows([COLUMNS, *self._lines])
        run_files.write_text(self.run.logs / "debug.csv", text.getvalue())


def row(iteration: int, name: str, value: Tensor) -> tuple[Any, ...]:
    """Return a line of debug.csv, in the order of COLUMNS; the gradient is that of the iteration's last update."""
    x = value.detach()
    cells: list[Any] = [x.mean().item(), x.std(unbiased=False).item(), x.abs().max().item(), "", ""]
    if value.grad is not None:
        cells[3:] = [value.grad.norm().item(), value.grad.abs().max().item()]
    return iteration, name, *cells


def check(name: str, module: nn.Module, inputs: object, outputs: object) -> None:
    """Raise NumbersError if a layer received or returned a non-finite number; used as a forward hook."""
    for text, values in (("received", inputs), ("returned", outputs)):
        for tensor in values if isinstance(values, tuple) else (values,):
            if isinstance(tensor, Tensor) and tensor.is_floating_point() and not tensor.isfinite().all():
                raise NumbersError(f"policy.{name} ({type(module).__name__}) {text} a non-finite number")
