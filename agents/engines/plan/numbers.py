"""Structs of numbers that agents and fused engines exchange: settings (Live) and statistics of updates (Stat)."""

import ctypes
from enum import IntEnum, auto
from typing import TypeVar

Fields = TypeVar("Fields", bound=type[ctypes.Structure])


def struct(fields: Fields) -> Fields:
    """Class decorator: make a C struct of the annotated fields (int: int64, float: float64), shared with kernels.

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
    """Return the field names of a struct, in order."""
    return [*fields.__annotations__]


class Count(IntEnum):
    """An enumeration that counts from 0, so that members are indices."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[int]) -> int:
        return count


@struct
class Live(ctypes.Structure):
    """Settings that may change between iterations, most from `agent.live`. A limit that is switched off is infinite."""

    gamma: float
    gae_lambda: float
    learning_rate: float
    clip: float
    value_clip: float  # a limit
    entropy: float  # coefficient of the entropy; of SAC if it is not learnt
    value: float  # coefficient of the critic's loss
    max_norm: float  # a limit of the gradient's norm
    kl_limit: float  # PPO: updates stop above it
    beta_1: float
    beta_2: float
    epsilon: float  # Adam's
    decay: float
    step: float  # updates that the optimizer has made; kernels write it back
    actor_step: float  # updates of a delayed actor
    bound: float  # a limit of normalised features
    tau: float  # fraction by which a target follows in an update
    huber: float  # a limit: the error above which the loss is linear; infinite: squared error everywhere
    target_entropy: float
    epsilon_greedy: float  # probability of a random action
    action_noise: float  # standard deviation of the noise on actions
    target_noise: float  # standard deviation of the noise on a target actor's actions
    target_noise_clip: float  # a limit
    made: float  # updates that the agent has made in all


class Sum(Count):
    """Indices of sums over a minibatch; each sample is weighted by its share of the mean, so a sum is a mean."""

    POLICY_LOSS = auto()
    VALUE_LOSS = auto()  # of the critic, or of action values
    ENTROPY = auto()
    KL = auto()
    CLIPPED = auto()
    Q = auto()
    TARGET = auto()
    ERROR = auto()


@struct
class Stat(ctypes.Structure):
    """Statistics of the updates of one call: first the fields of Sum, in its order, added up over reported updates."""

    policy_loss: float
    value_loss: float
    entropy: float
    kl: float
    clipped: float
    q: float
    target: float
    error: float
    stopped: float  # updates skipped because target_kl was exceeded
    norm_actor: float  # sums of gradient norms: of three parts, then of all
    norm_critic: float
    norm_trunk: float
    norm_total: float
    updates: float  # number of reported updates
    broken: float  # updates skipped because loss or gradient was non-finite
    lost: float  # those of `broken` whose loss was non-finite
    halted: float  # 1: target_kl was exceeded, so this rollout has no further updates
    explained: float  # explained variance; this and the next three are of the rollout
    weight_mean: float
    weight_std: float
    return_mean: float
    total_loss: float  # written by the recipe's `report`
    alpha: float
    every_loss: float  # value_loss over all updates
    sound: float  # 1: the current update has no non-finite number


@struct
class MomentSums(ctypes.Structure):
    """Sums over rows of values less an offset, which keeps them small; `_2`: sums of squares."""

    count: float
    weight: float
    weight_2: float
    target: float
    target_2: float
    error: float
    error_2: float
    total_return: float


SUMS = len(Sum)
NORMALIZE = {"off": 0, "batch": 1, "rollout": 2}  # over which rows the weights of actions (advantages) are normalised
