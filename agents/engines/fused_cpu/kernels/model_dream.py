"""Dreamer's imagination, and learning from it: 16 starts side by side, step after step.

`imagine` does what Dreamer.behaviour_loss does in torch, up to the returns. In each step the actor chooses an action,
the cell computes the next deterministic state, and the prior samples the next stochastic one. All nets judge a state
while it is in the level 1 cache, and what the backward passes of actor and critic need is kept. Threads take 16 starts
at a time. `learn` does the rest: losses of actor and critic, and their slopes through both nets. Weights get their
gradients later, from one product over all rows (model_nets.py). Results do not depend on the number of threads.

`index` is the number of a group of 16 rows in an array [H, K]; `first` is the first of 16 starts.
"""

from stride.agents.engines.fused_cpu.kernels.calls import PIECE, longs
from stride.agents.engines.fused_cpu.kernels.model_cell import (
    add_product,
    clear,
    copy,
    next_deter,
    sample_one_hot,
    to_lanes,
    to_rows,
)
from stride.agents.engines.fused_cpu.kernels.model_heads import (
    predict_number,
    sample_choice,
    sample_numbers,
    slopes_of_choice,
    slopes_of_numbers,
    two_target_loss,
)
from stride.agents.engines.fused_cpu.kernels.model_nets import net_backward, net_forward
from stride.agents.engines.fused_cpu.kernels.model_tables import (
    PARTS,
    DreamScratch,
    dream_at,
    dream_scratch,
    model_at,
    net_at,
)
from stride.agents.engines.fused_cpu.kernels.vectors import BYTES, load, sigmoid, store
from stride.agents.engines.plan.layout import LANES
from stride.utils.kernel_cache import njit

EXTRA_VECTORS = 4  # of working memory for learning, besides those of a net


@njit(inline="always")
def scratch_of(table: int, thread: int) -> DreamScratch:
    """Return the addresses of this thread's working memory."""
    d = dream_at(table)
    m = model_at(d.model)
    begin = d.scratch + thread * d.scratch_size
    return dream_scratch(begin, m.deter, m.width, m.stoch, d.encoded, d.widest, d.most_outputs)


@njit(inline="always")
def predict(table: int, thread: int, net: int, index: int, residuals: int, out: int) -> None:
    """Write the number that a net predicts from the features to out; copy logits to `residuals` unless that is 0."""
    d = dream_at(table)
    scratch = scratch_of(table, thread)
    predict_number(net, index, scratch.features, scratch.hidden, scratch.chances, d.bin_values, d.bins, residuals,
              out + index * BYTES)  # fmt: skip


@njit(**PIECE)
def imagined_returns(table: int, first: int) -> None:
    """Write returns and weights of all steps of 16 starts, as `arrival_returns` and Dreamer.behaviour_loss do."""
    d = dream_at(table)
    groups = d.starts // LANES
    return_lambda = d.return_lambda
    begin = first // LANES
    following = load(d.values, begin + d.steps * groups)
    weight = load(d.alive, begin)
    for back in range(1, d.steps + 1):
        index = begin + (d.steps - back) * groups
        value = load(d.values, index + groups)
        following = load(d.rewards, index) + load(d.discounts, index) * (
            value * (1.0 - return_lambda) + following * return_lambda
        )
        store(d.returns, index, following)
    for t in range(d.steps):
        store(d.weights, begin + t * groups, weight)
        weight = weight * load(d.discounts, begin + t * groups)


@njit(**PIECE)
def act(table: int, thread: int, t: int, first: int) -> None:
    """Sample the actor's action at the features: encoded to the scratch, and as it is to row `t` of the actions."""
    d = dream_at(table)
    scratch = scratch_of(table, thread)
    choices = d.choices
    index = (t * d.starts + first) // LANES
    outputs = net_forward(d.actor, index, scratch.features, scratch.hidden)
    copy(outputs, d.actor_outputs + index * net_at(d.actor).outputs * BYTES, net_at(d.actor).outputs)
    count = choices if choices else d.encoded
    row = LANES * index * count
    to_lanes(d.action_draws + 4 * row, count, scratch.draws, count)
    if not choices:
        sample_numbers(outputs, d.encoded, scratch.draws, scratch.action, d.actions + 4 * row)
        return
    options = longs(d.options, choices)
    offset = 0
    for j in range(choices):
        numbers = d.actions + 8 * (row + j)
        sample_choice(
            outputs + offset, options[j], scratch.draws + j * BYTES, scratch.action + offset, numbers, choices
        )
        offset += options[j] * BYTES


