"""The frame: the one struct of numbers and addresses that every compiled kernel receives.

bind.py fills one frame for each agent. A field holds a number (`worlds`), the address of memory (`obs`) or the address
of a compiled kernel (`forward`). Python writes a field by name, and a kernel reads it by the same name:

    frame.fill(worlds=8, reward=table.reward, forward=nets.forward)   # a number, a tensor's address, a kernel's address
    nets_kernel(frame.address)                                       # every kernel takes that address, an int64

    @njit(**PIECE)
    def nets_kernel(frame: int) -> None:
        f = fields_at(frame)
        reward = floats(f.reward, f.steps * f.worlds)                # an array of the tensor's own memory
        call(f.forward, (frame, 0, ...))

The struct is called `f` in every kernel: `Frame.check` looks for that name to know which fields a kernel reads.

Letters for sizes: T steps, N worlds, R = T * N rows (row t * N + i is step t of world i), S slots for final
observations, K features, A actions, P floats of the flat parameters that the optimizer changes, B samples of a
minibatch, D transitions drawn from a replay memory. Memory is float32 where nothing else is said.

Words that all kernels use:
- slope: the derivative of the loss with respect to a value, such as an activation or an output of a head.
- tile: up to TILE samples that pass through a net together; lane: the place of one sample in a vector of 16 float32.
- filling, padding: lanes that complete a vector, or floats that complete a row; they add nothing to any result.
- part: a fixed share of a minibatch with a gradient of its own. The parts' gradients are added in a fixed order, so
  results do not depend on the number of threads.
- turned: a transposed copy of weights. judge: compute values, advantages and targets of a rollout.
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

TILE = 64  # samples that pass through the nets together: so few that their activations stay in the level 1 cache


@struct
class FrameFields(ctypes.Structure):
    """All fields are int64: first numbers, then addresses of memory with its shape, then addresses of kernels."""

    # counts and switches (1 on, 0 off); a count has its letter behind it
    threads: int  # that work in the current iteration
    steps: int  # T
    worlds: int  # N
    slots: int  # S
    features: int  # K
    row: int  # floats of a sample's input row: K, or K + A where a net also reads actions
    obs_width: int  # floats of one observation; 0 where an observation is an index, which becomes one-hot
    actions: int  # A
    nets: int  # on policy 2 (actor, critic), or 1 with a shared trunk or no critic; off policy also the target nets
    layers: int  # hidden layers of every net
    cells: int  # how many of these, the last ones, are minGRU layers
    together: int  # rows of a minibatch that stay in one part: TILE, or the steps of a sequence
    convs: int  # convolutions before the first hidden layer of each net; 0 where no pictures are read
    patches: int  # offset in a tile's activations, in floats per sample: what filters see of one sample
    bordered: int  # likewise an offset: slopes of one sample with zeros around them
    raw: int  # likewise, from an activation to the number before its layer norm, which the norm reads
    highest: int  # the byte of a picture that becomes 1.0; 0 where pictures are float32
    planar: int  # 1 where pictures are stored channel after channel
    value_net: int  # number of the net that estimates values, -1 for none
    value_row: int  # the output of that net which is the value
    gaussian: int  # 1: actions are numbers from a normal distribution; 0: a choice
    reinforce: int  # 1: REINFORCE's loss; 0: PPO's
    whole_episode: int  # 1: every action is weighted by the return of its complete episode (mc:episode)
    normalize: int  # `weight` is normalized: 0 not, 1 in each minibatch, 2 over the rollout
    masked: int  # 1: `mask` says which actions are allowed
    epochs: int
    minibatch: int  # B
    parts: int  # partial gradients of a minibatch, added in a fixed order for any number of threads
    size: int  # P
    segments: int  # pieces of the flat parameters; one thread sums and steps one piece at a time
    tensors: int  # rows of the tensor table
    decoupled: int  # 1: AdamW's weight decay
    rectified: int  # 1: RAdam
    has_log_prob: int  # 1: the rollout already wrote log_prob
    begin: int  # this call makes the steps or updates [begin, end)
    end: int
    draw: int  # floats of the random draw of one action
    double: int  # 1: the online net chooses the action of the target (double_q)
    dueling: int  # 1: the head has advantages [A], then the value of the state
    learnt_alpha: int  # 1: the temperature (entropy coefficient) is learnt
    log_alpha: int  # offset of its logarithm in the parameters
    log_std: int  # offset in the parameters
    follows: int  # floats from a parameter to the same parameter of its target net
    moving: int  # how many nets, the first ones, change with every update
    critics: int  # how many critics there are; their nets are behind the actor's
    quantiles: int  # outputs of each critic that learns quantiles
    kept: int  # how many quantiles, the lowest of all critics together, are used as targets (TQC)
    actor_every: int  # updates per update of a delayed actor and of all targets; 0 where nothing is delayed
    span: int  # most steps of an n-step transition
    drawn: int  # D
    own_gamma: int  # 1: each row of the replay memory has a gamma of its own
    report_every: int  # every so many updates one is reported
    norm: int  # kernels of layer norms, forward and backward; 0 where a net has none
    norm_back: int
    remember: int  # kernel that plays a step of nets with a memory; 0 where nets have none

    # memory of the agent, its collector and its replay memory
    obs: int  # [R, ...] float32 or int64
    next_obs: int  # [N, ...] the observations after the last row
    final_obs: int  # [S * N, ...] the last observations of episodes that a time limit cut
    mask: int  # [R, A] uint8
    action: int  # [R] int64 or [R, A] float32
    reward: int  # [R] scaled rewards of the rollout; or [D] discounted n-step rewards of drawn transitions
    terminated: int  # [R] uint8
    truncated: int  # [R] uint8
    is_first: int  # [R] uint8
    slot: int  # [R] int64: row slot * N + i of final_obs has world i's final observation of this episode
    ring_reward: int  # [R] rewards of one step in the replay memory, which is a ring of rows
    poisoned: int  # [] uint8: 1 where a collected number is not finite
    uniforms: int  # [3, D] that choose the drawn transitions: two for the row, one for the world
    noise: int  # [updates, 2, B, A] standard normal; TD3's [updates, B, A]
    powers: int  # [span + 1] gamma^0, gamma^1, ...
    gammas: int  # [rows of the ring] gamma of the iteration that collected each row
    draws: int  # [T, N, draw] random numbers for the actions of the steps that are played
    tensor_table: int  # [tensors] TensorRow

    # memory of the engine: what it computes from a rollout
    log_prob: int  # [R] log-probability of the action under the policy that played it
    value: int  # [R + N] values of obs, then of next_obs
    final_value: int  # [S * N] values of final_obs
    weight: int  # [R] factor of the action's log-probability in the loss: advantage, or return
    target: int  # [R] of the value; during updates in units of the critic
    counted: int  # [R] 1.0 where the return is complete, else 0.0: such a row does not change the actor
    units: int  # [2] offset and scale: value = critic's output * units[1] + units[0]
    order: int  # [epochs, R] int32: the order of the rows in every epoch
    spare: int  # [threads, 3 * R] int32: working memory of the shuffle
    moments: int  # [parts] MomentSums
    weighings: int  # [updates, 3] float64, of a shard: mean, 1 / deviation, 1 / rows of `weight` in each minibatch
    totals: int  # [SUMS] float64, of a shard: sums of the present minibatch
    key: int  # [5] int64: the counters of the random key that orders rows
    carry: int  # [nets, cells, 2 * N, width]: N recurrent states, then N of working memory
    sequences: int  # [R] int32: the rows in the order of worlds: all steps of world 0, then of world 1
    past: int  # [threads, tiles, TILE, hidden]: activations of complete sequences

    # memory of the engine: transitions drawn from a replay memory
    place: int  # [D] int32 row of the observation
    following: int  # [D] int32 row of the next observation in obs; below 0: ~row of final_obs
    discount: int  # [D] gamma^n of the next value, 0 after a terminal state

    # memory of the engine: parameters and what belongs to them
    centre: int  # [K] a feature is (observation - centre) * scale
    scale: int  # [K]
    net_table: int  # [nets, layers + 1] LayerRow; the last one of a net is its head
    conv_table: int  # [nets, convs] ConvRow
    segment_table: int  # [segments] Segment
    parameters: int  # [P], then those of targets
    turned: int  # transposed copies of the hidden layers
    first_moment: int  # [P]
    second_moment: int  # [P]
    gradient: int  # [P]
    partial: int  # [parts, P] the gradient of each part
    squares: int  # [segments] float64: sums of squares of the gradient
    sums: int  # [parts, SUMS, TILE] losses and other statistics of the present minibatch
    scratch: int  # [threads] Scratch
    barrier: int  # [] int64: how many threads have arrived at barriers
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
    """Addresses of one thread's working memory: intermediate results of the tile that it takes through the nets.

    Arrays are [TILE, floats] where a net reads them, and [floats, TILE] where losses want neighbouring samples in
    neighbouring lanes.
    """

    one: int  # [LANES] a 1.0, then zeros
    x: int  # [TILE, row] inputs
    hidden: int  # [TILE, hidden] activations of a net: all samples of its first layer, then of its second
    outputs: int  # [outputs, TILE] of a head; the loss replaces them with its slopes
    odds: int  # [A, TILE] probabilities
    taken: int  # [A, TILE] actions: int32 in the first row, or numbers
    allowed: int  # [A, TILE] 1.0 where an action is allowed, else 0.0
    actor: int  # [3, TILE] old log-probability, weight of the action, the sample's fraction of the mean
    critic: int  # [3, TILE] old value, target, the sample's fraction of the mean
    above: int  # [TILE, widest] slopes at a layer
    below: int  # [TILE, widest] slopes at the layer before it
    other_x: int  # [TILE, row] inputs at the next observation
    second_hidden: int  # [TILE, hidden] activations of a second critic
    actor_hidden: int  # [TILE, hidden] activations of the actor
    target: int  # [TILE] of a value; of quantiles [critics * quantiles, TILE], likewise in q
    choice: int  # [TILE] int32 the best action
    log_prob: int  # [TILE]
    q: int  # [TILE] values of one critic; the loss replaces them with its slopes
    other_q: int  # [TILE] values of the second critic, likewise
    slopes: int  # [A, TILE] slopes at the actions through the first critic
    other_slopes: int  # [A, TILE] slopes at the actions through the second critic


def make_scratch(
    threads: int, row: int, hidden: int, outputs: int, widest: int, actions: int, values: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the Scratch rows [threads] and the memory that they point to, which the caller must keep alive.

    The arguments after `threads` are floats per sample. All memory is zero but for the 1.0 at `one`. Every algorithm
    gets all arrays, also those that it does not use.
    """
    floats_per_sample = {
        "x": row, "hidden": hidden, "outputs": outputs, "odds": actions, "taken": actions, "allowed": actions,
        "actor": 3, "critic": 3, "above": widest, "below": widest, "other_x": row, "second_hidden": hidden,
        "actor_hidden": hidden, "target": values, "choice": 1, "log_prob": 1, "q": values, "other_q": 1,
        "slopes": actions, "other_slopes": actions,
    }  # fmt: skip
    sizes = {"one": LANES} | {name: TILE * count for name, count in floats_per_sample.items()}
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
    """Return `count` float32 zeros whose address is a multiple of 64 bytes, a cache line."""
    raw = np.zeros(count + LANES, np.float32)
    skip = -raw.ctypes.data % (4 * LANES) // 4
    return raw[skip : skip + count]


