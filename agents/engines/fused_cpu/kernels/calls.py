"""What kernels use to reach memory and each other: arrays and structs at an address, calls by address, a barrier.

A "piece" is a kernel whose arguments are all int64, so that it can be called by its address. It is compiled once; an
ordinary call would compile it again into each caller, which takes twice as long in total. PIECE has its options.

An intrinsic is a function that writes LLVM code where a kernel calls it. Its first argument, `typing`, is Numba's; the
kernel passes the others.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import FunctionType
from typing import Any, Protocol, TypeVar

import numba
import numpy as np
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

Emit = Callable[[CPUContext, ir.IRBuilder, Signature, list[ir.Value]], ir.Value]  # writes the code of one call
Emitted = tuple[Signature, Emit]  # what an intrinsic returns
Struct = TypeVar("Struct", bound=ctypes.Structure)
PIECE: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": {"contract", "nsz", "arcp"}}
ARGUMENT_BYTES = 1 << 14  # memory for one tuple of arrays and numbers that all threads read as their arguments
YIELD_TURNS = 4000  # turns of a waiting loop after which it offers its core to another program
_intrinsic: Any = intrinsic  # its results are called with the arguments after the first, which types cannot say
_LONG = ir.IntType(64)
_yield = types.ExternalFunction("sched_yield", types.int32())


class CompiledKernel(Protocol):
    """A function that Numba compiles, decorated with `njit`."""

    py_func: FunctionType
    overloads: Mapping[tuple[types.Type, ...], Any]

    def compile(self, signature: tuple[types.Type, ...]) -> None: ...

    def __hash__(self) -> int: ...

    def __call__(self, *arguments: int) -> int | None: ...


KernelTable = Mapping[str, CompiledKernel]  # field of the frame -> kernel


@cache  # Numba takes 70 us to look a compiled kernel up
def address_of(kernel: CompiledKernel, *signature: types.Type) -> int:
    """Return the address of a kernel's machine code; compile it, or load it from the cache, where that is not yet done.

    `signature`: the types of its arguments; left out, all are int64.
    """
    argument_types = signature or (types.int64,) * kernel.py_func.__code__.co_argcount
    kernel.compile(argument_types)
    result = kernel.overloads[argument_types]
    return int(result.library.get_pointer_to_function(result.fndesc.llvm_func_name))


def _lowered(
    result: types.Type, arguments: Sequence[types.Type], emit: Callable[[ir.IRBuilder, list[ir.Value]], ir.Value]
) -> Emitted:
    """Return what an intrinsic returns, from its types and an `emit` that needs only the builder and the arguments."""
    return Signature(result, tuple(arguments), None), lambda context, builder, signature, values: emit(builder, values)


def struct_at(struct: type[Struct]) -> Callable[[int], Struct]:
    """Return an intrinsic: address -> the struct at it, whose fields are read and written in place."""
    record: Any = numba.from_dtype(np.dtype(struct))

    pointer = ir.ArrayType(ir.IntType(8), record.size).as_pointer()  # how Numba passes a record

    @_intrinsic
    def at(typing: Typing, address: types.Type) -> Emitted:
        return _lowered(record, (types.int64,), lambda builder, values: builder.inttoptr(values[0], pointer))

    return at


def _array_at(dtype: types.Type) -> Any:
    """Return an intrinsic: (address, size) -> the array [size] of this type that begins at the address."""
    array_type = types.Array(dtype, 1, "C")

    @_intrinsic
    def at(typing: Typing, address: types.Type, size: types.Type) -> Emitted:
        def emit(
            context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]
        ) -> ir.Value:
            array = make_array(array_type)(context, builder)
            element = context.get_data_type(dtype)
            item_size = context.get_constant(types.intp, context.get_abi_sizeof(element))
            populate_array(
                array,
                data=builder.inttoptr(arguments[0], element.as_pointer()),
                shape=cgutils.pack_array(builder, [arguments[1]]),
                strides=cgutils.pack_array(builder, [item_size]),
                itemsize=item_size,
                meminfo=None,  # references are not counted: the memory is Python's and outlives the call
            )
            return array._getvalue()

        return Signature(array_type, (types.int64, types.int64), None), emit

    return at


# floats(address, size) is a float32 array [size] of the memory at an address; the others have other element types
floats, doubles = _array_at(types.float32), _array_at(types.float64)
longs, ints, flags = _array_at(types.int64), _array_at(types.int32), _array_at(types.uint8)


@_intrinsic
def step_of(typing: Typing, array: types.Array, t: types.Type) -> Emitted:
    """Return array[t : t + 1] of a contiguous array. References are not counted: the array must outlive the result."""

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        source, result = make_array(array)(context, builder, arguments[0]), make_array(array)(context, builder)
        shape, strides = (cgutils.unpack_tuple(builder, x) for x in (source.shape, source.strides))
        data = builder.bitcast(source.data, ir.IntType(8).as_pointer())
        start = builder.gep(data, [builder.mul(arguments[1], strides[0])])
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


def _call_as(type_of: Callable[[types.Type], types.Type]) -> Any:
    """Return an intrinsic: call(address, arguments) calls the kernel at the address with a tuple of arguments.

    Each argument is first converted to the type type_of(its type). An error in the kernel is passed on.
    """

    @_intrinsic
    def call(typing: Typing, address: types.Type, arguments: Sequence[types.Type]) -> Emitted:
        target_types = tuple(type_of(argument) for argument in arguments)

        def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, values: list[ir.Value]) -> ir.Value:
            unpacked = cgutils.unpack_tuple(builder, values[1], len(target_types))
            converted = [
                context.cast(builder, value, *kinds)
                for value, *kinds in zip(unpacked, arguments, target_types, strict=True)
            ]
            convention = context.call_conv
            pointer_type = convention.get_function_type(types.none, target_types).as_pointer()
            target = builder.inttoptr(values[0], pointer_type)
            status, _ = convention.call_function(builder, target, types.none, target_types, converted)
            with cgutils.if_unlikely(builder, status.is_error):
                convention.return_status_propagate(builder, status)
            return context.get_dummy_value()

        return Signature(types.void, (types.int64, arguments), None), emit

    return call


call = _call_as(lambda _: types.int64)  # for a piece
call_kernel = _call_as(types.unliteral)  # for a kernel that was compiled for exactly these types


@_intrinsic
def put(typing: Typing, address: types.Type, value: types.Type) -> Emitted:
    """Write a value to that address, which has room for ARGUMENT_BYTES.

    References to its arrays are not counted: the caller must keep the arrays alive as long as the value is read.
    """

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        data_type = context.get_data_type(value)
        if context.get_abi_sizeof(data_type) > ARGUMENT_BYTES:
            raise ValueError(f"a value of type {value} takes more than {ARGUMENT_BYTES} bytes")
        pointer = builder.inttoptr(arguments[0], data_type.as_pointer())
        context.pack_value(builder, value, _uncounted(context, builder, value, arguments[1]), pointer)
        return context.get_dummy_value()

    return Signature(types.void, (types.int64, value), None), emit


def _uncounted(context: CPUContext, builder: ir.IRBuilder, kind: types.Type, value: ir.Value) -> ir.Value:
    """Return a value whose arrays, also those in tuples, have no reference counter, as that ends with the kernel."""
    if isinstance(kind, types.Array):
        array = make_array(kind)(context, builder, value)
        array.meminfo, array.parent = (cgutils.get_null_value(x.type) for x in (array.meminfo, array.parent))
        return array._getvalue()
    if isinstance(kind, types.BaseTuple):
        kinds: Any = kind  # Any: it can be iterated, which its type does not say
        items = zip(kinds, cgutils.unpack_tuple(builder, value), strict=True)
        return context.make_tuple(builder, kind, [_uncounted(context, builder, *item) for item in items])
    return value


@_intrinsic
def add_one(typing: Typing, address: types.Type) -> Emitted:
    """Add 1 to the int64 at this address, atomically; return the value before."""
    one = ir.Constant(_LONG, 1)
    return _lowered(types.int64, (types.int64,), lambda builder, values: builder.atomic_rmw(
        "add", _counter(builder, values[0]), one, "seq_cst"))  # fmt: skip


@_intrinsic
def exchange(typing: Typing, address: types.Type, value: types.Type) -> Emitted:
    """Store an int64 at this address, atomically and after all earlier writes; return the value before."""
    return _lowered(types.int64, (types.int64, types.int64), lambda builder, values: builder.atomic_rmw(
        "xchg", _counter(builder, values[0]), values[1], "seq_cst"))  # fmt: skip


@_intrinsic
def fetch(typing: Typing, address: types.Type) -> Emitted:
    """Return the int64 at this address as all threads see it."""
    return _lowered(types.int64, (types.int64,), lambda builder, values: builder.load_atomic(
        _counter(builder, values[0]), "seq_cst", 8))  # fmt: skip


def _counter(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.inttoptr(address, _LONG.as_pointer())


@_intrinsic
def _pause(typing: Typing) -> Emitted:
    """Tell an x86 core that this is a waiting loop, so that it uses less power."""

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        if "sse2" in FEATURES:
            function = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, function, "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return Signature(types.void, (), None), emit


@njit(inline="always")
def wait_a_turn(turns: int) -> int:
    """Wait for one turn of a waiting loop; return how many turns there were.

    Every YIELD_TURNS turns the core is offered to another program.
    """
    _pause()
    if turns % YIELD_TURNS == YIELD_TURNS - 1:
        _yield()
    return turns + 1


@njit(**PIECE)
def barrier(counter: int, threads: int) -> None:
    """Wait until all `threads` threads have called this. The int64 at `counter` counts arrivals and is not reset here.

    With 3 threads, arrivals 0 to 2 wait for a count of 3, arrivals 3 to 5 for 6.
    """
    if threads == 1:
        return
    goal = (add_one(counter) // threads + 1) * threads
    turns = 0
    while fetch(counter) < goal:
        turns = wait_a_turn(turns)
