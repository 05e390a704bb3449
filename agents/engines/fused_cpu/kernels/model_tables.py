"""The tables of a world model's kernels: what each is handed, which kernel writes an array, and which read it.

Letters as in agents/networks/world_model.py: T steps of B sequences, D = deter, S choices of C classes, F = S * C,
W = width, E = D + F features; H steps imagined from K starts, A numbers of an encoded action. Arrays are float32 where
nothing else is said. Rows are [.., numbers], as torch stores them; vectors are [.., numbers, 16]: 16 rows side by side.
"""

from typing import NamedTuple

from stride.agents.engines.fused_cpu.kernels.address_table import HOST, AddressTable, address, count, number, view
from stride.agents.engines.fused_cpu.kernels.vectors import BYTES
from stride.utils.kernel_cache import njit

PARTS = 8  # sums over rows are made of so many pieces, whichever thread makes them


class ModelTable(AddressTable):
    """Sizes and weights of a world model."""

    deter = count()
    width = count()
    choices = count()
    classes = count()
    stoch = count()
    unimix = number()  # fraction of uniform chances
    from_stoch = address("W F", HOST, "imagine", "forward", "backward")
    input_scale = address("W", HOST, "imagine", "forward", "backward")
    gates = address("3D W+D", HOST, "imagine", "forward", "backward")
    gates_scale = address("3D", HOST, "imagine", "forward", "backward")
    from_deter = address("W D", HOST, "forward", "backward")  # of the posterior, as all that follow
    posterior_scale = address("W", HOST, "forward", "backward")
    posterior = address("F W", HOST, "forward", "backward")
    posterior_bias = address("F", HOST, "forward")


class ScanTable(AddressTable):
    """A pass through sequences. A group is 16 sequences."""

    model = address("ModelTable", HOST, "forward", "backward")
    threads = count()
    steps = count()
    sequences = count()
    prepared = address("T B W", HOST, "forward")  # actions
    tokens = address("T B W", HOST, "forward")  # what is seen, projected
    keep = address("T B", HOST, "forward", "backward")  # 0 where an episode begins, else 1
    uniforms = address("T B S", HOST, "forward")
    deter = address("T B D", "forward", HOST)
    stoch = address("T B F", "forward", HOST)
    log_probs = address("T B F", "forward", HOST)
    stoch_before = address("T B F", "forward", HOST)  # of the step before: inputs of layers, as the next two
    joined = address("T B W+D", "forward", HOST)  # input of the gates
    hidden = address("T B W", "forward", HOST)  # of the posterior
    residuals = address("B/16 T residuals 16", "forward", "backward")  # vectors: `residual_size`
    scratch = address("B/16 scratch 16", "forward", "backward")  # vectors: `scratch_size`
    slopes = address("ScanSlopes", HOST, "backward")


class ScanSlopes(AddressTable):
    """Slopes of a loss at the results of a scan, then at the sums of its layers."""

    deter = address("T B D", HOST, "backward")
    stoch = address("T B F", HOST, "backward")
    log_probs = address("T B F", HOST, "backward")
    logits = address("T B F", "backward", HOST)
    tokens = address("T B W", "backward", HOST)
    gates = address("T B 3D", "backward", HOST)
    prepared = address("T B W", "backward", HOST)
    scales = address("B/16 2W+3D 16", "backward", HOST)  # of the norms of input [W], gates [3 D], posterior [W]


class NetLayer(AddressTable):
    """A row of a net's layers: the hidden ones, then the head."""

    weight = address("width inner", HOST, "net_forward", "net_backward")
    scale = address("width", HOST, "net_forward", "net_backward")  # of a hidden layer's norm, or the head's bias
    inner = count()
    width = count()


class NetTable(AddressTable):
    """A net and the N rows that pass through it."""

    layers = address("NetLayer", HOST, "net_forward", "net_backward")
    hidden = count()  # hidden layers, at least 1, all of one width
    width = count()
    outputs = count()
    rows = count()
    gradients = address("NetGradients", HOST, "net_forward", "net_backward")  # 0: none are wanted


