"""The table that every kernel is handed: addresses and counts, one int64 each. Written by engine.py, read everywhere.

Letters: T steps, N worlds, R = T * N rows, S slots, K features, A actions, P floats of the flat parameters.
"""

from enum import IntEnum, auto


class At(IntEnum):
    """Entries of the frame; `[..]` says what lies at an address."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[int]) -> int:
        return count

    # counts and switches
    THREADS = auto()
    STEPS = auto()
    WORLDS = auto()
    SLOTS = auto()
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
    MINIBATCH = auto()  # rows
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
    FOLLOWS = auto()  # from a parameter of part 1 to that of its target
    MOVING = auto()  # nets that change with each update, the first ones
    SPAN = auto()  # rows of an n-step transition
    DRAWN = auto()  # transitions drawn
    TELL_EVERY = auto()  # updates between two that are told of

    # what others own
    OBS = auto()  # [R, ...] float32 or int64
    NEXT_OBS = auto()  # [N, ...]
    FINAL_OBS = auto()  # [S * N, ...]
    MASK = auto()  # [R, A] uint8
    ACTION = auto()  # [R] int64 or [R, A] float32
    REWARD = auto()  # [R], scaled
    TERMINATED = auto()  # [R] uint8
    TRUNCATED = auto()
    IS_FIRST = auto()
    SLOT = auto()  # [R] int64
    TENSOR_TABLE = auto()  # [TENSORS, len(Tensor)] int64

    # ours: what the actor and critic make of the rollout
    LOG_PROB = auto()  # [R]
    VALUE = auto()  # [R + N]
    FINAL_VALUE = auto()  # [S * N]
    WEIGHT = auto()  # [R] advantage, or return
    TARGET = auto()  # [R]
    COUNTED = auto()  # [R] float32: 1 where the return is known
    ORDER = auto()  # [EPOCHS, R] int32
    SPARE = auto()  # [THREADS, 3 * R] int32
    CENTRE = auto()  # [K] of the normalisation
    SCALE = auto()

    # ours: transitions drawn from a replay memory, D
    RING_REWARD = auto()  # [R], the memory's own
    PLACE = auto()  # [D] int32 row of the observation
    FOLLOWING = auto()  # [D] int32 row of the one that followed; below 0 the complement of a final one's
    DISCOUNT = auto()  # [D]; rewards are in REWARD
    POWERS = auto()  # [SPAN + 1] of gamma
    UNIFORMS = auto()  # [3, D]
    NOISE = auto()  # [updates, 2, MINIBATCH, A] standard normal
    POISONED = auto()  # [] uint8: what was collected holds what is no number

    # ours: parameters and what belongs to them
    NET_TABLE = auto()  # [NETS, LAYERS + 1, len(Layer)] int64
    SEGMENT_TABLE = auto()  # [SEGMENTS, 3] int64: first, last, part
    PARAMETERS = auto()  # [P]
    TURNED = auto()  # transposes of the hidden layers
    FIRST_MOMENT = auto()
    SECOND_MOMENT = auto()
    GRADIENT = auto()
    PARTIAL = auto()  # [PARTS, P]
    SQUARES = auto()  # [SEGMENTS] float64
    LOG_STD = auto()  # offset in the parameters
    MOMENTS = auto()  # [PARTS, len(Moment)] float64
    LANES = auto()  # [PARTS, SUMS, TILE]
    SCRATCH = auto()  # [THREADS, SCRATCH_SIZE] float32
    SCRATCH_SIZE = auto()
    BARRIER = auto()
    DRAWS = auto()  # [T, N, DRAW] of the steps that are played
    KEY = auto()  # [5] int64: the words of the key that orders rows

    # ours: numbers in and out
    SETTINGS = auto()  # [len(Setting)] float64
    STATS = auto()  # [len(Stat)] float64

    # pieces by address
    FORWARD_LAYER = auto()
    BACKWARD_LAYER = auto()
    ACCUMULATE = auto()
    FORWARD = auto()
    BACKWARD = auto()
    ENCODE = auto()
    ACTOR_LOSS = auto()
    CRITIC_LOSS = auto()
    SAMPLE = auto()
    LOG_SOFTMAX = auto()
    VALUES = auto()
    ALL_LOG_PROBS = auto()
    WORTH = auto()
    JUDGE = auto()
    UPDATE = auto()
    LEARN = auto()
    MOMENT_SUMS = auto()
    SHUFFLE = auto()
    TURN = auto()
    GRADIENT_PART = auto()
    LOG_PROBS = auto()
    TO_INPUTS = auto()


class Layer(IntEnum):
    """A row of the net table; the last layer of a net is its head."""

    INNER = 0
    WIDTH = 1  # padded to whole vectors; of a head, its outputs
    WEIGHT = 2  # offset in the parameters: first layer [inner, width], others [width, inner]
    BIAS = 3
    TURNED = 4  # offset of [inner, width] in the transposes
    HIDDEN = 5  # floats per sample of the activations below this layer's


class Tensor(IntEnum):
    """A row of the tensor table: one of torch's parameters, its two moments, and where they lie in ours."""

    VALUE = 0
    FIRST = 1
    SECOND = 2
    ROWS = 3
    COLUMNS = 4
    OFFSET = 5
    ROW = 6  # stride of a row in ours
    COLUMN = 7


