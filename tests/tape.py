"""What stands in for a CUDA graph where there is no GPU: every operation with its very tensors, done again literally.

As a CUDA graph it knows nothing of Python: a number that an operation was given stays, a tensor is the memory it was.
What a graph could not capture, a look at a number from the host, it refuses.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from stride.agents.experience.nouns import copy_into, tree_map
from stride.envs_fast.vec_env import Step, VecEnv
from stride.utils.cuda_kernels import Compile, DeviceKernels, Source

WAITS = ("_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "item", "unique", "equal")


class RefuseSync(TorchDispatchMode):
    """Raises on operations that read data on the host or whose result's shape depends on data."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.__name__.partition(".")[0]
        assert name not in WAITS, f"{func} waits for the device"
        if name in ("index", "index_put", "index_put_"):
            masks = [i for i in args[1] if i is not None and i.dtype == torch.bool]
            assert not masks, f"{func} waits for the device: with a mask it has a shape that depends on data"
        return func(*args, **(kwargs or {}))


class Tape(RefuseSync):
    """A Graph (agents/engines/graphed.py) on the CPU."""

    running: "Tape | None" = None

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.does: list[Callable[[], None]] = []
        self.replays = 0

    def rehearse(self, work: Callable[[], None]) -> None:
        work()

    def capture(self, work: Callable[[], None]) -> None:
        Tape.running = self
        try:
            with self:
                work()
        finally:
            Tape.running = None

    def replay(self) -> None:
        self.replays += 1
        with torch.inference_mode():
            for do in self.does:
                do()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if func.namespace != "profiler":
            self.does.append(lambda: _again(out, func(*args, **(kwargs or {}))))
        return out


def _again(before: object, now: object) -> None:
    """The result of an operation, into the memory where it was; views and what was changed in place are there."""
    for mine, new in zip(tree_leaves(before), tree_leaves(now), strict=True):
        if isinstance(mine, Tensor) and mine.data_ptr() != new.data_ptr():
            mine.copy_(new)


def done(work: Callable[[], None]) -> None:
    """Do what torch does not see, and let the tape that is running do it, too."""
    if Tape.running is not None:
        Tape.running.does.append(work)
    with _disable_current_modes():
        work()


def taped(compile: Compile) -> Compile:
    """The same kernels, whose launches a tape sees, as a CUDA graph sees those on its stream."""

    class Taped:
        def __init__(self, kernels: DeviceKernels) -> None:
            self.kernels = kernels

        def launch(
            self, kernel: str, threads: int, *arguments: Tensor | np.generic, block: int = 128, shared: int = 0
        ) -> None:
            done(lambda: self.kernels.launch(kernel, threads, *arguments, block=block, shared=shared))

    def compiled(source: Source, device: torch.device) -> DeviceKernels:
        return Taped(compile(source, device))

    return compiled


class TapedEnv:
    """Worlds of the CPU whose steps a tape sees; what they tell lies in the same place each time."""

    def __init__(self, envs: VecEnv) -> None:
        self._envs = envs
        self._told: Step | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._envs, name)

    def step(self, action: Tensor) -> Step:
        def work() -> None:
            told = self._envs.step(action)
            if self._told is None:
                self._told = tree_map(torch.clone, told)
            copy_into(self._told, told)

        done(work)
        assert self._told is not None
        return self._told
