"""The tables that the kernels of world models (Dreamer, PlaNet) receive: their arrays, and who writes and reads each.

Letters as in agents/networks/world_model.py: T steps of B sequences, D = deter, S choices of C classes, F = S * C,
W = width, E = D + F features; H steps imagined from K starts, A numbers of an encoded action. Arrays are float32 where
nothing else is said. Rows are [.., numbers], as torch stores them; vectors are [.., numbers, 16]: each number of 16
rows side by side. A slope is the derivative of the loss with respect to a value.
"""

from typing import NamedTuple

from stride.agents.engines.fused_cpu.kernels.address_table import HOST, AddressTable, address, count, number, view
from stride.agents.engines.fused_cpu.kernels.vectors import BYTES
from stride.utils.kernel_cache import njit

PARTS = 8  # sums over rows are made in so many parts, for any number of threads, so that results do not depend on it


class ModelTable(AddressTable):
    """Sizes and weights of a world model's recurrent part."""

    deter = count()  # D
    width = count()  # W
    choices = count()  # S
    classes = count()  # C
    stoch = count()  # F
    unimix = number()  # share of uniform probability in each choice
    from_stoch = address("W F", HOST, "imagine", "forward", "backward")
    input_scale = address("W", HOST, "imagine", "forward", "backward")
    gates = address("3D W+D", HOST, "imagine", "forward", "backward")
    gates_scale = address("3D", HOST, "imagine", "forward", "backward")
    from_deter = address("W D", HOST, "forward", "backward")  # this and the rest belong to the posterior
    posterior_scale = address("W", HOST, "forward", "backward")
    posterior = address("F W", HOST, "forward", "backward")
    posterior_bias = address("F", HOST, "forward")


class ScanTable(AddressTable):
    """A pass through observed sequences. A group is 16 sequences."""

    model = address("ModelTable", HOST, "forward", "backward")
    threads = count()
    steps = count()
    sequences = count()
    prepared = address("T B W", HOST, "forward")  # actions, projected
    tokens = address("T B W", HOST, "forward")  # encoded observations, projected
    keep = address("T B", HOST, "forward", "backward")  # 0 where an episode begins, else 1
    uniforms = address("T B S", HOST, "forward")
    deter = address("T B D", "forward", HOST)
    stoch = address("T B F", "forward", HOST)
    log_probs = address("T B F", "forward", HOST)
    # inputs of layers, for the gradients of their weights: stoch of the step before, input of the gates, hidden layer
    stoch_before = address("T B F", "forward", HOST)
    joined = address("T B W+D", "forward", HOST)
    hidden = address("T B W", "forward", HOST)
    residuals = address("B/16 T residuals 16", "forward", "backward")  # `residual_size` vectors for a step
    scratch = address("B/16 scratch 16", "forward", "backward")  # `scratch_size` vectors for a group
    slopes = address("ScanSlopes", HOST, "backward")


class ScanSlopes(AddressTable):
    """Slopes of a loss: at the results of a scan (given), and at the sums of its layers (computed)."""

    deter = address("T B D", HOST, "backward")
    stoch = address("T B F", HOST, "backward")
    log_probs = address("T B F", HOST, "backward")
    logits = address("T B F", "backward", HOST)
    tokens = address("T B W", "backward", HOST)
    gates = address("T B 3D", "backward", HOST)
    prepared = address("T B W", "backward", HOST)
    scales = address("B/16 2W+3D 16", "backward", HOST)  # of the norms of input [W], gates [3 D], posterior [W]


class NetLayer(AddressTable):
    """One layer of a net. The hidden layers are in order, and the head is the last row."""

    weight = address("width inner", HOST, "net_forward", "net_backward")
    scale = address("width", HOST, "net_forward", "net_backward")  # scale of a hidden layer's norm; a head's bias
    inner = count()  # inputs
    width = count()  # outputs


class NetTable(AddressTable):
    """A net and the N rows that pass through it."""

    layers = address("NetLayer", HOST, "net_forward", "net_backward")
    hidden = count()  # hidden layers, at least 1, all of one width
    width = count()
    outputs = count()
    rows = count()
    gradients = address("NetGradients", HOST, "net_forward", "net_backward")  # 0: none are wanted


class NetGradients(AddressTable):
    """Arrays of a net's backward pass over N rows: it has L hidden layers of width W, and O outputs."""

    activations = address("L N W", "net_forward", HOST)
    residuals = address("L N/16 W+1 16", "net_forward", "net_backward")  # normed sums, and 1 / what divided them
    slope_out = address("N O", "net_backward", HOST)  # slopes at the outputs
    slopes = address("L N W", "net_backward", HOST)  # slopes at the sums of hidden layers
    scales = address(f"L {PARTS} W 16", "net_backward", HOST, zero=True)  # gradients of the norms' scales, in parts


