"""The numbers that pass between an agent and any fused engine: its settings, and the sums that an engine reports."""

import ctypes
from enum import IntEnum, auto
from typing import TypeVar

Fields = TypeVar("Fields", bound=type[ctypes.Structure])


def struct(fields: Fields) -> Fields:
    """Class decorator: a C struct of the annotated fields, int64 or float64, which Python and kernels read in place.

    >>> @struct
    ... class Pair(ctypes.Structure):
    ...     count: int
    ...     total: float
    >>> pair = Pair(count=2)
    >>> pair.total += 0.5
    """
    types: dict[type, type[ctypes.c_int64] | type[ctypes.c_double]] = {int: ctypes.c_int64, float: ctypes.c_double}
    fields._fields_ = [(name, types[kind]) for name, kind in fields.__annotations__.items()]
    return fields


def names_of(fields: type[ctypes.Structure]) -> list[str]:
    """The field names of a struct, in order."""
    return [*fields.__annotations__]


class Count(IntEnum):
    """An enumeration from 0 on."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[int]) -> int:
        return count


@struct
class Live(ctypes.Structure):
    """Settings that may change between iterations, most of them as in `agent.live`; a limit that is off is infinite."""

    gamma: float
    gae_lambda: float
    learning_rate: float
    clip: float
    value_clip: float  # a limit
    entropy: float  # its coefficient; SAC's where it is not learnt
    value: float  # coefficient of the critic's loss
    max_norm: float  # a limit
    kl_limit: float
    beta_1: float
    beta_2: float
    epsilon: float  # Adam's
    decay: float
    step: float  # updates the optimizer has made; kernels write it back
    actor_step: float  # and of these, those of a delayed actor
    bound: float  # a limit of a normalised feature
    tau: float
    huber: float  # a limit: infinite is squared error everywhere
    target_entropy: float
    epsilon_greedy: float
    action_noise: float  # deviation of the acting noise
    target_noise: float  # of the noise on a target actor's actions
    target_noise_clip: float  # a limit
    made: float  # updates the agent has made


class Sum(Count):
    """Sums over the samples of a minibatch, each sample weighted by its fraction of the mean."""

    POLICY_LOSS = auto()
    VALUE_LOSS = auto()  # the critic's, or that of action values
    ENTROPY = auto()
    KL = auto()
    CLIPPED = auto()
    Q = auto()
    TARGET = auto()
    ERROR = auto()


@struct
class Stat(ctypes.Structure):
    """Statistics of the updates of a call: first the sums in the order of Sum, added up over the reported updates."""

    policy_loss: float
    value_loss: float
    entropy: float
    kl: float
    clipped: float
    q: float
    target: float
    error: float
    stopped: float  # updates not made, as target_kl was exceeded
    norm_actor: float  # of gradients: three parts, then the complete one
    norm_critic: float
    norm_trunk: float
    norm_total: float
    updates: float  # that are reported
    broken: float  # updates not made, as loss or gradient was not finite
    lost: float  # of these, by their loss
    halted: float  # 1: target_kl was exceeded, no further update of this rollout
    explained: float  # to return_mean: of the rollout
    weight_mean: float
    weight_std: float
    return_mean: float
    total_loss: float  # written when the numbers are reported
    alpha: float
    every_loss: float  # value_loss over all updates
    sound: float  # 1: the current update may be made


@struct
class MomentSums(ctypes.Structure):
    """Sums over rows, less an offset; `_2` sums squares."""

    count: float
    weight: float
    weight_2: float
    target: float
    target_2: float
    error: float
    error_2: float
    total_return: float


SUMS = len(Sum)
NORMALIZE = {"off": 0, "batch": 1, "rollout": 2}  # where the weights of actions are
