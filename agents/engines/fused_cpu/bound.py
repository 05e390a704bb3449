"""What every binding has: the frame with what it points to, scratch memory, and the threads that work on it."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from agents.engines.fused_cpu import layers, nets
from agents.engines.fused_cpu.calls import address_of
from agents.engines.fused_cpu.frame import SETTINGS, STATS, At, Setting
from agents.engines.fused_cpu.lanes import LANES
from agents.engines.fused_cpu.recipes import normalisation
from agents.engines.fused_cpu.workers import TRY_EVERY, Pace, Workers
from agents.networks.encoders import FlatEncoder, OneHot, RunningNorm

FLOPS_PER_CALL = 1.5e10  # about a tenth of a second: Ctrl-C is heard between two calls
LAYERS = {
    "tanh": (layers.forward_tanh, layers.backward_tanh),
    "relu": (layers.forward_relu, layers.backward_relu),
}
PIECES = {  # that every agent's kernels call
    At.ACCUMULATE: layers.accumulate,
    At.FORWARD: nets.forward,
    At.BACKWARD: nets.backward,
    At.ENCODE: nets.encode,
    At.TURN: nets.turn,
}


class Bound:
    """A frame, the memory it points to, and the threads that work on it."""

    steps_per_call: int
    updates_per_call: int

    def __init__(self, threads: int, encoder: FlatEncoder, try_every: int = TRY_EVERY) -> None:
        self.frame, self._held = np.zeros(len(At), np.int64), dict[str, np.ndarray | Tensor]()
        self.address = self.frame.ctypes.data
        self.settings, self.stats = np.full(SETTINGS, math.inf), np.zeros(STATS)
        self.workers = Workers(threads)
        self.pace = Pace(threads, try_every)
        self._arrivals = np.zeros(LANES, np.int64)
        self._normalised = encoder.leaf[0]
        self.learns = isinstance(self._normalised, RunningNorm)
        self._optimizer_state: Any = None
        self._places: list[int] = []
        centre, scale, self.settings[Setting.BOUND] = normalisation(self._normalised, encoder.size)
        self._centre, self._scale = centre.clone(), scale.clone()
        own: dict[str, np.ndarray | Tensor] = {
            "SETTINGS": self.settings,
            "STATS": self.stats,
            "BARRIER": self._arrivals,
            "CENTRE": self._centre,
            "SCALE": self._scale,
        }
        for name, memory in own.items():
            self._keep(name, memory)
        self.frame[At.FEATURES] = encoder.size
        self.frame[At.OBS_WIDTH] = 0 if isinstance(self._normalised, OneHot) else encoder.size

    def run(self, work: int, arguments: int, count: int, most: int) -> None:
        """The kernel at `work` on the threads this iteration takes, for `count` steps or updates, `most` in a call."""
        threads = int(self.frame[At.THREADS])
        for begin in range(0, count, most):
            self.frame[At.BEGIN], self.frame[At.END] = begin, min(begin + most, count)
            self._arrivals[0] = 0  # the barrier counts anew, for this number of threads
            self.workers.run(work, arguments, threads)

    def learn(self, updates: int) -> None:
        """So many updates, and on-policy what comes before the first of them."""
        self.run(int(self.frame[At.LEARN]), self.address, updates, self.updates_per_call)

    def look(self) -> None:
        """The encoder's statistics as they are now."""
        if isinstance(self._normalised, RunningNorm):
            centre, scale, _ = normalisation(self._normalised, len(self._normalised.mean))
            self._centre.copy_(centre)
            self._scale.copy_(scale)

    def _keep(self, name: str, memory: np.ndarray | Tensor) -> None:
        """Hold on to memory and note where it is."""
        self._held[name] = memory
        self.frame[At[name]] = memory.data_ptr() if isinstance(memory, Tensor) else memory.ctypes.data

    def _count(self, counts: Mapping[At, int]) -> None:
        for entry, count in counts.items():
            self.frame[entry] = int(count)

    def _point(self, activation: str, pieces: Mapping[At, Any]) -> None:
        """At the layers of this activation, at the common pieces and at others."""
        layers_of = dict(zip((At.FORWARD_LAYER, At.BACKWARD_LAYER), LAYERS[activation], strict=True))
        self._count({entry: address_of(kernel) for entry, kernel in (layers_of | PIECES | dict(pieces)).items()})

    def _scratch(self, size: int) -> None:
        """So many floats for each thread behind a first vector, which holds a 1."""
        self.frame[At.SCRATCH_SIZE] = LANES + -(-size // LANES) * LANES
        scratch = aligned(self.workers.threads * int(self.frame[At.SCRATCH_SIZE]))
        scratch.reshape(self.workers.threads, -1)[:, 0] = 1.0
        self._keep("SCRATCH", scratch)

    def _know(self, optimizer: Optimizer, first: Mapping[str, Tensor]) -> None:
        """What an optimizer is set to, and the steps it has made, by the state of a parameter."""
        self.settings[Setting.STEP] = float(first["step"]) if first else 0.0
        self.group = group = optimizer.param_groups[0]
        self.settings[Setting.BETA_1], self.settings[Setting.BETA_2] = group["betas"]
        self.settings[Setting.EPSILON], self.settings[Setting.DECAY] = group["eps"], group["weight_decay"]

    def _count_steps(self, parameters: list[Any], state: Mapping[Any, dict[str, Tensor]]) -> None:
        """Equal numbers, so one memory for all of them."""
        self._counters = torch.full((len(parameters),), float(self.settings[Setting.STEP]))
        for parameter, step in zip(parameters, self._counters, strict=True):
            state[parameter]["step"] = step


def aligned(count: int) -> np.ndarray:
    """float32 zeros that begin on a cache line."""
    raw = np.zeros(count + LANES, np.float32)
    skip = -raw.ctypes.data % (4 * LANES) // 4
    return raw[skip : skip + count]
