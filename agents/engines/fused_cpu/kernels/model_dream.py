"""Imagination, and what is learnt from it: 16 starts side by side, step after step.

`imagine` does what Dreamer.behaviour_loss says in torch up to its returns: the actor chooses, the cell moves, the prior
guesses. Every state is judged while it is in the innermost cache, and what the ways back of actor and critic need is
kept. Starts do not depend on one another: threads take 16 at a time. `learn` does the rest: losses of actor and critic,
and their slopes through both nets. Weights' gradients are left to one product over all rows (model_nets.py). Results do
not depend on the number of threads.
"""

from stride.agents.engines.fused_cpu.kernels.calls import PIECE, longs
from stride.agents.engines.fused_cpu.kernels.model_cell import add_product, clear, copy, draw, move, to_lanes, to_rows
from stride.agents.engines.fused_cpu.kernels.model_heads import (
    choose,
    number_of,
    pull_both,
    sample_numbers,
    slopes_of_choice,
    slopes_of_numbers,
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

FEW = 4  # vectors beside those of a net


@njit(inline="always")
def scratch_of(table: int, thread: int) -> DreamScratch:
    """This thread's scratch."""
    d = dream_at(table)
    m = model_at(d.model)
    begin = d.scratch + thread * d.scratch_size
    return dream_scratch(begin, m.deter, m.width, m.stoch, d.encoded, d.widest, d.most_outputs)


@njit(inline="always")
def predict(table: int, thread: int, net: int, index: int, residuals: int, out: int) -> None:
    """The number that a net says of the features; its logits are kept unless at 0."""
    d = dream_at(table)
    scratch = scratch_of(table, thread)
    number_of(net, index, scratch.features, scratch.hidden, scratch.chances, d.bin_values, d.bins, residuals,
              out + index * BYTES)  # fmt: skip


@njit(**PIECE)
def look_back(table: int, first: int) -> None:
    """Returns and weights of 16 starts, as `arrival_returns` and Dreamer.behaviour_loss say."""
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
    """The actor's action at the features: encoded in the scratch, and written as row `t` of the actions."""
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
        choose(outputs + offset, options[j], scratch.draws + j * BYTES, scratch.action + offset, numbers, choices)
        offset += options[j] * BYTES


@njit(**PIECE)
def step(table: int, thread: int, t: int, first: int) -> None:
    """From features to those that follow them."""
    d = dream_at(table)
    m = model_at(d.model)
    scratch = scratch_of(table, thread)
    act(table, thread, t, first)
    clear(scratch.joined, m.width)
    add_product(d.from_action, d.encoded, 1, scratch.action, scratch.joined, m.width, d.encoded)
    copy(scratch.features, scratch.joined + m.width * BYTES, m.deter)
    move(d.model, scratch.stoch, scratch.joined, scratch.residuals, scratch.features)
    logits = net_forward(d.prior, 0, scratch.features, scratch.hidden)
    to_lanes(d.prior_uniforms + 4 * (t * d.starts + first) * m.choices, m.choices, scratch.draws, m.choices)
    draw(d.model, logits, scratch.draws, scratch.probabilities, scratch.stoch)


@njit(**PIECE)
def arrive(table: int, thread: int, index: int) -> None:
    """The reward on arriving at the features, and the discount of what follows."""
    d = dream_at(table)
    scratch = scratch_of(table, thread)
    predict(table, thread, d.reward, index, 0, d.rewards)
    goes_on = sigmoid(load(net_forward(d.goes_on, index, scratch.features, scratch.hidden), 0))
    store(d.discounts, index, goes_on * d.gamma)


@njit(**PIECE)
def imagine(table: int, thread: int) -> None:
    """This thread's starts, 16 at a time, all their steps."""
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
            arrive(table, thread, index)
        predict(table, thread, d.last, (d.steps * d.starts + first) // LANES, 0, d.values)
        look_back(table, first)


# --- what is learnt


@njit(inline="always")
def work_size(most_outputs: int, widest: int) -> int:
    """Vectors of a thread: slopes and chances of outputs, two hidden layers, and a few."""
    return 2 * most_outputs + 2 * widest + FEW


@njit(**PIECE)
def learn(table: int, thread: int) -> None:
    """This thread's parts of the rows."""
    d = dream_at(table)
    groups = d.steps * d.starts // LANES
    out = d.scratch + thread * d.scratch_size
    for part in range(thread, PARTS, d.threads):
        for index in range(part * groups // PARTS, (part + 1) * groups // PARTS):
            criticise(table, index, out)
            net_backward(d.critic, out, index, part, out + net_at(d.critic).outputs * BYTES)
            encourage(table, index, out)
            net_backward(d.actor, out, index, part, out + net_at(d.actor).outputs * BYTES)


@njit(**PIECE)
def criticise(table: int, index: int, out: int) -> None:
    """The critic's loss towards the returns and what the slow critic says, and slopes of its logits at `out`."""
    d = dream_at(table)
    offset = index * BYTES
    store(out, d.bins + 1, load(d.weights, index) * d.weight)
    pull_both(
        d.bin_values, d.bins, d.critic_logits + d.bins * offset, d.returns + offset, d.slow_values + offset,
        d.slow_coef, out, d.critic_loss + offset,
    )  # fmt: skip


@njit(**PIECE)
def encourage(table: int, index: int, out: int) -> None:
    """The actor's loss, its entropy, and slopes of its outputs at `out`."""
    d = dream_at(table)
    count = net_at(d.actor).outputs
    choices = d.choices
    offset = index * BYTES
    outputs = d.actor_outputs + count * offset
    loss = d.policy_loss + offset
    entropy = d.entropy + offset
    credit = out + count * BYTES
    care = out + (count + 1) * BYTES
    scratch = out + (count + 2) * BYTES
    clear(loss, 1)
    clear(entropy, 1)
    weight = load(d.weights, index) * d.weight
    store(credit, 0, weight * (load(d.returns, index) - load(d.values, index)) / d.span)
    store(care, 0, weight * d.ent_coef)
    if not choices:
        rows = d.actions + 4 * LANES * index * d.encoded
        slopes_of_numbers(outputs, d.encoded, rows, scratch, credit, care, out, loss, entropy)
        return
    options = longs(d.options, choices)
    offset = 0
    for j in range(choices):
        numbers = d.actions + 8 * (LANES * index * choices + j)
        slopes_of_choice(
            outputs + offset, options[j], numbers, choices, scratch, credit, care, out + offset, loss, entropy
        )
        offset += options[j] * BYTES
