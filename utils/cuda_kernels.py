"""CUDA sources on a GPU: compiled by NVRTC, launched by CuPy on torch's current stream and on torch's memory.

Nothing else imports CuPy, and this only where something is to be compiled. A launch allocates nothing and waits for
nothing, so that a graph of torch's can capture it. What is compiled lies in the user's folder of kernels, which nobody
else can write to, by a hash of all that it follows from.
"""

import hashlib
import os
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stride.utils.device_source import OPTIONS, Source
from stride.utils.kernel_folder import FOLDER, PRIVATE
from stride.utils.user_error import UserError

Compiled = Any  # cupy.RawKernel
SHARED = {  # KB of shared memory that a block may ask for, by compute capability (CUDA's programming guide)
    (7, 5): 64, (8, 0): 163, (8, 6): 99, (8, 7): 163, (8, 9): 99, (9, 0): 227, (10, 0): 227, (10, 3): 227, (12, 0): 99,
}  # fmt: skip
ANYWHERE = 48  # KB: what every GPU gives
STOOD_IN = (9, 0)  # the compute capability that a processor has which stands in for a GPU


class KernelError(RuntimeError):
    """NVRTC refuses a source, or CUDA a launch: named, with the reason they give."""


def capability(device: torch.device) -> tuple[int, int]:
    """Of a GPU, as in sm_90."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else STOOD_IN


def shared_of_block(device: torch.device) -> int:
    """Bytes of shared memory that a block may have."""
    return SHARED.get(capability(device), ANYWHERE) << 10


class CudaKernels:
    """The kernels of a source on one device; loaded by their first launch, which therefore is none to be captured."""

    def __init__(self, name: str, cubin: Path, device: torch.device) -> None:
        self._cupy = _cupy()
        self._module = self._cupy.RawModule(path=str(cubin))
        self._name, self._device = name, device
        self._kernels: dict[str, Compiled] = {}

    def launch(
        self, kernel: str, threads: int, *arguments: Tensor | np.generic, block: int = 128, shared: int = 0
    ) -> None:
        """Start `kernel` for `threads` threads in blocks of `block`, without waiting.

        Tensors are handed over as addresses, NumPy scalars by value. `shared`: bytes of DYNAMIC_SHARED of a block, the
        same in every launch of a kernel.
        """
        given = tuple(np.uintp(x.data_ptr()) if isinstance(x, Tensor) else x for x in arguments)
        cuda = self._cupy.cuda
        with torch.cuda.device(self._device), cuda.Stream.from_external(torch.cuda.current_stream()):
            try:
                if kernel not in self._kernels:
                    self._kernels[kernel] = self._module.get_function(kernel)
                    if shared:  # above 48 KB a kernel gets as much as it was promised
                        self._kernels[kernel].max_dynamic_shared_size_bytes = shared
                self._kernels[kernel]((-(-threads // block),), (block,), given, shared_mem=shared)
            except (cuda.driver.CUDADriverError, cuda.runtime.CUDARuntimeError) as error:
                raise KernelError(f"{self._name}: {kernel} cannot be launched on {self._device}: {error}") from error


@cache
def compile_cuda(source: Source, device: torch.device) -> CudaKernels:
    """The source for this device; the same object for the same source and device."""
    major, minor = capability(device)
    return CudaKernels(source.name, cubin_of(source, f"sm_{major}{minor}"), device)


def cubin_of(source: Source, architecture: str, folder: Path = FOLDER / "cuda") -> Path:
    """The file of the source's machine code for an architecture such as sm_90, compiled where there is none yet.

    Needs no GPU and no driver.
    """
    nvrtc = _cupy().cuda.nvrtc
    options = (*OPTIONS, f"-arch={architecture}")
    key = "\0".join((source.text, *options, str(nvrtc.getVersion())))
    path = folder / f"{source.name}-{architecture}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.cubin"
    if not path.exists():
        machine_code = _compile(nvrtc, source, options)
        folder.mkdir(PRIVATE, parents=True, exist_ok=True)
        made = path.with_name(f"{path.name}.tmp.{os.getpid()}")  # whole under its name, or not there
        made.write_bytes(machine_code)
        made.replace(path)
    return path


def _compile(nvrtc: ModuleType, source: Source, options: tuple[str, ...]) -> bytes:
    program = nvrtc.createProgram(source.text, f"{source.name}.cu", (), ())
    try:
        nvrtc.compileProgram(program, options)
        return bytes(nvrtc.getCUBIN(program))
    except nvrtc.NVRTCError as error:
        raise KernelError(f"NVRTC refuses {source.name}: {error}\n{nvrtc.getProgramLog(program)}") from error
    finally:
        nvrtc.destroyProgram(program)


def _cupy() -> Any:
    # it makes its own as it is imported, by default in a home that may be read-only
    os.environ.setdefault("CUPY_CACHE_DIR", str(FOLDER / "cupy"))
    try:
        import cupy
    except ModuleNotFoundError as error:
        raise UserError("device: cuda needs CuPy: pip install 'stride-rl[gpu]'") from error
    return cupy
