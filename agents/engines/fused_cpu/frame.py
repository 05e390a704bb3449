"""The frame: one struct of numbers and addresses that every kernel is handed. bind.py fills it, once for each agent.

A field holds a number (`worlds`), the address of memory (`obs`) or the address of a compiled kernel (`forward`). Python
writes it by name, and a kernel reads it by the same name:

    frame.fill(worlds=8, reward=table.reward, forward=nets.forward)   # a number, a tensor's address, a kernel's address
    nets_kernel(frame.address)                                       # every kernel takes that address, an int64

    @njit(**PIECE)
    def nets_kernel(frame: int) -> None:
        f = fields_at(frame)
        reward = floats(f.reward, f.steps * f.worlds)                # an array of the tensor's own memory
        call(f.forward, (frame, 0, ...))

The struct is called `f` in every kernel: `Frame.check` looks for that name to know which fields a kernel reads.

Letters: T steps, N worlds, R = T * N rows, S slots, K features, A actions, P floats of the flat parameters that are
learnt, B samples of a minibatch, D transitions drawn. Memory is float32 where nothing else is said.
"""

import ctypes
import dis
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from types import FunctionType
from typing import Any, cast

import numpy as np
from numba.core.dispatcher import Dispatcher
from torch import Tensor

from stride.agents.engines.fused_cpu.kernels.calls import CompiledKernel, address_of, struct_at
from stride.agents.engines.plan.layout import LANES, ConvRow, LayerRow, Segment, TensorRow
from stride.agents.engines.plan.numbers import Live, MomentSums, Stat, names_of, struct
from stride.utils.kernel_cache import njit

TILE = 64  # samples that pass through the nets together: their activations stay in the innermost cache


