"""A world model's losses on remembered sequences, and their slopes, for 16 states at a time.

The losses are those of `model_loss` and Dreamer.replay_loss, without those of pictures. Each net goes forward and
backward while its rows are in the level 1 cache; weights get their gradients later, from one product over all rows
(model_nets.py). Sums over rows are made in PARTS parts, so results do not depend on the number of threads. Each loss of
a state is multiplied by the state's weight in the mean. Letters: E = D + F features, N = T * B states, as in
model_tables.py. `index` is the number of a group of 16 states.
"""

from stride.agents.engines.fused_cpu.kernels.calls import PIECE
from stride.agents.engines.fused_cpu.kernels.model_cell import add_product, clear, mix_uniform, to_lanes, to_rows
from stride.agents.engines.fused_cpu.kernels.model_heads import (
    predict_number,
    softmax,
    subtract_two_hot,
    two_target_loss,
)
from stride.agents.engines.fused_cpu.kernels.model_nets import net_backward, net_forward
from stride.agents.engines.fused_cpu.kernels.model_scan import slope_of_draw
from stride.agents.engines.fused_cpu.kernels.model_tables import PARTS, layer_at, model_at, net_at, recall_at
from stride.agents.engines.fused_cpu.kernels.vectors import (
    BYTES,
    at_most,
    exp,
    larger,
    load,
    log,
    sigmoid,
    splat,
    store,
)
from stride.agents.engines.plan.layout import LANES
from stride.utils.kernel_cache import njit

EXTRA_VECTORS = 4  # after the slopes of a net: logarithmic divisor of its probabilities, a weight, two for a bin


@njit(inline="always")
def scratch_size(features: int, stoch: int, most_outputs: int, widest: int) -> int:
    """Return the vectors of a thread's working memory.

    They are features and slopes at them, four times F for the KL divergence, slopes at a net's outputs, its layers.
    """
    return 2 * features + 4 * stoch + (most_outputs + EXTRA_VECTORS) + (3 * widest + most_outputs + 1)


