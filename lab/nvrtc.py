"""NVRTC through ctypes: compiles CUDA sources for GPUs that need not be there, without a driver and without CuPy."""

import ctypes
import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from stride.utils.cuda_kernels import OPTIONS, Source
from stride.utils.user_error import UserError

MISSING = "NVRTC is not installed: pip install nvidia-cuda-nvrtc"
USED = re.compile(
    r"entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
    r".*?Used (\d+) registers",
    re.DOTALL,
)


class Used(NamedTuple):
    """What one kernel takes of a GPU, for each thread."""

    kernel: str
    registers: int
    stack: int  # bytes
    spilled: int  # bytes stored and loaded because registers did not suffice


def library_file() -> Path | None:
    """The newest that pip has installed; None where it has none."""
    spec = importlib.util.find_spec("nvidia")
    folders = map(Path, spec.submodule_search_locations or ()) if spec else ()
    found = [file for folder in folders for file in folder.glob("*/lib/libnvrtc.so.*")]
    return max(found, key=lambda file: int(file.name.rpartition(".")[2]), default=None)


@cache
def library() -> ctypes.CDLL:
    """Loaded once."""
    file = library_file()
    if file is None:
        raise UserError(MISSING)
    return ctypes.CDLL(str(file))


def version() -> str:
    """As it says itself."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _demand(library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return f"{major.value}.{minor.value}"


def resources(source: Source, arch: str) -> list[Used]:
    """What the kernels of a source take, compiled for an architecture ("sm_90") as for a training."""
    log = _compile(source, [*OPTIONS, f"-arch={arch}", "--ptxas-options=-v"])
    found = [
        Used(kernel, int(registers), int(stack), int(stores) + int(loads))
        for kernel, stack, stores, loads, registers in USED.findall(log)
    ]
    if not found:
        raise RuntimeError(f"NVRTC {version()} does not say what {source.name} takes:\n{log}")
    return found


def _compile(source: Source, options: list[str]) -> str:
    """The compiler's log."""
    nvrtc, program = library(), ctypes.c_void_p()
    text, name = source.text.encode(), f"{source.name}.cu".encode()
    _demand(nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, name, 0, None, None))
    try:
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        failed = nvrtc.nvrtcCompileProgram(program, len(options), given)
        size = ctypes.c_size_t()
        _demand(nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
        log = ctypes.create_string_buffer(size.value)
        _demand(nvrtc.nvrtcGetProgramLog(program, log))
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    if failed:
        raise RuntimeError(f"NVRTC refuses {source.name}:\n{log.value.decode()}")
    return log.value.decode()


def _demand(code: int) -> None:
    if code:
        say = library().nvrtcGetErrorString
        say.restype = ctypes.c_char_p
        raise RuntimeError(f"NVRTC: {say(code).decode()}")
