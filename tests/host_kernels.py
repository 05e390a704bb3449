"""CUDA sources on the CPU: the same text, compiled by g++ with tests/on_host.h; `Kernels` of utils/cuda_kernels.py.

A launch checks what a GPU would not: that a kernel takes arguments of these types. What is compiled is stored in the
user's folder of kernels, named by a hash of sources, compiler and its version, flags and processor.
"""

import ctypes
import hashlib
import os
import platform
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from stride.utils.cuda_kernels import Source
from stride.utils.kernel_folder import NAME, PRIVATE, ROOT

HEADER = Path(__file__).with_name("on_host.h")
FLAGS = ["-std=c++17", "-O2", "-ffp-contract=off", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique", "-Wall"]
FLAGS += ["-U_FORTIFY_SOURCE"]  # which takes a jump to another stack for a mistake
FLAGS += ["-Wno-unknown-pragmas", "-fno-tree-vectorize"]  # g++ 12 loses (double)(float)x where it makes vectors of it
FLAGS += ["-mfma"] if platform.machine() == "x86_64" else []  # else fma() is a call
LINK = ["-shared", "-Wl,-Bsymbolic"]  # glibc has functions named `step` and `advance`
KERNEL = re.compile(r'extern "C" __attribute__\(\(used\)\) void\s+(\w+)\s*\(')
BARRIER = re.compile(r"__syncthreads|_sync\(|__syncwarp")
ENDS = (  # as on_host.h counts them
    "", "has threads that wait for each other at different barriers", "writes beyond the shared memory it was given",
)  # fmt: skip


class HostKernels:
    """The kernels of a source; `order` is that of blocks and threads: 0 forwards, 1 backwards, else shuffled by it."""

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        self.library, self.name, self.order = library, name, 0

    def launch(
        self, kernel: str, threads: int, *arguments: Tensor | np.generic, block: int = 128, shared: int = 0
    ) -> None:
        """Run `threads` threads, the last block's others too, and return when all have ended."""
        words = getattr(self.library, f"words_{kernel}")
        words.restype = ctypes.c_char_p
        takes, given = words().decode().split(), [_word(argument) for argument in arguments]
        if len(takes) != len(given) or not all(map(_fits, takes, given)):
            raise TypeError(f"{self.name}: {kernel} takes {' '.join(takes)}, got {' '.join(given)}")
        cells = [_cell(argument) for argument in arguments]
        addresses = (ctypes.c_void_p * len(cells))(*(cell.ctypes.data for cell in cells))
        start = getattr(self.library, f"launch_{kernel}")
        if end := start(-(-threads // block), block, shared, self.order, addresses):
            raise RuntimeError(f"{self.name}: {kernel} {ENDS[end]}")


def compile_host(source: Source, device: torch.device) -> HostKernels:
    """The source for this processor; skips the test where there is no compiler."""
    if device.type != "cpu":
        raise ValueError(f"{source.name}: kernels of the host work on tensors of the CPU, not of {device}")
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    own = [HEADER.read_text(), Path(__file__).read_text(), source.text]
    key = "\0".join([compiler, _version(compiler), *FLAGS, *LINK, platform.machine(), NAME, *own])
    (folder := ROOT / "host").mkdir(PRIVATE, parents=True, exist_ok=True)
    library = folder / f"{source.name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.so"
    if not library.exists():
        _build(compiler, source, library)
    return HostKernels(ctypes.CDLL(str(library)), source.name)


@cache
def _version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout


def _build(compiler: str, source: Source, library: Path) -> None:
    """In two steps: kernels are found in the preprocessed text, since macros make some."""
    included = _run([compiler, *FLAGS, "-E", "-include", str(HEADER), "-x", "c++", "-"], source, source.text)
    barriers = "true" if BARRIER.search(source.text) else "false"
    entries = [f"ON_HOST({name}, {barriers})\n" for name in KERNEL.findall(included)]
    made = library.with_name(f"{library.name}.{os.getpid()}")
    text = source.text + "".join(entries)
    _run([compiler, *FLAGS, *LINK, "-include", str(HEADER), "-x", "c++", "-", "-o", str(made)], source, text)
    made.replace(library)


def _run(command: list[str], source: Source, text: str) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"g++ refuses {source.name}:\n{done.stderr}")
    return done.stdout


def _word(argument: Tensor | np.generic) -> str:
    """The type of an argument, as on_host.h names those that a kernel takes."""
    if isinstance(argument, np.generic):
        return argument.dtype.str[1:]
    if argument.device.type != "cpu" or not argument.is_contiguous():
        raise ValueError(f"a kernel takes contiguous tensors of its device, got {argument.device} {argument.stride()}")
    kind = "u1" if argument.dtype == torch.bool else torch.empty(0, dtype=argument.dtype).numpy().dtype.str[1:]
    return f"*{kind}"


def _fits(takes: str, given: str) -> bool:
    return takes == given or (takes == "*" and given.startswith("*"))


def _cell(argument: Tensor | np.generic) -> np.ndarray:
    """The memory that holds an argument."""
    return np.array(argument.data_ptr() if isinstance(argument, Tensor) else argument)