@struct
class FrameFields(ctypes.Structure):
    """Numbers, then addresses of memory with its shape `[..]`, then addresses of kernels."""

    # counts and switches
    threads: int  # of the current iteration
    steps: int  # T
    worlds: int  # N
    slots: int  # S
    features: int  # K
    row: int  # floats of a sample's row of inputs: K, or K + A where a net reads actions too
    obs_width: int  # floats of one observation; 0 where it is an index
    actions: int  # A
    nets: int  # 2 apart, 1 with a shared trunk or without a critic; with a replay memory: targets among them
    layers: int  # hidden layers of every net
    cells: int  # of these, the last ones, layers of minGRU
    together: int  # rows of a minibatch that no thread shares with another: a tile, or a sequence
    convs: int  # convolutions before the first of them in each net, where pictures are read
    patches: int  # offset in a tile's activations, in floats per sample: what filters see of one sample
    bordered: int  # likewise: slopes of one sample with zeros around them
    raw: int  # likewise, from an activation on: what its layer norm reads
    highest: int  # of the bytes of a picture, what becomes 1; 0 where pictures are float32
    planar: int  # pictures are stored channel after channel
    value_net: int  # which net estimates values, -1 for none
    value_row: int  # and which of its outputs is the value
    gaussian: int
    reinforce: int
    whole_episode: int  # mc:episode
    normalize: int  # weights of an action: 0 off, 1 per minibatch, 2 per rollout
    masked: int
    epochs: int
    minibatch: int  # B
    parts: int  # partial gradients, summed in a fixed order whatever the number of threads
    size: int  # P
    segments: int
    tensors: int  # rows of the tensor table
    decoupled: int  # AdamW
    rectified: int  # RAdam
    has_log_prob: int  # the rollout already wrote it
    begin: int  # of the steps or updates of one call
    end: int
    draw: int  # floats of a draw
    double: int  # double_q
    dueling: int
    learnt_alpha: int
    log_alpha: int  # offset in the parameters
    log_std: int  # offset in the parameters
    follows: int  # floats from a parameter of part 1 to that of its target
    moving: int  # nets that change with each update, the first ones
    critics: int  # nets of them beside each other, behind the actor
    quantiles: int  # of each of them, where they learn quantiles
    kept: int  # of all critics' quantiles together, those that are targets
    actor_every: int  # updates per update of a delayed actor and of all targets; 0 where nothing is delayed
    span: int  # rows of an n-step transition
    drawn: int  # D
    own_gamma: int  # whether each row of the replay memory has a gamma of its own
    report_every: int  # updates between two that are reported
    norm: int  # kernels of layer norms; 0 where a net has none
    norm_back: int
    remember: int  # kernel of nets with a memory, likewise

    # memory of the agent, its collector and its replay memory
    obs: int  # [R, ...] float32 or int64
    next_obs: int  # [N, ...]
    final_obs: int  # [S * N, ...]
    mask: int  # [R, A] uint8
    action: int  # [R] int64 or [R, A] float32
    reward: int  # [R], scaled; or [D], of n steps
    terminated: int  # [R] uint8
    truncated: int  # [R] uint8
    is_first: int  # [R] uint8
    slot: int  # [R] int64
    ring_reward: int  # [R], the replay memory's
    poisoned: int  # [] uint8: what was collected is not finite
    uniforms: int  # [3, D]
    noise: int  # [updates, 2, B, A] standard normal; TD3's [updates, B, A]
    powers: int  # [span + 1] of gamma
    gammas: int  # [rows of the ring], of the iteration that collected each
    draws: int  # [T, N, draw] of the steps that are played
    tensor_table: int  # [tensors] TensorRow

    # memory of the engine: what the actor and critic make of the rollout
    log_prob: int  # [R]
    value: int  # [R + N]
    final_value: int  # [S * N]
    weight: int  # [R] advantage, or return
    target: int  # [R]; for updates in units of the critic
    counted: int  # [R]: 1 where the return is complete
    units: int  # [2]: a critic says (value - first) / second
    order: int  # [epochs, R] int32
    spare: int  # [threads, 3 * R] int32
    moments: int  # [parts] MomentSums
    weighings: int  # [updates, 3] float64, of a shard: mean, 1 / deviation, 1 / rows of `weight` in each minibatch
    totals: int  # [SUMS] float64, of a shard: sums of the present minibatch
    key: int  # [5] int64: the counters of the key that orders rows
    carry: int  # [nets, cells, 2 * N, width]: states before a rollout, or as it is played; then N to work with
    sequences: int  # [R] int32: the rows, world after world
    past: int  # [threads, tiles, TILE, hidden]: activations of complete sequences

    # memory of the engine: transitions drawn from a replay memory
    place: int  # [D] int32 row of the observation
    following: int  # [D] int32 row of the one that followed; below 0 the complement of a final one's
    discount: int  # [D]

    # memory of the engine: parameters and what belongs to them
    centre: int  # [K] of the normalisation
    scale: int  # [K]
    net_table: int  # [nets, layers + 1] LayerRow
    conv_table: int  # [nets, convs] ConvRow
    segment_table: int  # [segments] Segment
    parameters: int  # [P], then those of targets
    turned: int  # transposes of the hidden layers
    first_moment: int  # [P]
    second_moment: int  # [P]
    gradient: int  # [P]
    partial: int  # [parts, P]
    squares: int  # [segments] float64
    sums: int  # [parts, SUMS, TILE]
    scratch: int  # [threads] Scratch
    barrier: int  # [] int64: arrivals of threads
    live: int  # [] Live
    stats: int  # [] Stat

    # kernels that others call by their address
    forward_layer: int
    forward_cell: int
    backward_layer: int
    accumulate: int
    forward: int
    backward: int
    to_inputs: int
    encode: int
    turn: int
    convolve: int
    convolve_back: int
    log_softmax: int
    log_probs: int
    sample: int
    actor_loss: int
    critic_loss: int
    gradient_part: int
    values: int
    all_log_probs: int
    weigh: int  # advantages, or returns
    moment_sums: int
    shuffle: int
    judge: int
    update: int
    learn: int
    shard_gradient: int
    shard_step: int


