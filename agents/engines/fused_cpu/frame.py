"""The frame: the table of counts and addresses that every kernel is handed, int64 each. bind.py fills it.

Letters: T steps, N worlds, R = T * N rows, S slots, K features, A actions, P floats of the flat parameters that are
learnt, B samples of a minibatch, D transitions drawn. Memory is float32 where nothing else is said.
"""

import dis
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import pairwise
from types import FunctionType

import numpy as np
from torch import Tensor

from stride.agents.engines.fused_cpu.kernels.calls import Kernel, address_of
from stride.agents.engines.plan.layout import Entry, Layer
from stride.agents.engines.plan.numbers import Count, Live, Moment, Stat, Sum, auto


class At(Count):
    """Entries of the frame; of memory, `[..]` says what lies there."""

    # counts and switches
    THREADS = auto()  # of the iteration under way
    STEPS = auto()  # T
    WORLDS = auto()  # N
    SLOTS = auto()  # S
    FEATURES = auto()  # K
    ROW = auto()  # floats of a sample's row of inputs: K, or K + A where a net reads actions too
    OUTPUTS = auto()  # rows of the outputs' scratch
    OBS_WIDTH = auto()  # floats of one observation; 0 where it is an index
    ACTIONS = auto()  # A
    NETS = auto()  # 2 apart, 1 with a shared trunk or without a critic; from a replay memory: targets among them
    LAYERS = auto()  # hidden layers of each
    VALUE_NET = auto()  # which net values, -1 for none
    VALUE_ROW = auto()  # and which of its outputs says it
    GAUSSIAN = auto()
    REINFORCE = auto()
    WHOLE_EPISODE = auto()  # mc:episode
    NORMALIZE = auto()  # weights of an action: 0 off, 1 per minibatch, 2 per rollout
    MASKED = auto()
    EPOCHS = auto()
    MINIBATCH = auto()  # B
    PARTS = auto()  # partial gradients, summed in a fixed order whatever the number of threads
    SIZE = auto()  # P
    SEGMENTS = auto()
    TENSORS = auto()
    DECOUPLED = auto()  # AdamW
    HIDDEN_SIZE = auto()  # floats of a sample's activations
    WIDEST = auto()  # widest hidden layer
    HAS_LOG_PROB = auto()  # the rollout already wrote it
    BEGIN = auto()  # of the steps or updates of one call
    END = auto()
    DRAW = auto()  # floats of a draw
    DOUBLE = auto()  # double_q
    DUELING = auto()
    LEARNT_ALPHA = auto()
    LOG_ALPHA = auto()  # offset in the parameters
    LOG_STD = auto()  # offset in the parameters
    FOLLOWS = auto()  # floats from a parameter of part 1 to that of its target
    MOVING = auto()  # nets that change with each update, the first ones
    SPAN = auto()  # rows of an n-step transition
    DRAWN = auto()  # D
    TELL_EVERY = auto()  # updates between two that are told of
    SCRATCH_SIZE = auto()  # floats of a thread's scratch

    # memory of others
    OBS = auto()  # [R, ...] float32 or int64
    NEXT_OBS = auto()  # [N, ...]
    FINAL_OBS = auto()  # [S * N, ...]
    MASK = auto()  # [R, A] uint8
    ACTION = auto()  # [R] int64 or [R, A] float32
    REWARD = auto()  # [R], scaled; or [D], of n steps
    TERMINATED = auto()  # [R] uint8
    TRUNCATED = auto()  # [R] uint8
    IS_FIRST = auto()  # [R] uint8
    SLOT = auto()  # [R] int64
    RING_REWARD = auto()  # [R], the replay memory's
    POISONED = auto()  # [] uint8: what was collected is not finite
    UNIFORMS = auto()  # [3, D]
    NOISE = auto()  # [updates, 2, B, A] standard normal
    POWERS = auto()  # [SPAN + 1] of gamma
    DRAWS = auto()  # [T, N, DRAW] of the steps that are played
    TENSOR_TABLE = auto()  # [TENSORS, len(Entry)] int64

    # memory of our own: what the actor and critic make of the rollout
    LOG_PROB = auto()  # [R]
    VALUE = auto()  # [R + N]
    FINAL_VALUE = auto()  # [S * N]
    WEIGHT = auto()  # [R] advantage, or return
    TARGET = auto()  # [R]
    COUNTED = auto()  # [R]: 1 where the return is known
    ORDER = auto()  # [EPOCHS, R] int32
    SPARE = auto()  # [THREADS, 3 * R] int32
    MOMENTS = auto()  # [PARTS, len(Moment)] float64
    KEY = auto()  # [5] int64: the words of the key that orders rows

    # of transitions drawn from a replay memory
    PLACE = auto()  # [D] int32 row of the observation
    FOLLOWING = auto()  # [D] int32 row of the one that followed; below 0 the complement of a final one's
    DISCOUNT = auto()  # [D]

    # of parameters and what belongs to them
    CENTRE = auto()  # [K] of the normalisation
    SCALE = auto()  # [K]
    NET_TABLE = auto()  # [NETS, LAYERS + 1, len(Layer)] int64
    SEGMENT_TABLE = auto()  # [SEGMENTS, 3] int64: first, last, part
    PARAMETERS = auto()  # [P], then those of targets
    TURNED = auto()  # transposes of the hidden layers
    FIRST_MOMENT = auto()  # [P]
    SECOND_MOMENT = auto()  # [P]
    GRADIENT = auto()  # [P]
    PARTIAL = auto()  # [PARTS, P]
    SQUARES = auto()  # [SEGMENTS] float64
    SUMS = auto()  # [PARTS, len(Sum), TILE]
    SCRATCH = auto()  # [THREADS, SCRATCH_SIZE]; scratch.py says what lies there
    BARRIER = auto()  # [] int64: arrivals of threads
    LIVE = auto()  # [len(Live)] float64
    STATS = auto()  # [len(Stat)] float64

    # kernels that others call by their address
    FORWARD_LAYER = auto()
    BACKWARD_LAYER = auto()
    ACCUMULATE = auto()
    FORWARD = auto()
    BACKWARD = auto()
    TO_INPUTS = auto()
    ENCODE = auto()
    TURN = auto()
    LOG_SOFTMAX = auto()
    LOG_PROBS = auto()
    SAMPLE = auto()
    ACTOR_LOSS = auto()
    CRITIC_LOSS = auto()
    GRADIENT_PART = auto()
    VALUES = auto()
    ALL_LOG_PROBS = auto()
    WEIGH = auto()  # advantages, or returns
    MOMENT_SUMS = auto()
    SHUFFLE = auto()
    JUDGE = auto()
    UPDATE = auto()
    LEARN = auto()