class NetGradients(AddressTable):
    """Arrays for a net's backward pass: it has L hidden layers and O outputs."""

    activations = address("L N W", "net_forward", HOST)
    residuals = address("L N/16 W+1 16", "net_forward", "net_backward")  # normed inputs, and their rates
    slope_out = address("N O", "net_backward", HOST)
    slopes = address("L N W", "net_backward", HOST)  # at the sums of hidden layers
    scales = address(f"L {PARTS} W 16", "net_backward", HOST, zero=True)  # slopes of the norms' scales


class Product(AddressTable):
    """A row of products: out [O, I] += slope.T @ input, over N rows; I is a multiple of 16."""

    slope = address("N O", HOST, "products")
    input = address("N I", HOST, "products")
    out = address("O I", "products", HOST, zero=True)
    depth = count()  # N
    width = count()  # O
    inner = count()  # I


class ProductTable(AddressTable):
    """All products of a backward pass."""

    products = address("Product", HOST, "products")
    row_count = count()
    threads = count()


class DreamTable(AddressTable):
    """An imagination of Dreamer, and the losses on it. K is a multiple of 16."""

    model = address("ModelTable", HOST, "imagine")
    prior = address("NetTable", HOST, "imagine")
    actor = address("NetTable", HOST, "imagine", "learn")
    critic = address("NetTable", HOST, "imagine", "learn")
    slow = address("NetTable", HOST, "imagine")
    last = address("NetTable", HOST, "imagine")  # the critic at the last states, without gradients
    reward = address("NetTable", HOST, "imagine")
    goes_on = address("NetTable", HOST, "imagine")
    from_action = address("W A", HOST, "imagine")
    bin_values = address("bins", HOST, "imagine", "learn")
    options = address("choices", HOST)  # int64, of each choice
    encoded = count()  # A
    choices = count()  # of an action; 0 where it is numbers
    bins = count()
    widest = count()  # hidden layer of all nets
    most_outputs = count()  # of all nets
    steps = count()
    starts = count()
    threads = count()
    gamma = number()
    return_lambda = number()
    slow_coef = number()
    ent_coef = number()
    weight = number()  # of one action in a mean over all of them
    span = number()  # of the returns, which advantages are divided by

    features = address("H+1 K E", "imagine", HOST)  # the first of them are given
    actions = address("H K numbers", "imagine", "learn", HOST)  # int64 choices, or A floats
    prior_uniforms = address("H K S", HOST, "imagine")
    action_draws = address("H K numbers", HOST, "imagine")  # uniforms of choices, or normals
    alive = address("K", HOST, "imagine")  # 0 where there is nothing to do

    # what the nets say: two arrays of vectors, then rows
    actor_outputs = address("H K outputs", "imagine", "learn")
    critic_logits = address("H K bins", "imagine", "learn")
    values = address("H+1 K", "imagine", "learn")
    slow_values = address("H K", "imagine", "learn")
    rewards = address("H K", "imagine")  # on arriving at the state after
    discounts = address("H K", "imagine")  # of what follows from there
    returns = address("H K", "imagine", "learn", HOST)
    weights = address("H K", "imagine", "learn")  # how likely there is anything left to do

    # what is learnt from it, each with its weight in the mean
    policy_loss = address("H K", "learn", HOST)
    critic_loss = address("H K", "learn", HOST)
    entropy = address("H K", "learn", HOST)
    scratch = address("threads scratch", HOST, "imagine", "learn")
    scratch_size = count()  # bytes of a thread