@njit(**PIECE)
def step(table: int, thread: int, t: int, first: int) -> None:
    """Replace the features in the scratch by those of the next state."""
    d = dream_at(table)
    m = model_at(d.model)
    scratch = scratch_of(table, thread)
    act(table, thread, t, first)
    clear(scratch.joined, m.width)
    add_product(d.from_action, d.encoded, 1, scratch.action, scratch.joined, m.width, d.encoded)
    copy(scratch.features, scratch.joined + m.width * BYTES, m.deter)
    next_deter(d.model, scratch.stoch, scratch.joined, scratch.residuals, scratch.features)
    logits = net_forward(d.prior, 0, scratch.features, scratch.hidden)
    to_lanes(d.prior_uniforms + 4 * (t * d.starts + first) * m.choices, m.choices, scratch.draws, m.choices)
    sample_one_hot(d.model, logits, scratch.draws, scratch.probabilities, scratch.stoch)


@njit(**PIECE)
def reward_and_discount(table: int, thread: int, index: int) -> None:
    """Write the predicted reward for reaching the features, and the discount of everything after that."""
    d = dream_at(table)
    scratch = scratch_of(table, thread)
    predict(table, thread, d.reward, index, 0, d.rewards)
    goes_on = sigmoid(load(net_forward(d.goes_on, index, scratch.features, scratch.hidden), 0))
    store(d.discounts, index, goes_on * d.gamma)


@njit(**PIECE)
def imagine(table: int, thread: int) -> None:
    """Imagine all steps from this thread's starts, 16 at a time, and compute the returns."""
    d = dream_at(table)
    m = model_at(d.model)
    scratch = scratch_of(table, thread)
    size = m.deter + m.stoch
    for first in range(LANES * thread, d.starts, LANES * d.threads):
        to_lanes(d.features + 4 * first * size, size, scratch.features, size)
        for t in range(d.steps):
            index = (t * d.starts + first) // LANES
            predict(table, thread, d.critic, index, d.critic_logits + index * d.bins * BYTES, d.values)
            predict(table, thread, d.slow, index, 0, d.slow_values)
            step(table, thread, t, first)
            to_rows(scratch.features, d.features + 4 * ((t + 1) * d.starts + first) * size, size, size)
            reward_and_discount(table, thread, index)
        predict(table, thread, d.last, (d.steps * d.starts + first) // LANES, 0, d.values)
        imagined_returns(table, first)


# --- losses of actor and critic


@njit(inline="always")
def learn_scratch_size(most_outputs: int, widest: int) -> int:
    """Return the vectors of a thread's working memory in `learn`: slopes, probabilities, two hidden layers, and few."""
    return 2 * most_outputs + 2 * widest + EXTRA_VECTORS


@njit(**PIECE)
def learn(table: int, thread: int) -> None:
    """Compute losses and slopes of actor and critic for this thread's parts of the rows."""
    d = dream_at(table)
    groups = d.steps * d.starts // LANES
    out = d.scratch + thread * d.scratch_size
    for part in range(thread, PARTS, d.threads):
        for index in range(part * groups // PARTS, (part + 1) * groups // PARTS):
            critic_losses(table, index, out)
            net_backward(d.critic, out, index, part, out + net_at(d.critic).outputs * BYTES)
            actor_losses(table, index, out)
            net_backward(d.actor, out, index, part, out + net_at(d.actor).outputs * BYTES)


@njit(**PIECE)
def critic_losses(table: int, index: int, out: int) -> None:
    """Compute the critic's loss and the slopes at its logits, `out`; targets: returns and the slow critic's values."""
    d = dream_at(table)
    offset = index * BYTES
    store(out, d.bins + 1, load(d.weights, index) * d.weight)
    two_target_loss(
        d.bin_values, d.bins, d.critic_logits + d.bins * offset, d.returns + offset, d.slow_values + offset,
        d.slow_coef, out, d.critic_loss + offset,
    )  # fmt: skip


@njit(**PIECE)
def actor_losses(table: int, index: int, out: int) -> None:
    """Compute the actor's loss and entropy, and write the slopes at its outputs to `out`."""
    d = dream_at(table)
    count = net_at(d.actor).outputs
    choices = d.choices
    offset = index * BYTES
    outputs = d.actor_outputs + count * offset
    loss = d.policy_loss + offset
    entropy = d.entropy + offset
    credit = out + count * BYTES  # weight of log-probability in the loss: the advantage
    entropy_weight = out + (count + 1) * BYTES
    scratch = out + (count + 2) * BYTES
    clear(loss, 1)
    clear(entropy, 1)
    weight = load(d.weights, index) * d.weight
    store(credit, 0, weight * (load(d.returns, index) - load(d.values, index)) / d.span)
    store(entropy_weight, 0, weight * d.ent_coef)
    if not choices:
        rows = d.actions + 4 * LANES * index * d.encoded
        slopes_of_numbers(outputs, d.encoded, rows, scratch, credit, entropy_weight, out, loss, entropy)
        return
    options = longs(d.options, choices)
    offset = 0
    for j in range(choices):
        numbers = d.actions + 8 * (LANES * index * choices + j)
        slopes_of_choice(
            outputs + offset, options[j], numbers, choices, scratch, credit, entropy_weight, out + offset, loss, entropy
        )
        offset += options[j] * BYTES
