"""Compiles CUDA sources with NVRTC and launches their kernels with CuPy, on torch's current stream and torch's memory.

A source is one text with all includes pasted in. `#include "utils/device_math.cuh"` is that file, once.
`#include "envs_fast/cartpole.py"` becomes one `#define` for each number of that module whose name is in capitals, exact
because it is hexadecimal; a tuple SIN becomes SIN_0, SIN_1, ...

Only this module imports CuPy, and only when something must be compiled. A launch allocates nothing and does not wait,
so that a CUDA graph can capture it. Machine code is stored in the user's kernel folder (kernel_folder.py) under a hash
of the source, the options and the version of NVRTC.
"""

import hashlib
import importlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from stride.utils.kernel_folder import FOLDER, PRIVATE
from stride.utils.places import PROJECT, module_of
from stride.utils.user_error import UserError

OPTIONS = (  # of NVRTC: a * b + c is rounded twice, as on the CPU, unless the source calls fma()
    "-std=c++17", "-fmad=false", "-ftz=false", "-prec-div=true", "-prec-sqrt=true",
)  # fmt: skip
INCLUDE = re.compile(r'#include "([^"]+)"\s*')
CONSTANT = re.compile(r"[A-Z][A-Z0-9_]*")
NUMBERS = (int, float, np.integer, np.floating)

Number = int | float | np.integer | np.floating
Compiled = Any  # cupy.RawKernel
MAX_SHARED_KB = {  # shared memory that a block may ask for, by compute capability (CUDA's programming guide)
    (7, 5): 64, (8, 0): 163, (8, 6): 99, (8, 7): 163, (8, 9): 99, (9, 0): 227, (10, 0): 227, (10, 3): 227, (12, 0): 99,
}  # fmt: skip
MIN_SHARED_KB = 48  # what every GPU gives
HOST_CAPABILITY = (9, 0)  # compute capability of a CPU that stands in for a GPU in tests


class Source(NamedTuple):
    """The complete text of a CUDA source."""

    name: str  # for error messages and file names of the cache
    text: str  # with all includes pasted in


class DeviceKernels(Protocol):
    """The compiled kernels of a source: CudaKernels, or a replacement on the CPU in tests."""

    def launch(
        self, kernel: str, threads: int, *arguments: Tensor | np.generic, block: int = 128, shared: int = 0
    ) -> None:
        """Start `kernel` for `threads` threads in blocks of `block`, without waiting.

        Tensors are passed as addresses, NumPy scalars by value. `shared`: bytes of dynamic shared memory for a block,
        the same in every launch of a kernel.
        """


Compile = Callable[[Source, torch.device], DeviceKernels]


def read_source(*files: Path) -> Source:
    """Join files to one source, with everything that they include."""
    pasted: set[str] = set()
    defined: dict[str, str] = {}
    lines = [line for file in files for line in _lines(file, _named(file), pasted, defined)]
    return Source("_".join(file.stem for file in files), "\n".join(lines) + "\n")


def with_sizes(source: Source, sizes: Mapping[str, Number | Sequence[int]]) -> Source:
    """Return the source with `#define NAME value` in front for each of `sizes`; a sequence becomes `1, 2`."""
    texts = defines({**sizes})
    for name, value in sizes.items():
        if isinstance(value, Sequence):
            texts[name] = ", ".join(map(str, value))
    lines = [f"#define {name} {text}" for name, text in texts.items()]
    return source._replace(text="\n".join([*lines, source.text]))


def defines(constants: dict[str, object]) -> dict[str, str]:
    """Return the C++ literals of all constants (names in capitals) that are numbers or tuples of numbers.

    {"DT": 0.02, "SIN": (1, 2)} becomes {"DT": "0x1.47ae147ae147bp-6", "SIN_0": "1", "SIN_1": "2"}.
    """
    literals: dict[str, str] = {}
    for name, value in constants.items():
        if not CONSTANT.fullmatch(name):
            continue
        if isinstance(value, NUMBERS):
            literals[name] = _literal(value)
        elif isinstance(value, tuple):
            literals |= {f"{name}_{k}": _literal(item) for k, item in enumerate(value) if isinstance(item, NUMBERS)}
    return literals


def _named(file: Path) -> str:
    return file.relative_to(PROJECT).as_posix() if file.is_relative_to(PROJECT) else file.name


