"""Which kernel of `engine: fused_gpu` is the first to do something else here than on the host, and with which number?

The host's launches of one iteration, and whatever each of them changed, are in tests/agents/fused_gpu_trace.npz.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lab.gpu.driven import compiler
from lab.gpu.parts import Machine
from stride.utils.device_source import Compile, Kernels, Source
from stride.utils.provenance import PROJECT

FILE = PROJECT / "tests" / "agents" / "fused_gpu_trace.npz"
Trace = dict[str, np.ndarray]  # "007 gradient 15": what the eighth launch left in its argument 15


class Traced:
    """Kernels that copy to the host what each launch has changed, into the trace of all that were compiled together."""

    def __init__(self, kernels: Kernels, trace: Trace, launches: Iterator[int]) -> None:
        self._kernels, self._trace, self._launches = kernels, trace, launches

    def launch(
        self, kernel: str, threads: int, *arguments: Tensor | np.generic, block: int = 128, shared: int = 0
    ) -> None:
        given = {place: each for place, each in enumerate(arguments) if isinstance(each, Tensor)}
        before, number = {place: plain(each) for place, each in given.items()}, next(self._launches)
        self._kernels.launch(kernel, threads, *arguments, block=block, shared=shared)
        after = {place: plain(each) for place, each in given.items()}
        changed = [place for place in given if not np.array_equal(before[place], after[place])]
        self._trace |= {f"{number:03} {kernel} {place}": after[place] for place in changed}


def traced(machine: Machine, trace: Trace) -> Compile:
    """Who compiles for a machine, so that `trace` is told."""
    launches = iter(range(1000))

    def compiled(source: Source, device: torch.device) -> Kernels:
        return Traced(compiler(machine)(source, device), trace, launches)

    return compiled


def plain(tensor: Tensor) -> np.ndarray:
    """A copy of its bits, as whole numbers: NaN is equal to itself."""
    flat = tensor.detach().cpu().contiguous().reshape(-1).clone()
    return flat.numpy().view(f"u{flat.element_size()}")


def first_difference(golden: Trace, found: Trace) -> str:
    """The launch, its kernel, argument and element, "" where all is the same."""
    for name in sorted({*golden, *found}):
        number, kernel, argument = name.split()
        launch = f"launch {int(number)}, {kernel}, argument {argument}"
        if name not in golden or name not in found:
            return f"{launch}: changed by {'this device' if name in found else 'the host'} alone"
        one, other = golden[name], found[name]
        if apart := np.flatnonzero(one != other).tolist() if one.shape == other.shape else [0]:
            host, here = (hex(int(each[apart[0]])) for each in (one, other))
            return f"{launch}: element {apart[0]} is {here}, the host's {host}; {len(apart)} of {one.size} differ"
    return ""


def read(case: str, file: Path = FILE) -> Trace:
    """What the host left of a case; empty where it was not traced."""
    with np.load(file) as held:
        return {name.partition("/")[2]: held[name] for name in held.files if name.partition("/")[0] == case}


def write(traces: dict[str, Trace], file: Path = FILE) -> None:
    arrays: dict[str, Any] = {f"{case}/{name}": each for case, trace in traces.items() for name, each in trace.items()}
    np.savez_compressed(file, **arrays)