TILE = 64  # samples that pass through the nets together: their activations stay in the innermost cache
ENTRIES, LAYER_ROW, TENSOR_ROW = len(At), len(Layer), len(Entry)
LIVES, STATS, SUMS, MOMENTS = len(Live), len(Stat), len(Sum), len(Moment)
Memory = np.ndarray | Tensor


Kernels = Mapping[At, Kernel]


@cache
def globals_of(function: FunctionType) -> tuple[tuple[str, str], ...]:
    """The globals its code loads, each with what the instruction behind it names; alike for every frame."""
    words = pairwise(dis.get_instructions(function))
    return tuple((word.argval, following.argval) for word, following in words if word.opname == "LOAD_GLOBAL")


class Frame:
    """The table, the memory it points to, and which kernels were looked at."""

    def __init__(self) -> None:
        self.table = np.zeros(ENTRIES, np.int64)
        self.address = self.table.ctypes.data
        self.held: dict[At, Memory] = {}
        self._kernels: dict[At, Kernel] = {}
        self._complete: set[Kernel] = set()

    def copy(self) -> "Frame":
        """Another table with the same entries, for whoever changes some of them; the memory is one."""
        other = Frame()
        other.table[:] = self.table
        other.held, other._kernels = dict(self.held), dict(self._kernels)
        return other

    def count(self, counts: Mapping[At, int]) -> None:
        for entry, count in counts.items():
            self.table[entry] = int(count)

    def point(self, entry: At, memory: Memory) -> None:
        """Hold on to memory and note where it lies."""
        self.held[entry] = memory
        self.table[entry] = memory.data_ptr() if isinstance(memory, Tensor) else memory.ctypes.data

    def point_all(self, memories: Mapping[At, Memory]) -> None:
        for entry, memory in memories.items():
            self.point(entry, memory)

    def install(self, kernels: Kernels) -> None:
        """Have kernels call these by their address."""
        self._kernels.update(kernels)
        self.count({entry: address_of(kernel) for entry, kernel in kernels.items()})

    def check(self, kernel: Kernel, but: Iterable[At] = ()) -> None:
        """RuntimeError where an address is missing that this kernel, or one it calls, reads; looked at once.

        `but` names what they read under a switch that is off.
        """
        if kernel in self._complete:
            return
        missing = [entry.name for entry in sorted(self.read_by(kernel) - {*but}) if not self.table[entry]]
        if missing:
            name = kernel.py_func.__name__
            raise RuntimeError(f"the frame of the fused engine has no {', '.join(missing)}, which {name} reads")
        self._complete.add(kernel)

    def read_by(self, kernel: Kernel) -> set[At]:
        """The addresses a kernel reads: by itself, through functions it calls and through those it calls by address."""
        found: set[At] = set()
        seen: set[FunctionType] = set()
        waiting = [kernel.py_func]
        while waiting:
            function = waiting.pop()
            seen.add(function)
            for name, following in globals_of(function):
                if function.__globals__.get(name) is At:
                    found.add(entry := At[following])
                    called = self._kernels.get(entry)
                else:
                    called = function.__globals__.get(name)
                inner = getattr(called, "py_func", None)
                if inner and inner not in seen:
                    waiting.append(inner)
        return {entry for entry in found if entry >= At.OBS}
