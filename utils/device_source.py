"""CUDA sources: files of the project made into one text, with the constants of their Python twins, and who launches it.

A line `#include "utils/device_math.cuh"` is that file, once. A line `#include "envs_fast/cartpole.py"` is every number
of that module whose name is in capitals, as a `#define` that is exact (hexadecimal); a tuple SIN is SIN_0, SIN_1, ...
"""

import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from stride.utils.places import PROJECT, module_of

OPTIONS = (  # of whoever compiles for a GPU: a product and a sum are rounded twice, as on the CPU, unless fma() is said
    "-std=c++17", "-fmad=false", "-ftz=false", "-prec-div=true", "-prec-sqrt=true",
)  # fmt: skip
INCLUDE = re.compile(r'#include "([^"]+)"\s*')
CONSTANT = re.compile(r"[A-Z][A-Z0-9_]*")
NUMBERS = (int, float, np.integer, np.floating)

Number = int | float | np.integer | np.floating


class Source(NamedTuple):
    """A text that compiles as it is."""

    name: str  # what errors and the cache call it
    text: str  # includes are pasted in


class Kernels(Protocol):
    """The compiled kernels of a source."""

    def launch(
        self, kernel: str, threads: int, *arguments: Tensor | np.generic, block: int = 128, shared: int = 0
    ) -> None:
        """Start `kernel` for `threads` threads in blocks of `block`, without waiting.

        Tensors are handed over as addresses, NumPy scalars by value. `shared`: bytes of DYNAMIC_SHARED of a block, the
        same in every launch of a kernel.
        """


Compile = Callable[[Source, torch.device], Kernels]


def read_source(*files: Path) -> Source:
    """The files, one below the other, and all that they include."""
    pasted: set[str] = set()
    defined: dict[str, str] = {}
    lines = [line for file in files for line in _lines(file, _named(file), pasted, defined)]
    return Source("_".join(file.stem for file in files), "\n".join(lines) + "\n")


def with_sizes(source: Source, sizes: Mapping[str, Number | Sequence[int]]) -> Source:
    """The source compiled for these sizes, names in capitals that it reads as constants; of several a list, `1, 2`."""
    lists = {name: ", ".join(map(str, value)) for name, value in sizes.items() if isinstance(value, Sequence)}
    texts = {**defines({**sizes}), **lists}
    return source._replace(text="\n".join((*(f"#define {name} {text}" for name, text in texts.items()), source.text)))


def defines(constants: dict[str, object]) -> dict[str, str]:
    """Names in capitals that stand for numbers or for tuples of numbers, and how C++ writes these."""
    found: dict[str, str] = {}
    for name, value in constants.items():
        if CONSTANT.fullmatch(name) and isinstance(value, NUMBERS):
            found[name] = _literal(value)
        elif CONSTANT.fullmatch(name) and isinstance(value, tuple):
            found |= {f"{name}_{k}": _literal(each) for k, each in enumerate(value) if isinstance(each, NUMBERS)}
    return found


def _named(file: Path) -> str:
    return file.relative_to(PROJECT).as_posix() if file.is_relative_to(PROJECT) else file.name


def _lines(file: Path, name: str, pasted: set[str], defined: dict[str, str]) -> Iterator[str]:
    """The text of a file, with `#line` before each stretch, so that a compiler's messages name the file as it lies."""
    pasted.add(name)
    yield f'#line 1 "{name}"'
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if not (include := INCLUDE.fullmatch(line)):
            yield line
            continue
        wanted = include[1]
        if wanted.endswith(".py"):
            yield from _constants(wanted, defined)
        elif wanted not in pasted:
            yield from _lines(PROJECT / wanted, wanted, pasted, defined)
        yield f'#line {number + 1} "{name}"'


def _constants(path: str, defined: dict[str, str]) -> Iterator[str]:
    """The constants of a module, but for those that are defined; two meanings of a name are refused."""
    module = importlib.import_module(module_of(path))
    for name, value in defines(vars(module)).items():
        if name not in defined:
            yield f"#define {name} {value}"
        elif defined[name] != value:
            raise ValueError(f"{path}: {name} is {value} here and {defined[name]} in a module that was included before")
        defined[name] = value


def _literal(value: Number) -> str:
    """A C++ literal of exactly this number: float32 where the number is one."""
    if isinstance(value, int | np.integer):
        text = str(int(value))
    else:
        text = float(value).hex() + ("f" if isinstance(value, np.float32) else "")
    return f"({text})" if text.startswith("-") else text
