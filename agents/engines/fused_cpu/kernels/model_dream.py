"""The table of what a Dreamer imagines and learns from it, and the room in which a thread works on 16 starts.

Letters as in agents/networks/world_model.py: E = D + F features.
"""

from typing import NamedTuple

from stride.agents.engines.fused_cpu.kernels.calls import longs
from stride.agents.engines.fused_cpu.kernels.model_cell import MODEL, Model
from stride.agents.engines.fused_cpu.kernels.vectors import BYTES
from stride.agents.engines.plan.numbers import Count, auto
from stride.utils.kernel_cache import njit


class Reader(Count):
    """The nets that read imagined features, or deter of them, in the order of their answers."""

    PRIOR = auto()
    ACTOR = auto()
    CRITIC = auto()
    SLOW = auto()
    LAST = auto()  # the critic, of which nobody asks for gradients
    REWARD = auto()
    GOES_ON = auto()


class Rate(Count):
    """The numbers of a behaviour, float32."""

    GAMMA = auto()
    LAMBDA = auto()
    SLOW = auto()  # what the slow critic counts
    ENTROPY = auto()
    SHARE = auto()  # of one action in a mean over all of them
    SPAN = auto()  # of the returns, which advantages are divided by


class Dream(Count):
    """The table of a behaviour, int64: counts and addresses. K starts are a multiple of 16, N = H * K."""

    MODEL = auto()  # the table of the cell
    ANSWERS = auto()  # [Reader, Answer]
    FROM_ACTION = auto()  # [W, A]
    ENCODED = auto()  # A, floats of an encoded action
    CHOICES = auto()  # how many an action is made of; 0 where it is numbers
    OPTIONS = auto()  # int64 of each choice
    OUTPUTS = auto()  # of the actor
    BINS = auto()
    VALUES = auto()  # [BINS]
    WIDEST = auto()  # hidden layer of all nets
    MOST = auto()  # outputs of a net
    STEPS = auto()  # H
    STARTS = auto()  # K
    THREADS = auto()  # that share the starts
    RATES = auto()  # [Rate]
    FEATURES = auto()  # [H + 1, K, E]; the first of them are there
    ACTIONS = auto()  # [H, K, choices] int64, or [H, K, A] floats
    OF_GUESS = auto()  # [H, K, S] uniforms
    OF_ACTION = auto()  # [H, K, choices] uniforms, or [H, K, A] normals
    ALIVE = auto()  # [K] 0 where there is nothing to do

    # what the nets say: vectors [N / 16, .., 16], then rows [H, K]
    OF_ACTOR = auto()  # [OUTPUTS]
    OF_CRITIC = auto()  # logits [BINS]
    VALUE = auto()  # [H + 1, K]
    OF_SLOW = auto()
    PAID = auto()  # on arriving at the state after
    DISCOUNT = auto()  # of what follows from there
    RETURN = auto()
    WEIGHT = auto()

    # what is learnt from it: rows [H, K], each with its share in the mean
    POLICY_LOSS = auto()
    CRITIC_LOSS = auto()
    SPREAD = auto()  # entropy of the actor
    SCRATCH = auto()
    SCRATCH_SIZE = auto()  # bytes of a thread


DREAM, RATES = len(Dream), len(Rate)


class Room(NamedTuple):
    """The scratch of a thread by name: addresses of vectors."""

    features: int  # [E]
    stoch: int  # [F], the last of them
    joined: int  # [W + D]
    kept: int  # what the cell keeps
    hidden: int  # room for any net
    chosen: int  # [A] the action, encoded
    draws: int  # [S] or of an action, at most A
    soft: int  # [F]
    chances: int  # [BINS + 1]
    end: int


@njit(inline="always")
def lay(begin: int, deter: int, width: int, stoch: int, encoded: int, widest: int, most: int) -> Room:
    """Where everything lies from `begin` on; with `begin` 0 its end is how many bytes that is. Outputs at `most`."""
    joined = begin + (deter + stoch) * BYTES
    kept = joined + (width + deter) * BYTES
    hidden = kept + (width + 2 + 3 * deter) * BYTES
    chosen = hidden + (3 * widest + most + 1) * BYTES
    draws = chosen + encoded * BYTES
    soft = draws + max(stoch, encoded) * BYTES
    chances = soft + stoch * BYTES
    end = chances + (most + 1) * BYTES
    return Room(begin, begin + deter * BYTES, joined, kept, hidden, chosen, draws, soft, chances, end)


@njit(inline="always")
def room_of(table: int, thread: int) -> Room:
    """This thread's."""
    d = longs(table, DREAM)
    m = longs(d[Dream.MODEL], MODEL)
    stoch = m[Model.CHOICES] * m[Model.CLASSES]
    begin = d[Dream.SCRATCH] + thread * d[Dream.SCRATCH_SIZE]
    return lay(begin, m[Model.DETER], m[Model.WIDTH], stoch, d[Dream.ENCODED], d[Dream.WIDEST], d[Dream.MOST])