class Product(AddressTable):
    """One product, out [O, I] += slope.T @ input, a sum over N rows; I is a multiple of 16."""

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
    """Dreamer's imagined steps from K starts, and the losses of actor and critic. K is a multiple of 16."""

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
    options = address("choices", HOST)  # int64: how many options each choice of an action has
    encoded = count()  # A
    choices = count()  # how many choices an action has; 0 where an action is numbers
    bins = count()
    widest = count()  # width of the widest hidden layer of all nets
    most_outputs = count()  # of a net
    steps = count()
    starts = count()
    threads = count()
    gamma = number()
    return_lambda = number()
    slow_coef = number()
    ent_coef = number()
    weight = number()  # of one action in a mean over all of them
    span = number()  # range of the returns; advantages are divided by it

    features = address("H+1 K E", "imagine", HOST)  # those of the starts, row 0, are given
    actions = address("H K numbers", "imagine", "learn", HOST)  # int64 choices, or A floats
    prior_uniforms = address("H K S", HOST, "imagine")
    action_draws = address("H K numbers", HOST, "imagine")  # uniforms of choices, or normals
    alive = address("K", HOST, "imagine")  # 0 where the episode is over at the start, else 1

    # outputs of the nets: two arrays of vectors, then rows
    actor_outputs = address("H K outputs", "imagine", "learn")
    critic_logits = address("H K bins", "imagine", "learn")
    values = address("H+1 K", "imagine", "learn")
    slow_values = address("H K", "imagine", "learn")
    rewards = address("H K", "imagine")  # for reaching the next state
    discounts = address("H K", "imagine")  # of everything after that: gamma * probability that the episode goes on
    returns = address("H K", "imagine", "learn", HOST)
    weights = address("H K", "imagine", "learn")  # discounted probability that the episode is not over yet

    # losses, each with its weight in the mean; the entropy has none
    policy_loss = address("H K", "learn", HOST)
    critic_loss = address("H K", "learn", HOST)
    entropy = address("H K", "learn", HOST)
    scratch = address("threads scratch", HOST, "imagine", "learn")
    scratch_size = count()  # bytes of a thread


class RecallTable(AddressTable):
    """The losses of a model, and of Dreamer's critic, on remembered sequences; N = T * B states."""

    model = address("ModelTable", HOST, "state_losses", "critic_values")
    prior = address("NetTable", HOST, "state_losses")  # reads deter alone
    goes_on = address("NetTable", HOST, "state_losses")
    reward = address("NetTable", HOST, "state_losses")
    vector = address("NetTable", HOST)  # predicts the observed vector; 0: observations have none
    critic = address("NetTable", HOST, "critic_values")  # 0: there is none
    slow = address("NetTable", HOST, "critic_values")
    bin_values = address("bins", HOST, "state_losses", "critic_values")
    steps = count()
    sequences = count()
    threads = count()
    observed_size = count()  # numbers of an observed vector
    bins = count()
    most_outputs = count()  # of a net
    state_weight = number()  # of a state in a mean over all of them
    free_nats = number()
    prior_coef = number()
    posterior_coef = number()
    observation_coef = number()
    end_weight = number()
    log_end_weight = number()  # as ends count more in the loss, logits are too high by this
    gamma = number()
    return_lambda = number()
    slow_coef = number()
    replay_weight = number()  # of the critic's loss of a state

    features = address("T B E", HOST, "state_losses", "critic_values")
    log_probs = address("T B F", HOST, "state_losses")  # of the posterior
    observed = address("T B observed", HOST)  # observed vectors
    rewards = address("T B", HOST, "state_losses", "replay_returns")
    ended = address("T B", HOST, "state_losses", "replay_returns")  # 1 where the episode terminated, else 0
    first = address("T B", HOST, "replay_returns")  # 1 where an episode begins, else 0

    # losses of each state, multiplied by its weight in the mean, then metrics; rows of one array [LOSSES, N], zero at
    # first
    observation_loss = address("N", "state_losses", HOST)
    reward_loss = address("N", "state_losses", HOST)
    going_on_loss = address("N", "state_losses", HOST)
    pulled = address("N", "state_losses", HOST)  # KL divergence, at least the free nats
    replay_loss = address("N", "state_losses", HOST)
    divergence = address("N", "state_losses", HOST)  # KL divergence
    end_chance = address("N", "state_losses", HOST)
    critic_weight = address("N", "replay_returns", "state_losses", HOST)  # 1 where a return is known, else 0
    reached = address("N", "replay_returns", HOST)  # that return, else 0

    # outputs of the critics, and targets: vectors, then rows
    critic_logits = address("N bins", "critic_values", "state_losses")
    values = address("N", "critic_values", "replay_returns")
    slow_values = address("N", "critic_values", "state_losses")
    targets = address("N", "replay_returns", "state_losses")

    deter_slopes = address("T B D", "state_losses", HOST)
    stoch_slopes = address("T B F", "state_losses", HOST)
    log_prob_slopes = address("T B F", "state_losses", HOST)
    scratch = address("threads scratch", HOST, "state_losses", "critic_values")
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
    """Working memory in which a thread imagines from 16 starts: addresses of vectors."""

    features: int  # [E]
    stoch: int  # [F], the last F of the features
    joined: int  # [W + D] input of the gates
    residuals: int  # of the cell
    hidden: int  # space for any net
    action: int  # [A], encoded
    draws: int  # random numbers: [S] for a state, or at most [A] for an action
    probabilities: int  # [F]
    chances: int  # [bins + 1] probabilities of bins, and their logarithmic divisor
    end: int  # address behind all of it


@njit(inline="always")
def dream_scratch(
    begin: int, deter: int, width: int, stoch: int, encoded: int, widest: int, most_outputs: int
) -> DreamScratch:
    """Return the addresses of the working memory that begins at `begin`; with 0, `end` is its size in bytes."""
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