def _lines(file: Path, name: str, pasted: set[str], defined: dict[str, str]) -> Iterator[str]:
    """Yield the lines of a file with its includes, and `#line` where the file changes, for the compiler's messages.

    `pasted`: files that are already in the text; `defined`: constants that are already defined. Both are updated.
    """
    pasted.add(name)
    yield f'#line 1 "{name}"'
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if not (include := INCLUDE.fullmatch(line)):
            yield line
            continue
        included = include[1]
        if included.endswith(".py"):
            yield from _constants(included, defined)
        elif included not in pasted:
            yield from _lines(PROJECT / included, included, pasted, defined)
        yield f'#line {number + 1} "{name}"'


def _constants(path: str, defined: dict[str, str]) -> Iterator[str]:
    """Yield `#define` lines for the constants of a module that are not defined yet; ValueError if a value differs."""
    module = importlib.import_module(module_of(path))
    for name, value in defines(vars(module)).items():
        if name not in defined:
            yield f"#define {name} {value}"
        elif defined[name] != value:
            raise ValueError(f"{path}: {name} is {value} here, but {defined[name]} in a module included before")
        defined[name] = value


def _literal(value: Number) -> str:
    """Return the C++ literal of exactly this number; one of float32 if the number is np.float32."""
    if isinstance(value, int | np.integer):
        text = str(int(value))
    else:
        text = float(value).hex() + ("f" if isinstance(value, np.float32) else "")
    return f"({text})" if text.startswith("-") else text


class KernelError(RuntimeError):
    """NVRTC cannot compile a source, or CUDA cannot launch a kernel; the message has their reason."""


def capability(device: torch.device) -> tuple[int, int]:
    """Return the compute capability of a GPU, such as (9, 0) for sm_90."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else HOST_CAPABILITY


def shared_of_block(device: torch.device) -> int:
    """Return the bytes of shared memory that a block may have."""
    return MAX_SHARED_KB.get(capability(device), MIN_SHARED_KB) << 10


class CudaKernels:
    """The kernels of a source on one device. The first launch loads a kernel: a CUDA graph must not capture it."""

    def __init__(self, name: str, cubin: Path, device: torch.device) -> None:
        self._cupy = _cupy()
        self._module = self._cupy.RawModule(path=str(cubin))
        self._name, self._device = name, device
        self._kernels: dict[str, Compiled] = {}

    def launch(
        self, kernel: str, threads: int, *arguments: Tensor | np.generic, block: int = 128, shared: int = 0
    ) -> None:
        """See DeviceKernels."""
        values = tuple(np.uintp(x.data_ptr()) if isinstance(x, Tensor) else x for x in arguments)
        cuda = self._cupy.cuda
        with torch.cuda.device(self._device), cuda.Stream.from_external(torch.cuda.current_stream()):
            try:
                if kernel not in self._kernels:
                    self._kernels[kernel] = self._module.get_function(kernel)
                    if shared:  # CUDA gives a kernel more than 48 KB only if this limit was raised before
                        self._kernels[kernel].max_dynamic_shared_size_bytes = shared
                self._kernels[kernel]((-(-threads // block),), (block,), values, shared_mem=shared)
            except (cuda.driver.CUDADriverError, cuda.runtime.CUDARuntimeError) as error:
                raise KernelError(f"{self._name}: {kernel} cannot be launched on {self._device}: {error}") from error


@cache
def compile_cuda(source: Source, device: torch.device) -> CudaKernels:
    """Compile a source for a device; the same source and device give the same object."""
    major, minor = capability(device)
    return CudaKernels(source.name, cubin_of(source, f"sm_{major}{minor}"), device)


def cubin_of(source: Source, architecture: str, folder: Path = FOLDER / "cuda") -> Path:
    """Return the file with the machine code of a source for an architecture such as sm_90; compile it if it is missing.

    Needs no GPU and no driver.
    """
    nvrtc = _cupy().cuda.nvrtc
    options = (*OPTIONS, f"-arch={architecture}")
    key = "\0".join((source.text, *options, str(nvrtc.getVersion())))
    path = folder / f"{source.name}-{architecture}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.cubin"
    if not path.exists():
        machine_code = _compile(nvrtc, source, options)
        folder.mkdir(PRIVATE, parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.tmp.{os.getpid()}")  # no reader sees half a file
        temporary.write_bytes(machine_code)
        temporary.replace(path)
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
    # CuPy makes a folder when it is imported, by default in the home folder, which may be read-only
    os.environ.setdefault("CUPY_CACHE_DIR", str(FOLDER / "cupy"))
    try:
        import cupy
    except ModuleNotFoundError as error:
        raise UserError("device: cuda needs CuPy: pip install 'stride-rl[gpu]'") from error
    return cupy
