"""Numba intrinsics for kernels: views of arrays without reference counting, arrays on the stack, tuples in arrays.

A slice of an array in Numba counts references, which costs time and stops vector code; these views do not. Loops over
a tuple's numbers are unrolled, because a loop at run time would have to choose the element at each turn.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.core.cpu import CPUContext
from numba.core.typing.context import BaseContext as Typing
from numba.core.typing.templates import Signature
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from stride.envs_fast.world import TILE

Emit = Callable[[CPUContext, ir.IRBuilder, Signature, list[ir.Value]], ir.Value]
Emitted = tuple[
    Signature, Emit
]  # what an intrinsic's function returns: its types, and a function that writes LLVM code
_intrinsic: Any = (
    intrinsic  # as Any: an intrinsic is called without its first argument, which type checkers cannot know
)


def view(
    context: CPUContext, builder: ir.IRBuilder, numba_type: types.Array, data: ir.Value, size: ir.Value
) -> ir.Value:
    """Make a contiguous 1-D array [size] at the address `data`; the memory must live longer than the array."""
    result = make_array(numba_type)(context, builder)
    item = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(numba_type.dtype)))
    shape, strides = (cgutils.pack_array(builder, [value]) for value in (size, item))
    populate_array(result, data=data, shape=shape, strides=strides, itemsize=item, meminfo=None)
    return result._getvalue()


@_intrinsic
def window(typing_context: Typing, array: types.Array, start: types.Type, size: types.Type) -> Emitted:
    """Return array[start : start + size] of a contiguous 1-D array."""

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        data = make_array(array)(context, builder, arguments[0]).data
        return view(context, builder, array, builder.gep(data, [arguments[1]]), arguments[2])

    return Signature(array, (array, types.intp, types.intp), None), emit


@_intrinsic(prefer_literal=True)
def columns(
    typing_context: Typing, array: types.Array, start: types.Type, size: types.Type, rows: types.Literal
) -> Emitted:
    """Return array[:, start : start + size] of a contiguous 2-D array as a tuple of `rows` (a literal) 1-D arrays."""
    numba_type = types.Array(array.dtype, 1, "C")
    signature = Signature(types.Tuple([numba_type] * rows.literal_value), (array, types.intp, types.intp, rows), None)

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        source = make_array(array)(context, builder, arguments[0])
        views = []
        pitch = builder.extract_value(source.shape, 1)
        position = arguments[1]
        for _ in range(rows.literal_value):
            views.append(view(context, builder, numba_type, builder.gep(source.data, [position]), arguments[2]))
            position = builder.add(position, pitch)
        return context.make_tuple(builder, signature.return_type, views)

    return signature, emit


@_intrinsic
def spread(
    typing_context: Typing, values: Sequence[types.Type], array: types.Array, start: types.Type, pitch: types.Type
) -> Emitted:
    """Do array[start + k * pitch] = values[k] for every k of a tuple."""

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        target = make_array(array)(context, builder, arguments[1]).data
        position = arguments[2]
        for numba_type, value in zip(values, cgutils.unpack_tuple(builder, arguments[0]), strict=True):
            builder.store(context.cast(builder, value, numba_type, array.dtype), builder.gep(target, [position]))
            position = builder.add(position, arguments[3])
        return context.get_dummy_value()

    return Signature(types.none, (values, array, types.intp, types.intp), None), emit


@_intrinsic(prefer_literal=True)
def gather(
    typing_context: Typing, array: types.Array, start: types.Type, pitch: types.Type, count: types.Literal
) -> Emitted:
    """Return the tuple (array[start], array[start + pitch], ...) of `count` (a literal) numbers."""
    numba_type = types.Tuple([array.dtype] * count.literal_value)

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        source = make_array(array)(context, builder, arguments[0]).data
        position = arguments[1]
        values = []
        for _ in range(count.literal_value):
            values.append(builder.load(builder.gep(source, [position])))
            position = builder.add(position, arguments[2])
        return context.make_tuple(builder, numba_type, values)

    return Signature(numba_type, (array, types.intp, types.intp, count), None), emit


@_intrinsic
def flat(typing_context: Typing, array: types.Array) -> Emitted:
    """Return array.reshape(-1) of a contiguous array with any number of dimensions."""
    numba_type = types.Array(array.dtype, 1, "C", readonly=not array.mutable)

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        source = make_array(array)(context, builder, arguments[0])
        return view(context, builder, numba_type, source.data, source.nitems)

    return Signature(numba_type, (array,), None), emit


@_intrinsic
def take(typing_context: Typing, arrays: Sequence[types.Array], i: types.Type) -> Emitted:
    """Return (arrays[0][i], arrays[1][i], ...) of a tuple of contiguous 1-D arrays."""
    numba_type = types.Tuple([array.dtype for array in arrays])

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        values = []
        for array, value in zip(arrays, cgutils.unpack_tuple(builder, arguments[0]), strict=True):
            data = make_array(array)(context, builder, value).data
            values.append(builder.load(builder.gep(data, [arguments[1]])))
        return context.make_tuple(builder, numba_type, values)

    return Signature(numba_type, (arrays, types.intp), None), emit


@_intrinsic
def put(typing_context: Typing, values: Sequence[types.Type], arrays: Sequence[types.Array], i: types.Type) -> Emitted:
    """Do arrays[k][i] = values[k] for every k of two tuples."""

    def emit(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]) -> ir.Value:
        given, targets = (cgutils.unpack_tuple(builder, argument) for argument in arguments[:2])
        for numba_type, value, array, target in zip(values, given, arrays, targets, strict=True):
            data = make_array(array)(context, builder, target).data
            builder.store(context.cast(builder, value, numba_type, array.dtype), builder.gep(data, [arguments[2]]))
        return context.get_dummy_value()

    return Signature(types.none, (values, arrays, types.intp), None), emit


def _stack_array(element: types.Type, spare: int) -> Any:
    """Return an intrinsic that makes an array on the stack, with `spare` more elements at its end."""

    @_intrinsic(prefer_literal=True)
    def make(typing_context: Typing, rows: types.Literal, more: types.Literal) -> Emitted:
        numba_type = types.Array(element, 1, "C")
        size = (rows.literal_value + more.literal_value) * TILE + spare

        def emit(
            context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]
        ) -> ir.Value:
            memory = cgutils.alloca_once(builder, ir.ArrayType(context.get_data_type(element), size))
            memory.align = 64  # bytes of a cache line: no vector of 64 bytes spans two lines
            data = builder.bitcast(memory, context.get_data_type(element).as_pointer())
            return view(context, builder, numba_type, data, context.get_constant(types.intp, size))

        return Signature(numba_type, (rows, more), None), emit

    return make


# Called as scratch(rows, more): an array of (rows + more) * TILE numbers on the stack, not initialised. To allocate it
# on the heap would take as long as a step of 16 worlds.
scratch = _stack_array(types.float64, 0)
scratch_list = _stack_array(types.uint32, 8)
