"""The table of what is learnt from remembered sequences.

Letters as in agents/networks/world_model.py, N = T * B states.
"""

from stride.agents.engines.fused_cpu.kernels.calls import longs
from stride.agents.engines.fused_cpu.kernels.vectors import BYTES
from stride.agents.engines.plan.numbers import Count, auto
from stride.utils.kernel_cache import njit


class Teller(Count):
    """The nets that read states, in the order of their answers; those a model does not have are left out of them."""

    PRIOR = auto()  # of deter alone
    GOES_ON = auto()
    REWARD = auto()
    VECTOR = auto()
    CRITIC = auto()
    SLOW = auto()


class Weigh(Count):
    """The numbers of a recollection, float32."""

    SHARE = auto()  # of a state in a mean over all of them
    FREE = auto()  # nats
    PRIOR = auto()  # from here to OBSERVATION: what a loss counts
    POSTERIOR = auto()
    OBSERVATION = auto()
    END = auto()
    HIGHER = auto()  # by which logits are taken too high, as ends count more: log(END)
    GAMMA = auto()
    LAMBDA = auto()
    SLOW = auto()  # what the slow critic counts
    REPLAY = auto()  # what a state's loss of the critic counts


class Told(Count):
    """What is told of each state, rows [N]: losses with their shares in the means, and more."""

    OBSERVATION = auto()
    REWARD = auto()
    GOING_ON = auto()
    PULLED = auto()  # the divergence, or the free nats where they are more
    REPLAY = auto()
    KL = auto()
    ENDS = auto()  # the chance given to the end
    WEIGHT = auto()  # of the critic's loss, and the return with it
    REACHED = auto()


class Recall(Count):
    """The table of a recollection, int64: counts, then addresses of rows [T, B, ..] or vectors [N / 16, .., 16]."""

    MODEL = auto()  # the table of the model
    ANSWERS = auto()  # [Teller, Answer]
    STEPS = auto()  # T
    SEQUENCES = auto()  # B
    THREADS = auto()
    SEEN = auto()  # numbers of the vector that is told; 0: there is none
    CRITIC = auto()  # 1 where there is one
    BINS = auto()
    VALUES = auto()  # [BINS]
    MOST = auto()  # outputs of a net
    WEIGHS = auto()  # [Weigh]

    FEATURES = auto()  # [E]
    LOG_PROBS = auto()  # [F] of the posterior
    VECTOR = auto()  # [SEEN] what was seen
    REWARD = auto()
    ENDED = auto()  # 1 where the episode did, else 0
    FIRST = auto()  # 1 where it begins
    TOLD = auto()  # [Told, N]

    # of the critic, where there is one
    OF_CRITIC = auto()  # logits, vectors [BINS]
    VALUE = auto()  # rows, as all that follow
    OF_SLOW = auto()
    TARGET = auto()

    SLOPE_DETER = auto()  # [D]
    SLOPE_STOCH = auto()  # [F]
    SLOPE_LOG_PROBS = auto()  # [F]
    SCRATCH = auto()  # of each thread: `room`
    SCRATCH_SIZE = auto()  # bytes of a thread


RECALL, WEIGHS = len(Recall), len(Weigh)


@njit(inline="always")
def told_at(table: int, what: int, index: int) -> int:
    """Where 16 numbers of what is told lie."""
    t = longs(table, RECALL)
    return t[Recall.TOLD] + 4 * what * t[Recall.STEPS] * t[Recall.SEQUENCES] + index * BYTES