# functions for kernels, address -> struct; fields of the struct are read and written in place
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
    """Return layer `number` of net `net`; the head is number `f.layers`."""
    return _layer_at(f.net_table + _LAYER_BYTES * (net * (f.layers + 1) + number))


@njit(inline="always")
def conv_of(f: FrameFields, net: int, number: int) -> ConvRow:
    """Return convolution `number` of those before the first layer of net `net`."""
    return _conv_at(f.conv_table + _CONV_BYTES * (net * f.convs + number))


@njit(inline="always")
def segment_of(f: FrameFields, number: int) -> Segment:
    """Return segment `number` of the flat parameters."""
    return _segment_at(f.segment_table + _SEGMENT_BYTES * number)


@njit(inline="always")
def scratch_of(f: FrameFields, thread: int) -> Scratch:
    """Return the addresses of a thread's working memory."""
    return _scratch_at(f.scratch + _SCRATCH_BYTES * thread)


FIELDS = names_of(FrameFields)
COUNTS = frozenset(FIELDS[: FIELDS.index("obs")])  # the fields before the first address; these may be 0


@cache
def fields_read(function: FunctionType) -> frozenset[str]:
    """Return the fields of the frame that a function itself reads: all attributes of its local variable `f`."""
    pairs = pairwise(dis.get_instructions(function))
    return frozenset(name.argval for f, name in pairs if f.argval == "f" and name.opname == "LOAD_ATTR")


