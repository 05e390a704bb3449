"""Tables that Python ("the host") fills and kernels read by name: counts, numbers, and addresses of arrays.

The kernels of world models use them in place of the frame. An example:

class Sums(AddressTable):
    rows = count()
    scale = number()
    x = address("N 16", HOST, "add_up")                # shape, writer, readers
    total = address("N", "add_up", HOST)

sums_at = view(Sums)                                   # in a kernel: table = sums_at(address); load(table.x, 0)
table = Sums({"N": 4}, rows=4, scale=0.5, x=tensor)    # on the host, which makes `total` here
table["total"]                                         # the tensor that the kernel has written
"""

import ctypes
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

import numba
import numpy as np
import torch
from llvmlite import ir  # type: ignore[import-untyped]
from torch import Tensor

from stride.agents.engines.fused_cpu.kernels.vectors import ADDRESS, compiled

HOST = "host"
Table = TypeVar("Table", bound="AddressTable")


class Entry(NamedTuple):
    """A declared entry of a table; `shape`, `users` and `zero` are those of an array."""

    kind: Any  # its type of ctypes
    shape: tuple[str, ...] = ()  # such as ("T", "B", "16"): sizes by their letters, or numbers
    users: tuple[str, ...] = ()  # first the writer, a kernel's name or HOST, then the readers
    zero: bool = False  # whether the array begins as zeros, to which kernels add


def count() -> int:
    """Declare an int64."""
    entry: Any = Entry(ctypes.c_int64)
    return entry  # typed as int, because a kernel reads an int from it


def number() -> float:
    """Declare a float32."""
    entry: Any = Entry(ctypes.c_float)
    return entry


def double() -> float:
    """Declare a float64."""
    entry: Any = Entry(ctypes.c_double)
    return entry


def address(shape: str, writer: str, *readers: str, zero: bool = False) -> int:
    """Declare the address of an array: its shape, such as "T B 16", and the kernels (or HOST) that write and read it.

    For the address of another table the shape is the name of that table's class.
    """
    entry: Any = Entry(ctypes.c_int64, tuple(shape.split()), (writer, *readers), zero)
    return entry


class AddressTable:
    """A subclass declares entries; an instance is one such table in memory, and keeps alive what it points to."""

    entries: ClassVar[dict[str, Entry]]
    layout: ClassVar[type[Any]]  # a ctypes structure whose fields are the entries
    dtype: ClassVar[np.dtype[Any]]  # the same layout for NumPy and Numba
    from_kernels: ClassVar[dict[str, Entry]]  # the arrays that kernels write, which `__init__` makes

    def __init_subclass__(cls) -> None:
        cls.entries = {name: entry for name, entry in vars(cls).items() if isinstance(entry, Entry)}
        cls.from_kernels = {name: entry for name, entry in cls.entries.items() if entry.users[:1] not in ((), (HOST,))}
        fields = [(name, entry.kind) for name, entry in cls.entries.items()]
        cls.layout = type(cls.__name__, (ctypes.Structure,), {"_fields_": fields})
        cls.dtype = np.dtype(cls.layout)

    def __init__(self, sizes: Mapping[str, int] | None = None, /, **values: "Value") -> None:
        """Make a table with these entries. Given `sizes`, by letter, also make the arrays that kernels write.

        An array in `values` is used as it is.
        """
        # a ctypes structure, because an update makes thirty tables and a NumPy record takes ten times as long
        self.values = self.layout()
        self.address = ctypes.addressof(self.values)
        self.tensors: dict[str, Tensor] = {}
        self._tables: dict[str, AddressTable] = {}
        self.fill(**values)
        if sizes:
            for name, entry in self.from_kernels.items():
                if name not in values:
                    shape = [int(size) if size.isdigit() else sizes[size] for size in entry.shape]
                    self.fill(**{name: torch.zeros(shape) if entry.zero else torch.empty(shape)})

    def fill(self, **values: "Value") -> None:
        """Set entries by name: to the number itself, or to the present address of the tensor or table."""
        for name, value in values.items():
            if isinstance(value, Tensor):
                self.tensors[name] = value
                value = value.data_ptr()
            elif isinstance(value, AddressTable):
                self._tables[name] = value
                value = value.address
            setattr(self.values, name, value)

    def __getitem__(self, name: str) -> Tensor:
        """Return the tensor of an entry."""
        return self.tensors[name]

    def check(self, kernel: str) -> None:
        """Raise RuntimeError where the address of an array is missing that declares `kernel` as a user."""
        for name, entry in self.entries.items():
            if kernel in entry.users and not getattr(self.values, name):
                raise RuntimeError(f"the table {type(self).__name__} has no {name}, which the kernel {kernel} uses")


Value = float | Tensor | AddressTable


def view(table: type[Table]) -> Callable[[int], Table]:
    """Return a function for kernels: address -> the table at it, whose entries are attributes."""
    kind = numba.from_dtype(table.dtype)

    @compiled(kind, ADDRESS)
    def table_at(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
        # Numba passes a record on as a pointer to its bytes
        return builder.inttoptr(address, ir.ArrayType(ir.IntType(8), table.dtype.itemsize).as_pointer())

    return table_at