@struct
class Scratch(ctypes.Structure):
    """Addresses of a thread's scratch: the intermediate results of a tile of samples on its way through the nets.

    [TILE, floats] where a net reads them, [floats, TILE] where neighbouring samples are wanted in neighbouring lanes.
    """

    one: int  # [LANES] a 1.0, behind it zeros
    x: int  # [TILE, row] inputs
    hidden: int  # [TILE, hidden] a net's activations, layer behind layer
    outputs: int  # [outputs, TILE] of a head, then the slope of the loss there
    odds: int  # [A, TILE] probabilities
    taken: int  # [A, TILE] actions: int32 in the first row, or numbers
    allowed: int  # [A, TILE] 1 where an action is allowed
    actor: int  # [3, TILE] old log-probability, weight of the action, its fraction of the mean
    critic: int  # [3, TILE] old value, target, fraction of the mean
    above: int  # [TILE, widest] slopes at a layer
    below: int  # [TILE, widest] and at the one below it
    other_x: int  # [TILE, row] inputs at the next observation
    second_hidden: int  # [TILE, hidden] activations of another net
    actor_hidden: int  # [TILE, hidden] and of the actor
    target: int  # [TILE] of a value; of quantiles [critics * quantiles, TILE], likewise in q
    choice: int  # [TILE] int32 the best action
    log_prob: int  # [TILE]
    q: int  # [TILE] values of one critic, then the slope of the loss there
    other_q: int  # [TILE] and of the other
    slopes: int  # [A, TILE] of the first critic's value at the actions
    other_slopes: int  # [A, TILE] and of the other's


def make_scratch(
    threads: int, row: int, hidden: int, outputs: int, widest: int, actions: int, values: int
) -> tuple[np.ndarray, np.ndarray]:
    """Scratch [threads] of every thread, and the memory it points to; the sizes are floats of a sample.

    All is zero but for the 1.0 at `one`. Every algorithm gets every buffer, whichever runs.
    """
    of_sample = {
        "x": row, "hidden": hidden, "outputs": outputs, "odds": actions, "taken": actions, "allowed": actions,
        "actor": 3, "critic": 3, "above": widest, "below": widest, "other_x": row, "second_hidden": hidden,
        "actor_hidden": hidden, "target": values, "choice": 1, "log_prob": 1, "q": values, "other_q": 1,
        "slopes": actions, "other_slopes": actions,
    }  # fmt: skip
    sizes = {"one": LANES} | {name: TILE * count for name, count in of_sample.items()}
    memory = aligned(threads * sum(sizes.values())).reshape(threads, -1)
    memory[:, 0] = 1.0
    table = np.zeros(threads, np.dtype(Scratch))
    for thread in range(threads):
        address = memory[thread].ctypes.data
        for name, count in sizes.items():
            table[name][thread] = address
            address += 4 * count
    return table, memory


def aligned(count: int) -> np.ndarray:
    """float32 zeros that begin on a cache line."""
    raw = np.zeros(count + LANES, np.float32)
    skip = -raw.ctypes.data % (4 * LANES) // 4
    return raw[skip : skip + count]


# intrinsics of kernels: the struct at an address, whose fields are read and written in place
fields_at = struct_at(FrameFields)
live_at = struct_at(Live)
stats_at = struct_at(Stat)
moments_at = struct_at(MomentSums)
tensor_row_at = struct_at(TensorRow)
_layer_at = struct_at(LayerRow)
_conv_at = struct_at(ConvRow)
_segment_at = struct_at(Segment)
_scratch_at = struct_at(Scratch)
MOMENT_BYTES = ctypes.sizeof(MomentSums)
TENSOR_ROW_BYTES = ctypes.sizeof(TensorRow)
_LAYER_BYTES = ctypes.sizeof(LayerRow)
_CONV_BYTES = ctypes.sizeof(ConvRow)
_SEGMENT_BYTES = ctypes.sizeof(Segment)
_SCRATCH_BYTES = ctypes.sizeof(Scratch)