@njit(**PIECE)
def critic_values(table: int, thread: int) -> None:
    """Write the values of both critics for this thread's states, and the logits of the one that learns."""
    t = recall_at(table)
    m = model_at(t.model)
    bins = t.bins
    size = m.deter + m.stoch
    x = t.scratch + thread * t.scratch_size
    chances = x + size * BYTES
    scratch = x + (size + bins + 1) * BYTES
    for index in range(thread, t.steps * t.sequences // LANES, t.threads):
        to_lanes(t.features + 4 * LANES * index * size, size, x, size)
        logits = t.critic_logits + index * bins * BYTES
        offset = index * BYTES
        predict_number(t.critic, index, x, scratch, chances, t.bin_values, bins, logits, t.values + offset)
        predict_number(t.slow, index, x, scratch, chances, t.bin_values, bins, 0, t.slow_values + offset)


@njit(**PIECE)
def replay_returns(table: int) -> None:
    """Write lambda-returns of all states but those of the last step, and the weights of these.

    A state that the first state of another episode follows has no successor, so its weight is 0.
    """
    t = recall_at(table)
    groups = t.sequences // LANES
    steps = t.steps
    for group in range(groups):
        last = (steps - 1) * groups + group
        following = load(t.values, last)
        store(t.targets, last, splat(0.0))  # unused: its weight stays 0
        for back in range(1, steps):
            index = last - back * groups
            after = index + groups
            goes = 1.0 - load(t.first, after)
            discount = goes * (1.0 - load(t.ended, after)) * t.gamma
            reward = load(t.values, index) * (1.0 - goes) + load(t.rewards, after) * goes
            one_step = load(t.values, after) * (1.0 - t.return_lambda)
            following = reward + discount * (one_step + following * t.return_lambda)
            store(t.targets, index, following)
            store(t.critic_weight, index, goes)
            store(t.reached, index, goes * following)


@njit(**PIECE)
def state_losses(table: int, thread: int) -> None:
    """Compute losses and slopes for this thread's parts of the states."""
    t = recall_at(table)
    groups = t.steps * t.sequences // LANES
    for part in range(thread, PARTS, t.threads):
        for index in range(part * groups // PARTS, (part + 1) * groups // PARTS):
            group_losses(table, thread, index, part)


@njit(**PIECE)
def group_losses(table: int, thread: int, index: int, part: int) -> None:
    """Compute losses and slopes of 16 states: for each net the loss, then back to the features, where slopes add up."""
    t = recall_at(table)
    m = model_at(t.model)
    deter = m.deter
    stoch = m.stoch
    size = deter + stoch
    x = t.scratch + thread * t.scratch_size
    x_slopes = x + size * BYTES
    guess = x_slopes + size * BYTES
    out = guess + 4 * stoch * BYTES
    scratch = out + (t.most_outputs + EXTRA_VECTORS) * BYTES
    to_lanes(t.features + 4 * LANES * index * size, size, x, size)
    clear(x_slopes, size)
    kl_losses(table, index, net_forward(t.prior, index, x, scratch), guess, out)
    feature_slopes(t.prior, index, part, out, x_slopes, scratch)
    going_on_losses(table, index, net_forward(t.goes_on, index, x, scratch), out)
    feature_slopes(t.goes_on, index, part, out, x_slopes, scratch)
    reward_losses(table, index, net_forward(t.reward, index, x, scratch), out)
    feature_slopes(t.reward, index, part, out, x_slopes, scratch)
    if t.vector:
        vector_losses(table, index, net_forward(t.vector, index, x, scratch), out)
        feature_slopes(t.vector, index, part, out, x_slopes, scratch)
    if t.critic:
        critic_losses(table, index, out)
        feature_slopes(t.critic, index, part, out, x_slopes, scratch)
    to_rows(x_slopes, t.deter_slopes + 4 * LANES * index * deter, deter, deter)
    to_rows(x_slopes + deter * BYTES, t.stoch_slopes + 4 * LANES * index * stoch, stoch, stoch)


@njit(**PIECE)
def feature_slopes(net: int, index: int, part: int, out: int, x_slopes: int, scratch: int) -> None:
    """Take the slopes at a net's outputs back through it, and add the result to the slopes at the features."""
    slopes = net_backward(net, out, index, part, scratch)
    first = layer_at(net_at(net).layers)
    add_product(first.weight, 1, first.inner, slopes, x_slopes, first.inner, first.width)


# --- losses: each reads the outputs of its net and writes the slopes at them to `out`


@njit(**PIECE)
def kl_losses(table: int, index: int, logits: int, scratch: int, out: int) -> None:
    """Compute the KL divergence of posterior and prior; below the free nats it has no slope.

    Writes the slopes at the prior's logits to `out`, and those at the posterior's log-probabilities as rows. Each has
    its own coefficient.
    """
    t = recall_at(table)
    count = model_at(t.model).stoch
    posterior = scratch
    probabilities = scratch + count * BYTES
    zeros = scratch + 3 * count * BYTES
    prior_slopes = scratch + 2 * count * BYTES
    to_lanes(t.log_probs + 4 * LANES * index * count, count, posterior, count)
    mix_uniform(t.model, logits, probabilities)
    kl = splat(0.0)
    for i in range(count):
        log_p = load(posterior, i)
        kl = kl + exp(log_p) * (log_p - load(logits, i))
    pulled = at_most(splat(t.free_nats), kl) * t.state_weight
    store(t.divergence, index, kl * t.state_weight)
    store(t.pulled, index, larger(kl, splat(t.free_nats)) * t.state_weight)
    for i in range(count):
        log_p = load(posterior, i)
        p = exp(log_p) * pulled
        store(prior_slopes, i, -p * t.prior_coef)
        store(posterior, i, p * (log_p - load(logits, i) + 1.0) * t.posterior_coef)
    to_rows(posterior, t.log_prob_slopes + 4 * LANES * index * count, count, count)
    clear(zeros, count)
    slope_of_draw(t.model, probabilities, prior_slopes, zeros, out)


@njit(**PIECE)
def going_on_losses(table: int, index: int, logits: int, out: int) -> None:
    """Compute `going_on_loss`, the cross-entropy of whether the episode goes on, and the probability of an end."""
    t = recall_at(table)
    logit = load(logits, 0)
    ended = load(t.ended, index)
    store(t.end_chance, index, sigmoid(-logit))
    x = logit - t.log_end_weight
    weight = (1.0 + ended * (t.end_weight - 1.0)) * t.state_weight
    loss = log(1.0 + exp(-larger(x, -x))) + larger(x, splat(0.0)) - x * (1.0 - ended)
    store(t.going_on_loss, index, weight * loss)
    store(out, 0, weight * (sigmoid(x) - (1.0 - ended)))


@njit(**PIECE)
def reward_losses(table: int, index: int, logits: int, out: int) -> None:
    """Compute the two-hot loss of the predicted reward."""
    t = recall_at(table)
    offset = index * BYTES
    bins = t.bins
    loss = t.reward_loss + offset
    weight = out + (bins + 1) * BYTES
    neighbours = out + (bins + 2) * BYTES
    softmax(logits, bins, out)
    store(weight, 0, splat(t.state_weight))
    store(loss, 0, load(out, bins) * t.state_weight)
    for i in range(bins):
        store(out, i, load(out, i) * t.state_weight)
    subtract_two_hot(t.bin_values, bins, logits, t.rewards + offset, weight, neighbours, out, loss)


@njit(**PIECE)
def vector_losses(table: int, index: int, predicted: int, out: int) -> None:
    """Compute the squared error of the predicted vector."""
    t = recall_at(table)
    count = t.observed_size
    weight = t.observation_coef
    weight *= t.state_weight
    to_lanes(t.observed + 4 * LANES * index * count, count, out, count)
    loss = splat(0.0)
    for i in range(count):
        error = load(predicted, i) - load(out, i)
        loss = loss + error * error * weight
        store(out, i, error * (weight + weight))
    store(t.observation_loss, index, loss)


@njit(**PIECE)
def critic_losses(table: int, index: int, out: int) -> None:
    """Compute the critic's loss, with the returns and the slow critic's values as targets."""
    t = recall_at(table)
    offset = index * BYTES
    store(out, t.bins + 1, load(t.critic_weight, index) * t.replay_weight)
    two_target_loss(
        t.bin_values, t.bins, t.critic_logits + t.bins * offset, t.targets + offset, t.slow_values + offset,
        t.slow_coef, out, t.replay_loss + offset,
    )  # fmt: skip
