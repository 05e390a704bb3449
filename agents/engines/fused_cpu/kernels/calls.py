"""How kernels reach memory and one another: arrays at an address, calls by address, and a barrier between threads.

A piece (a kernel whose arguments are all int64) called by its address is compiled once, where a plain call would
compile it again into each caller: half of the compile time.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import FunctionType
from typing import Any, Protocol

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.cpu import CPUContext
from numba.core.typing.context import BaseContext as Typing
from numba.core.typing.templates import Signature
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from stride.utils.kernel_cache import njit
from stride.utils.kernel_folder import FEATURES

Emit = Callable[[CPUContext, ir.IRBuilder, Signature, list[ir.Value]], ir.Value]
Emitted = tuple[Signature, Emit]
PIECE: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": {"contract", "nsz", "arcp"}}
_intrinsic: Any = intrinsic  # its results are called with the arguments after the first, which types cannot say
_BYTES, _LONG = ir.IntType(8).as_pointer(), ir.IntType(64)
ROOM = 1 << 14  # bytes for what a kernel with other arguments than numbers is given by another thread
IMPATIENT = 4000  # turns of a waiting loop before the core is offered to somebody else
_yield = types.ExternalFunction("sched_yield", types.int32())


class Kernel(Protocol):
    """A function that Numba compiles."""

    py_func: FunctionType
    overloads: Mapping[tuple[types.Type, ...], Any]

    def compile(self, signature: tuple[types.Type, ...]) -> None: ...

    def __hash__(self) -> int: ...

    def __call__(self, *arguments: int) -> int | None: ...


@cache  # to be told that a kernel is compiled takes Numba 70 us
def address_of(kernel: Kernel, *signature: types.Type) -> int:
    """Where the machine code of a kernel lies; without a signature it is a piece. Compiles or loads it."""
    kinds = signature or (types.int64,) * kernel.py_func.__code__.co_argcount
    kernel.compile(kinds)
    result = kernel.overloads[kinds]
    return int(result.library.get_pointer_to_function(result.fndesc.llvm_func_name))


def _array_at(dtype: types.Type) -> Any:
    kind = types.Array(dtype, 1, "C")

    @_intrinsic
    def at(typing: Typing, address: types.Type, size: types.Type) -> Emitted:
        def emit(
            context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]
        ) -> ir.Value:
            array = make_array(kind)(context, builder)
            element = context.get_data_type(dtype)
            item = context.get_constant(types.intp, context.get_abi_sizeof(element))
            populate_array(
                array,
                data=builder.inttoptr(arguments[0], element.as_pointer()),
                shape=cgutils.pack_array(builder, [arguments[1]]),
                strides=cgutils.pack_array(builder, [item]),
                itemsize=item,
                meminfo=None,  # references are not counted: the memory is Python's and outlives the call
            )
            return array._getvalue()

        return Signature(kind, (types.int64, types.int64), None), emit

    return at


floats, doubles = _array_at(types.float32), _array_at(types.float64)  # (address, size) -> an array of that memory
longs, ints, flags = _array_at(types.int64), _array_at(types.int32), _array_at(types.uint8)


@_intrinsic
def step_of(typing: Typing, array: types.Array, t: types.Type) -> Emitted:
    """array[t : t + 1] of a contiguous array that outlives it: without counting references."""

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        source, result = make_array(array)(context, builder, arguments[0]), make_array(array)(context, builder)
        shape, strides = (cgutils.unpack_tuple(builder, x) for x in (source.shape, source.strides))
        bytes_ = builder.bitcast(source.data, _BYTES)
        start = builder.gep(bytes_, [builder.mul(arguments[1], strides[0])])
        populate_array(
            result,
            data=builder.bitcast(start, source.data.type),
            shape=cgutils.pack_array(builder, [context.get_constant(types.intp, 1), *shape[1:]]),
            strides=source.strides,
            itemsize=source.itemsize,
            meminfo=None,
        )
        return result._getvalue()

    return Signature(array, (array, types.int64), None), emit


@_intrinsic
def call(typing: Typing, address: types.Type, arguments: Sequence[types.Type]) -> Emitted:
    """Call the piece at `address` with a tuple of integers."""
    kinds = (types.int64,) * len(arguments)

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, values: list[ir.Value]) -> ir.Value:
        given = cgutils.unpack_tuple(builder, values[1], len(kinds))
        cast = [context.cast(builder, value, kind, types.int64) for value, kind in zip(given, arguments, strict=True)]
        _invoke(context, builder, values[0], kinds, cast)
        return context.get_dummy_value()

    return Signature(types.void, (types.int64, arguments), None), emit


@_intrinsic
def call_kernel(typing: Typing, address: types.Type, arguments: Sequence[types.Type]) -> Emitted:
    """Call the kernel at `address`, compiled for exactly the types of this tuple."""
    kinds = tuple(types.unliteral(kind) for kind in arguments)

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, values: list[ir.Value]) -> ir.Value:
        given = cgutils.unpack_tuple(builder, values[1], len(kinds))
        cast = [context.cast(builder, v, a, k) for v, a, k in zip(given, arguments, kinds, strict=True)]
        _invoke(context, builder, values[0], kinds, cast)
        return context.get_dummy_value()

    return Signature(types.void, (types.int64, arguments), None), emit


def _invoke(
    context: CPUContext, builder: ir.IRBuilder, address: ir.Value, kinds: tuple[types.Type, ...],
    arguments: list[ir.Value],
) -> None:  # fmt: skip
    convention = context.call_conv
    target = builder.inttoptr(address, convention.get_function_type(types.none, kinds).as_pointer())
    status, _ = convention.call_function(builder, target, types.none, kinds, arguments)
    with cgutils.if_unlikely(builder, status.is_error):
        convention.return_status_propagate(builder, status)


@_intrinsic
def put(typing: Typing, address: types.Type, value: types.Type) -> Emitted:
    """Write a value to that address, where there are ROOM bytes; its arrays are not counted and must outlive it."""

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        kind = context.get_data_type(value)
        if context.get_abi_sizeof(kind) > ROOM:
            raise ValueError(f"a value of type {value} takes more than {ROOM} bytes")
        pointer = builder.inttoptr(arguments[0], kind.as_pointer())
        context.pack_value(builder, value, _uncounted(context, builder, value, arguments[1]), pointer)
        return context.get_dummy_value()

    return Signature(types.void, (types.int64, value), None), emit


def _uncounted(context: CPUContext, builder: ir.IRBuilder, kind: types.Type, value: ir.Value) -> ir.Value:
    """The same arrays, in tuples too, without the counter of references that ends with a kernel's call."""
    if isinstance(kind, types.Array):
        array = make_array(kind)(context, builder, value)
        array.meminfo, array.parent = (cgutils.get_null_value(x.type) for x in (array.meminfo, array.parent))
        return array._getvalue()
    if isinstance(kind, types.BaseTuple):
        kinds: Any = kind  # iterable, which its type does not say
        parts = zip(kinds, cgutils.unpack_tuple(builder, value), strict=True)
        return context.make_tuple(builder, kind, [_uncounted(context, builder, *part) for part in parts])
    return value


