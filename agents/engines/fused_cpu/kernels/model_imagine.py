"""Imagination: from 16 starts side by side the actor chooses, the cell moves, the prior guesses, step after step.

What Dreamer.behaviour_loss says in torch up to its returns: every state is judged while it lies in the innermost cache,
and what the ways back of actor and critic need is left. Starts do not know of one another, so that threads take 16 at a
time and results do not depend on how many there are. Letters as in agents/networks/world_model.py: E = D + F features.
"""

from stride.agents.engines.fused_cpu.kernels.calls import PIECE, floats, longs
from stride.agents.engines.fused_cpu.kernels.model_actor import choose, take_numbers
from stride.agents.engines.fused_cpu.kernels.model_cell import (
    MODEL,
    Model,
    add_product,
    clear,
    copy,
    draw,
    move,
    to_lanes,
    to_rows,
)
from stride.agents.engines.fused_cpu.kernels.model_dream import DREAM, RATES, Dream, Rate, Reader, room_of
from stride.agents.engines.fused_cpu.kernels.model_nets import ANSWER, answer_of
from stride.agents.engines.fused_cpu.kernels.model_two_hot import number_of
from stride.agents.engines.fused_cpu.kernels.vectors import BYTES, load, sigmoid, store
from stride.agents.engines.plan.layout import LANES
from stride.utils.kernel_cache import njit


@njit(inline="always")
def asked(table: int, thread: int, reader: int, index: int) -> int:
    """What one of the nets answers to the features, the index-th 16 rows: where its vectors lie."""
    d, room = longs(table, DREAM), room_of(table, thread)
    rows = d[Dream.STEPS] * d[Dream.STARTS]
    return answer_of(d[Dream.ANSWERS] + 8 * ANSWER * reader, index, rows, room.features, room.hidden)


@njit(inline="always")
def number(table: int, thread: int, reader: int, index: int, kept: int, out: int) -> None:
    """The number that a net tells of the features; its logits are kept unless at 0."""
    d, room = longs(table, DREAM), room_of(table, thread)
    answer, rows = d[Dream.ANSWERS] + 8 * ANSWER * reader, d[Dream.STEPS] * d[Dream.STARTS]
    number_of(answer, index, rows, room.features, room.hidden, room.chances, d[Dream.VALUES], d[Dream.BINS], kept,
              out + index * BYTES)  # fmt: skip


@njit(**PIECE)
def look_back(table: int, first: int) -> None:
    """Returns and weights of 16 starts, as `arrival_returns` and Dreamer.behaviour_loss say."""
    d, rates = longs(table, DREAM), floats(longs(table, DREAM)[Dream.RATES], RATES)
    per, steps, share = d[Dream.STARTS] // LANES, d[Dream.STEPS], rates[Rate.LAMBDA]
    begin = first // LANES
    following, weight = load(d[Dream.VALUE], begin + steps * per), load(d[Dream.ALIVE], begin)
    for back in range(1, steps + 1):
        index = begin + (steps - back) * per
        value = load(d[Dream.VALUE], index + per)
        following = load(d[Dream.PAID], index) + load(d[Dream.DISCOUNT], index) * (
            value * (1.0 - share) + following * share
        )
        store(d[Dream.RETURN], index, following)
    for at in range(steps):
        store(d[Dream.WEIGHT], begin + at * per, weight)
        weight = weight * load(d[Dream.DISCOUNT], begin + at * per)


@njit(**PIECE)
def act(table: int, thread: int, at: int, first: int) -> None:
    """What the actor does at the features: encoded in the room, and told as row `at` of the actions."""
    d, room = longs(table, DREAM), room_of(table, thread)
    size, choices, index = d[Dream.ENCODED], d[Dream.CHOICES], (at * d[Dream.STARTS] + first) // LANES
    outputs = asked(table, thread, Reader.ACTOR, index)
    copy(outputs, d[Dream.OF_ACTOR] + index * d[Dream.OUTPUTS] * BYTES, d[Dream.OUTPUTS])
    count = choices if choices else size
    row = LANES * index * count
    to_lanes(d[Dream.OF_ACTION] + 4 * row, count, room.draws, count)
    if not choices:
        take_numbers(outputs, size, room.draws, room.chosen, d[Dream.ACTIONS] + 4 * row)
        return
    options, before = longs(d[Dream.OPTIONS], choices), 0
    for j in range(choices):
        here, place = before * BYTES, d[Dream.ACTIONS] + 8 * (row + j)
        choose(outputs + here, options[j], room.draws + j * BYTES, room.chosen + here, place, choices)
        before += options[j]


@njit(**PIECE)
def step(table: int, thread: int, at: int, first: int) -> None:
    """From features to those that follow them."""
    d, room = longs(table, DREAM), room_of(table, thread)
    m = longs(d[Dream.MODEL], MODEL)
    width, size, choices = m[Model.WIDTH], d[Dream.ENCODED], m[Model.CHOICES]
    act(table, thread, at, first)
    clear(room.joined, width)
    add_product(d[Dream.FROM_ACTION], size, 1, room.chosen, room.joined, width, size)
    copy(room.features, room.joined + width * BYTES, m[Model.DETER])
    move(d[Dream.MODEL], room.stoch, room.joined, room.kept, room.features)
    logits = asked(table, thread, Reader.PRIOR, 0)
    to_lanes(d[Dream.OF_GUESS] + 4 * (at * d[Dream.STARTS] + first) * choices, choices, room.draws, choices)
    draw(d[Dream.MODEL], logits, room.draws, room.soft, room.stoch)


@njit(**PIECE)
def arrive(table: int, thread: int, index: int) -> None:
    """What is paid on arriving at the features, and what follows is worth."""
    d, rates = longs(table, DREAM), floats(longs(table, DREAM)[Dream.RATES], RATES)
    number(table, thread, Reader.REWARD, index, 0, d[Dream.PAID])
    goes_on = sigmoid(load(asked(table, thread, Reader.GOES_ON, index), 0))
    store(d[Dream.DISCOUNT], index, goes_on * rates[Rate.GAMMA])


@njit(**PIECE)
def imagine(table: int, thread: int) -> None:
    """This thread's starts, 16 at a time, all their steps."""
    d, room = longs(table, DREAM), room_of(table, thread)
    m, starts = longs(d[Dream.MODEL], MODEL), d[Dream.STARTS]
    size = m[Model.DETER] + m[Model.CHOICES] * m[Model.CLASSES]
    for first in range(LANES * thread, starts, LANES * d[Dream.THREADS]):
        to_lanes(d[Dream.FEATURES] + 4 * first * size, size, room.features, size)
        for at in range(d[Dream.STEPS]):
            index = (at * starts + first) // LANES
            logits = d[Dream.OF_CRITIC] + index * d[Dream.BINS] * BYTES
            number(table, thread, Reader.CRITIC, index, logits, d[Dream.VALUE])
            number(table, thread, Reader.SLOW, index, 0, d[Dream.OF_SLOW])
            step(table, thread, at, first)
            to_rows(room.features, d[Dream.FEATURES] + 4 * ((at + 1) * starts + first) * size, size, size)
            arrive(table, thread, index)
        number(table, thread, Reader.LAST, (d[Dream.STEPS] * starts + first) // LANES, 0, d[Dream.VALUE])
        look_back(table, first)