@njit(inline="always")
def layer_of(f: FrameFields, net: int, number: int) -> LayerRow:
    """Layer `number` of net `net`; the head is number `f.layers`."""
    return _layer_at(f.net_table + _LAYER_BYTES * (net * (f.layers + 1) + number))


@njit(inline="always")
def conv_of(f: FrameFields, net: int, number: int) -> ConvRow:
    """Convolution `number` of those before the first layer of net `net`."""
    return _conv_at(f.conv_table + _CONV_BYTES * (net * f.convs + number))


@njit(inline="always")
def segment_of(f: FrameFields, number: int) -> Segment:
    """The segment of that number."""
    return _segment_at(f.segment_table + _SEGMENT_BYTES * number)


@njit(inline="always")
def scratch_of(f: FrameFields, thread: int) -> Scratch:
    """The scratch of a thread."""
    return _scratch_at(f.scratch + _SCRATCH_BYTES * thread)


FIELDS = names_of(FrameFields)
COUNTS = frozenset(FIELDS[: FIELDS.index("obs")])  # fields that may be 0


@cache
def fields_read(function: FunctionType) -> frozenset[str]:
    """The fields of the frame that a function reads itself: whatever it takes from the local variable `f`."""
    words = pairwise(dis.get_instructions(function))
    return frozenset(name.argval for f, name in words if f.argval == "f" and name.opname == "LOAD_ATTR")


class Frame:
    """The struct, whatever it points to, and which kernels were checked."""

    def __init__(self) -> None:
        self.fields = FrameFields()
        self.address = ctypes.addressof(self.fields)
        self.held: dict[str, Any] = {}
        """what every field was set to; kernels know addresses only, so this keeps the memory alive"""
        self._complete: set[CompiledKernel] = set()

    def copy(self) -> "Frame":
        """A frame of its own with the same fields, for whoever changes some of them; the memory is shared."""
        other = Frame()
        other.fill(**self.held)
        return other

    def fill(self, **entries: int | Tensor | np.ndarray | ctypes.Structure | CompiledKernel) -> None:
        """Set fields: a number as it is; of memory and of a kernel the address."""
        for name, entry in entries.items():
            assert name in FIELDS, name
            setattr(self.fields, name, _number_of(entry))
        self.held.update(entries)

    def check(self, kernel: CompiledKernel, ignored: Iterable[str] = ()) -> None:
        """RuntimeError where an address is missing that this kernel, or one it calls, reads; checked once.

        `ignored`: what they read under a switch that is off.
        """
        if kernel in self._complete:
            return
        read = self.read_by(kernel).difference(ignored)
        if missing := [name for name in FIELDS if name in read and not getattr(self.fields, name)]:
            name = kernel.py_func.__name__
            raise RuntimeError(f"the frame of the fused engine has no {', '.join(missing)}, which {name} reads")
        self._complete.add(kernel)

    def read_by(self, kernel: CompiledKernel) -> set[str]:
        """The addresses a kernel reads: itself, in functions it calls and in those it calls by address."""
        fields: set[str] = set()
        checked: set[FunctionType] = set()
        waiting = [kernel.py_func]
        while waiting:
            function = waiting.pop()
            if function in checked:
                continue
            checked.add(function)
            own_fields = fields_read(function)
            fields |= own_fields
            called = [function.__globals__.get(name) for name in function.__code__.co_names]
            called += [self.held.get(name) for name in own_fields]
            waiting += [item.py_func for item in called if isinstance(item, Dispatcher)]
        return fields - COUNTS


def _number_of(entry: int | Tensor | np.ndarray | ctypes.Structure | CompiledKernel) -> int:
    if isinstance(entry, Tensor):
        return entry.data_ptr()
    if isinstance(entry, np.ndarray):
        return entry.ctypes.data
    if isinstance(entry, ctypes.Structure):
        return ctypes.addressof(entry)
    return address_of(entry) if isinstance(entry, Dispatcher) else int(cast(int, entry))