@_intrinsic
def add_one(typing: Typing, address: types.Type) -> Emitted:
    """Add 1 to the counter there, atomically; what it was before."""

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        return builder.atomic_rmw("add", _counter(builder, arguments[0]), ir.Constant(_LONG, 1), "seq_cst")

    return Signature(types.int64, (types.int64,), None), emit


@_intrinsic
def exchange(typing: Typing, address: types.Type, value: types.Type) -> Emitted:
    """Put a value there, atomically, after everything written before; what was there."""

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        return builder.atomic_rmw("xchg", _counter(builder, arguments[0]), arguments[1], "seq_cst")

    return Signature(types.int64, (types.int64, types.int64), None), emit


@_intrinsic
def fetch(typing: Typing, address: types.Type) -> Emitted:
    """The counter there, as all threads see it."""

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        return builder.load_atomic(_counter(builder, arguments[0]), "seq_cst", 8)

    return Signature(types.int64, (types.int64,), None), emit


def _counter(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.inttoptr(address, _LONG.as_pointer())


@_intrinsic
def _pause(typing: Typing) -> Emitted:
    """Tell the core that this is a waiting loop, where it wants to know."""

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        if "sse2" in FEATURES:
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return Signature(types.void, (), None), emit


@njit(inline="always")
def wait_a_turn(turns: int) -> int:
    """One more turn of a waiting loop; every so many the core is offered to somebody else."""
    _pause()
    if turns % IMPATIENT == IMPATIENT - 1:
        _yield()
    return turns + 1


@njit(**PIECE)
def barrier(counter: int, threads: int) -> None:
    """Wait until all threads are here. The counter at that address counts arrivals for ever."""
    if threads == 1:
        return
    goal = (add_one(counter) // threads + 1) * threads
    turns = 0
    while fetch(counter) < goal:
        turns = wait_a_turn(turns)