class Frame:
    """The struct, the objects that it points to, and which kernels were checked."""

    def __init__(self) -> None:
        self.fields = FrameFields()
        self.address = ctypes.addressof(self.fields)
        self.held: dict[str, Any] = {}
        """the object that each field was set to; kernels know addresses only, so this keeps the memory alive"""
        self._complete: set[CompiledKernel] = set()  # kernels that were checked and have all their addresses

    def copy(self) -> "Frame":
        """Return a new frame with the same fields; changing its fields leaves this one as it is. They share memory."""
        other = Frame()
        other.fill(**self.held)
        return other

    def fill(self, **entries: int | Tensor | np.ndarray | ctypes.Structure | CompiledKernel) -> None:
        """Set fields by name: to the number itself, or to the address of the tensor, array, struct or kernel."""
        for name, entry in entries.items():
            assert name in FIELDS, name
            setattr(self.fields, name, _number_of(entry))
        self.held.update(entries)

    def check(self, kernel: CompiledKernel, ignored: Iterable[str] = ()) -> None:
        """Raise RuntimeError where an address is missing that this kernel, or a kernel that it calls, reads.

        A kernel that passed is not checked again. `ignored`: fields that are read only under a switch that is off.
        """
        if kernel in self._complete:
            return
        read = self.read_by(kernel).difference(ignored)
        if missing := [name for name in FIELDS if name in read and not getattr(self.fields, name)]:
            name = kernel.py_func.__name__
            raise RuntimeError(f"the frame of the fused engine has no {', '.join(missing)}, which {name} reads")
        self._complete.add(kernel)

    def read_by(self, kernel: CompiledKernel) -> set[str]:
        """Return the addresses that a kernel reads, also in functions that it calls by name or by address."""
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
            called += [self.held.get(name) for name in own_fields]  # kernels that it may call by address
            waiting += [item.py_func for item in called if isinstance(item, Dispatcher)]
        return fields - COUNTS


def _number_of(entry: int | Tensor | np.ndarray | ctypes.Structure | CompiledKernel) -> int:
    """Return a number as it is, and the address of anything else."""
    if isinstance(entry, Tensor):
        return entry.data_ptr()
    if isinstance(entry, np.ndarray):
        return entry.ctypes.data
    if isinstance(entry, ctypes.Structure):
        return ctypes.addressof(entry)
    return address_of(entry) if isinstance(entry, Dispatcher) else int(cast(int, entry))