class RecallTable(AddressTable):
    """Losses on remembered sequences; N = T * B states."""

    model = address("ModelTable", HOST, "tell", "value")
    prior = address("NetTable", HOST, "tell")  # reads deter alone
    goes_on = address("NetTable", HOST, "tell")
    reward = address("NetTable", HOST, "tell")
    vector = address("NetTable", HOST)  # 0: the model sees no vector
    critic = address("NetTable", HOST, "value")  # 0: there is none
    slow = address("NetTable", HOST, "value")
    bin_values = address("bins", HOST, "tell", "value")
    steps = count()
    sequences = count()
    threads = count()
    observed_size = count()  # numbers of the vector
    bins = count()
    most_outputs = count()  # of a net
    state_weight = number()  # of a state in a mean over all of them
    free_nats = number()
    prior_coef = number()
    posterior_coef = number()
    observation_coef = number()
    end_weight = number()
    log_end_weight = number()  # by which logits are taken too high, as ends count more
    gamma = number()
    return_lambda = number()
    slow_coef = number()
    replay_weight = number()  # of the critic's loss of a state

    features = address("T B E", HOST, "tell", "value")
    log_probs = address("T B F", HOST, "tell")  # of the posterior
    observed = address("T B observed", HOST)  # the vector that was seen
    rewards = address("T B", HOST, "tell", "look_back")
    ended = address("T B", HOST, "tell", "look_back")  # 1 where the episode did, else 0
    first = address("T B", HOST, "look_back")  # 1 where it begins

    # of each state, with its weight in the mean: losses, then metrics. Rows of one array [LOSSES, N], zeros at first
    observation_loss = address("N", "tell", HOST)
    reward_loss = address("N", "tell", HOST)
    going_on_loss = address("N", "tell", HOST)
    pulled = address("N", "tell", HOST)  # the divergence, or the free nats where they are more
    replay_loss = address("N", "tell", HOST)
    divergence = address("N", "tell", HOST)
    end_chance = address("N", "tell", HOST)
    critic_weight = address("N", "look_back", "tell", HOST)  # 1 where a return is known, else 0
    reached = address("N", "look_back", HOST)  # that return

    # of the critic: vectors, then rows
    critic_logits = address("N bins", "value", "tell")
    values = address("N", "value", "look_back")
    slow_values = address("N", "value", "tell")
    targets = address("N", "look_back", "tell")

    deter_slopes = address("T B D", "tell", HOST)
    stoch_slopes = address("T B F", "tell", HOST)
    log_prob_slopes = address("T B F", "tell", HOST)
    scratch = address("threads scratch", HOST, "tell", "value")
    scratch_size = count()  # bytes of a thread


LOSSES = (
    "observation_loss", "reward_loss", "going_on_loss", "pulled", "replay_loss", "divergence", "end_chance",
    "critic_weight", "reached",
)  # fmt: skip

LAYER_BYTES = NetLayer.dtype.itemsize
PRODUCT_BYTES = Product.dtype.itemsize
model_at = view(ModelTable)
scan_at = view(ScanTable)
slopes_at = view(ScanSlopes)
layer_at = view(NetLayer)
net_at = view(NetTable)
gradients_at = view(NetGradients)
product_at = view(Product)
products_at = view(ProductTable)
dream_at = view(DreamTable)
recall_at = view(RecallTable)


class DreamScratch(NamedTuple):
    """The scratch in which a thread imagines from 16 starts: addresses of vectors."""

    features: int  # [E]
    stoch: int  # [F], the last of them
    joined: int  # [W + D]
    residuals: int  # what the cell keeps
    hidden: int  # space for any net
    action: int  # [A], encoded
    draws: int  # [S] or of an action, at most A
    probabilities: int  # [F]
    chances: int  # [bins + 1]
    end: int


@njit(inline="always")
def dream_scratch(
    begin: int, deter: int, width: int, stoch: int, encoded: int, widest: int, most_outputs: int
) -> DreamScratch:
    """The scratch that begins at `begin`; with 0 its `end` is its size in bytes."""
    joined = begin + (deter + stoch) * BYTES
    residuals = joined + (width + deter) * BYTES
    hidden = residuals + (width + 2 + 3 * deter) * BYTES
    action = hidden + (3 * widest + most_outputs + 1) * BYTES
    draws = action + encoded * BYTES
    probabilities = draws + max(stoch, encoded) * BYTES
    chances = probabilities + stoch * BYTES
    end = chances + (most_outputs + 1) * BYTES
    return DreamScratch(
        begin, begin + deter * BYTES, joined, residuals, hidden, action, draws, probabilities, chances, end
    )
