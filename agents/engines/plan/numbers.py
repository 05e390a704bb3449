"""The numbers that pass between an agent and any fused engine: what it is set to, and what it sums up."""

from enum import IntEnum, auto


class Count(IntEnum):
    """An enumeration from 0 on."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[int]) -> int:
        return count


class Live(Count):
    """What may change between iterations, float64: most of it as in `agent.live`."""

    GAMMA = auto()
    LAMBDA = auto()
    LEARNING_RATE = auto()
    CLIP = auto()
    VALUE_CLIP = auto()  # infinite: none
    ENTROPY = auto()  # its coefficient; SAC's where it is not learnt
    VALUE = auto()  # coefficient of the critic's loss
    MAX_NORM = auto()  # infinite: none
    KL_LIMIT = auto()  # infinite: none
    BETA_1 = auto()
    BETA_2 = auto()
    EPSILON = auto()  # Adam's
    DECAY = auto()
    STEP = auto()  # updates the optimizer has made; written back
    BOUND = auto()  # of a normalised feature
    TAU = auto()
    HUBER = auto()  # infinite: squared everywhere
    TARGET_ENTROPY = auto()
    EPSILON_GREEDY = auto()
    MADE = auto()  # updates the agent has made


class Sum(Count):
    """Sums over the samples of a minibatch, each sample with its share in the mean."""

    POLICY_LOSS = auto()
    VALUE_LOSS = auto()  # the critic's, or that of action values
    ENTROPY = auto()
    KL = auto()
    CLIPPED = auto()
    Q = auto()
    TARGET = auto()
    ERROR = auto()


class Stat(Count):
    """What is told of a call's updates: first the same as in Sum, summed over those that are told of."""

    POLICY_LOSS = Sum.POLICY_LOSS
    VALUE_LOSS = Sum.VALUE_LOSS
    ENTROPY = Sum.ENTROPY
    KL = Sum.KL
    CLIPPED = Sum.CLIPPED
    Q = Sum.Q
    TARGET = Sum.TARGET
    ERROR = Sum.ERROR
    STOPPED = auto()  # updates not made, as target_kl was exceeded
    NORM_ACTOR = auto()  # of gradients: three parts, then all
    NORM_CRITIC = auto()
    NORM_TRUNK = auto()
    NORM_TOTAL = auto()
    UPDATES = auto()  # that are told of
    BROKEN = auto()  # updates not made, as loss or gradient was not finite
    LOST = auto()  # of these, by their loss
    HALTED = auto()  # 1: target_kl was exceeded, no further update of this rollout
    EXPLAINED = auto()  # from here to RETURN_MEAN: of the rollout
    WEIGHT_MEAN = auto()
    WEIGHT_STD = auto()
    RETURN_MEAN = auto()
    TOTAL_LOSS = auto()  # written when the numbers are told
    ALPHA = auto()
    EVERY_LOSS = auto()  # VALUE_LOSS over all updates
    SOUND = auto()  # 1: the update under way may be made


class Moment(Count):
    """Sums over rows, less an offset, float64."""

    COUNT = auto()
    WEIGHT = auto()
    WEIGHT_2 = auto()
    TARGET = auto()
    TARGET_2 = auto()
    ERROR = auto()
    ERROR_2 = auto()
    RETURN = auto()


NORMALIZE = {"off": 0, "batch": 1, "rollout": 2}  # where the weights of actions are