class Setting(IntEnum):
    """Numbers that may change between iterations."""

    GAMMA = 0
    LAMBDA = 1
    LEARNING_RATE = 2
    CLIP = 3
    VALUE_CLIP = 4  # infinite: none
    ENTROPY = 5
    VALUE = 6
    MAX_NORM = 7  # infinite: none
    KL_LIMIT = 8  # infinite: none
    BETA_1 = 9
    BETA_2 = 10
    EPSILON = 11
    DECAY = 12
    STEP = 13  # updates the optimizer has made; written back
    BOUND = 14  # of a normalised feature
    TAU = 15
    HUBER = 16  # infinite: squared everywhere
    TARGET_ENTROPY = 17
    EPSILON_GREEDY = 18
    MADE = 19  # updates the agent has made


class Stat(IntEnum):
    """Sums over the updates of one iteration; from EXPLAINED on they are of its rollout."""

    POLICY_LOSS = 0
    VALUE_LOSS = 1
    ENTROPY = 2
    KL = 3
    CLIPPED = 4
    STOPPED = 5
    NORM_ACTOR = 6
    NORM_CRITIC = 7
    NORM_TRUNK = 8
    NORM_TOTAL = 9
    UPDATES = 10
    BROKEN = 11  # updates not made, as loss or gradient was not a number
    LOST = 12  # of these, by their loss
    HALTED = 13  # target_kl was exceeded: no further update of this rollout
    EXPLAINED = 14
    WEIGHT_MEAN = 15
    WEIGHT_STD = 16
    RETURN_MEAN = 17
    TOTAL_LOSS = 18  # written when the numbers are told


class Lane(IntEnum):
    """Sums over the samples of a minibatch, one per place in a tile."""

    POLICY_LOSS = 0
    VALUE_LOSS = 1
    ENTROPY = 2
    KL = 3
    CLIPPED = 4


class Sum(IntEnum):
    """The same of an update from a replay memory."""

    Q_LOSS = 0
    POLICY_LOSS = 1
    Q = 2
    TARGET = 3
    ERROR = 4
    ENTROPY = 5


class Told(IntEnum):
    """What is told of updates from a replay memory: the first as Sum, over the updates that are told of."""

    ALPHA = 6
    NORM = 7
    UPDATES = 8
    EVERY_LOSS = 9  # Q_LOSS over all updates
    SOUND = 10  # of the update under way
    BROKEN = 11


class Moment(IntEnum):
    """Sums over rows, less an offset, in double precision."""

    COUNT = 0
    WEIGHT = 1
    WEIGHT_2 = 2
    TARGET = 3
    TARGET_2 = 4
    ERROR = 5
    ERROR_2 = 6
    RETURN = 7


TILE = 64  # samples that pass through the nets together: their activations stay in the innermost cache
ENTRIES, LAYER_ROW, TENSOR_ROW, LANE_SUMS = len(At), len(Layer), len(Tensor), len(Lane)
SETTINGS, STATS, SUMS, MOMENTS = len(Setting), len(Stat), len(Sum), len(Moment)
