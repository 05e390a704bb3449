"""Lets Numba kernels call the installed MuJoCo: functions by address, arrays at an address, and locks between threads.

All addresses come from MuJoCo's Python package: those of functions by their names in its library, those of a model, its
data and their arrays from the package's objects. Nothing here depends on the memory layout of MuJoCo's structs.
"""

import ctypes
from pathlib import Path
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.core.cpu import CPUContext
from numba.core.typing.context import BaseContext as Typing
from numba.core.typing.templates import Signature
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from stride.envs_fast.views import Emitted, view
from stride.utils.screen import import_mujoco
from stride.utils.user_error import UserError

FUNCTIONS = (  # (model, data), the last two (model, data, numbers, which of them)
    "mj_step",
    "mj_forward",
    "mj_resetData",
    "mj_rnePostConstraint",
    "mj_setState",
    "mj_getState",
)
STEP, FORWARD, RESET, FORCES, SET, GET = range(len(FUNCTIONS))  # their places in a table of addresses
NAMES = (
    "libmujoco.so.{version}",
    "libmujoco.{version}.dylib",
    "mujoco.dll",
)  # of the library, in the folder of the package
LONG, INT = ir.IntType(64), ir.IntType(32)
_intrinsic: Any = intrinsic  # its results are called with the arguments after the first, which types cannot say


def package() -> Any:
    """Import MuJoCo's Python package; ImportError if it is not installed."""
    return import_mujoco()


def function_addresses() -> list[int]:
    """Return the addresses of FUNCTIONS in the library that the package has loaded; UserError if one is missing."""
    folder = Path(str(package().__file__)).parent
    places = [folder / name.format(version=package().__version__) for name in NAMES]
    files = [path for path in places if path.exists()]
    if len(files) != 1:
        raise UserError(f"MuJoCo's package has {len(files)} libraries, not one")
    library = ctypes.CDLL(str(files[0]))
    absent = [name for name in FUNCTIONS if not hasattr(library, name)]
    if absent:
        raise UserError(f"MuJoCo's library has no {absent[0]}")
    return [ctypes.cast(library[name], ctypes.c_void_p).value or 0 for name in FUNCTIONS]


@_intrinsic
def call(typing_context: Typing, function: types.Type, model: types.Type, data: types.Type) -> Emitted:
    """Call function(model, data); all three are addresses."""

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        kind = ir.FunctionType(ir.VoidType(), [LONG, LONG])
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])
        return context.get_dummy_value()

    return Signature(types.none, (types.int64,) * 3, None), emit


@_intrinsic
def call_state(
    typing_context: Typing, function: types.Type, model: types.Type, data: types.Type, numbers: types.Array,
    which: types.Type,
) -> Emitted:  # fmt: skip
    """Call mj_setState or mj_getState: (function, model, data, numbers, which); `which` is a sum of mjtState flags."""

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        kind = ir.FunctionType(ir.VoidType(), [LONG, LONG, LONG, INT])
        memory = builder.ptrtoint(make_array(numbers)(context, builder, arguments[3]).data, LONG)
        handed = [*arguments[1:3], memory, builder.trunc(arguments[4], INT)]
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), handed)
        return context.get_dummy_value()

    longs = (types.int64,) * 3
    return Signature(types.none, (*longs, numbers, types.int64), None), emit


@_intrinsic
def memory(typing_context: Typing, address: types.Type, size: types.Type) -> Emitted:
    """Return the float64 numbers at an address as an array [size]."""
    numba_type = types.Array(types.float64, 1, "C")

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        data = builder.inttoptr(arguments[0], ir.DoubleType().as_pointer())
        return view(context, builder, numba_type, data, arguments[1])

    return Signature(numba_type, (types.int64, types.intp), None), emit


@_intrinsic
def claim(typing_context: Typing, lent: types.Array, i: types.Type) -> Emitted:
    """Set lent[i] from 0 to 1 atomically (a lock); return whether it was 0."""

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        place = builder.gep(make_array(lent)(context, builder, arguments[0]).data, [arguments[1]])
        swapped = builder.cmpxchg(place, ir.Constant(LONG, 0), ir.Constant(LONG, 1), "acquire", "monotonic")
        return builder.extract_value(swapped, 1)

    return Signature(types.boolean, (lent, types.intp), None), emit


@_intrinsic
def release(typing_context: Typing, lent: types.Array, i: types.Type) -> Emitted:
    """Set lent[i] to 0, which frees the lock; other threads then see everything that this thread wrote."""

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        place = builder.gep(make_array(lent)(context, builder, arguments[0]).data, [arguments[1]])
        builder.store_atomic(ir.Constant(LONG, 0), place, "release", 8)
        return context.get_dummy_value()

    return Signature(types.none, (lent, types.intp), None), emit
