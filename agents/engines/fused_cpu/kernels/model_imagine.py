"""Imagination: from 16 starts side by side the actor chooses, the cell moves, the prior guesses, step after step.

What Dreamer.imagine says in torch, without gradients; features and actions are written as rows. Starts do not know of
one another, so that threads take 16 at a time and results do not depend on how many there are. Letters as in
agents/networks/world_model.py: E = D + F features.
"""

from typing import NamedTuple

from agents.engines.fused_cpu.kernels.calls import PIECE, floats, longs
from agents.engines.fused_cpu.kernels.model_cell import (
    MODEL,
    Model,
    add_product,
    clear,
    copy,
    draw,
    move,
    norm_silu,
    to_lanes,
    to_rows,
)
from agents.engines.fused_cpu.kernels.model_nets import LAYER, Layer, head_of
from agents.engines.fused_cpu.kernels.vectors import (
    BYTES,
    at_most,
    exp,
    larger,
    load,
    sigmoid,
    splat,
    store,
    tanh,
)
from agents.engines.plan.layout import LANES
from agents.engines.plan.numbers import Count, auto
from agents.networks.heads import LEAST_STD
from utils.kernel_cache import njit


class Dream(Count):
    """The table of an imagination, int64: counts and addresses. K starts are a multiple of 16."""

    MODEL = auto()  # the table of the cell
    PRIOR = auto()  # the table of that net, [PRIOR_LAYERS + 1, Layer]
    PRIOR_LAYERS = auto()  # hidden ones
    ACTOR = auto()
    ACTOR_LAYERS = auto()
    FROM_ACTION = auto()  # [W, A]
    ENCODED = auto()  # A, floats of an encoded action
    CHOICES = auto()  # how many an action is made of; 0 where it is numbers
    OPTIONS = auto()  # int64 of each choice
    WIDEST = auto()  # hidden layer of both nets
    STEPS = auto()  # H
    STARTS = auto()  # K
    THREADS = auto()  # that share the starts
    FEATURES = auto()  # [H + 1, K, E]; the first of them are there
    ACTIONS = auto()  # [H, K, choices] int64, or [H, K, A] floats
    OF_GUESS = auto()  # [H, K, S] uniforms
    OF_ACTION = auto()  # [H, K, choices] uniforms, or [H, K, A] normals
    SCRATCH = auto()
    SCRATCH_SIZE = auto()  # bytes of a thread


DREAM = len(Dream)


class Room(NamedTuple):
    """The scratch of a thread by name: addresses of vectors."""

    features: int  # [E]
    stoch: int  # [F], the last of them
    joined: int  # [W + D]
    kept: int  # what the cell or a layer keeps
    hidden: int  # [2, WIDEST]
    outputs: int  # [2 A] of the actor
    chosen: int  # [A] the action, encoded
    draws: int  # [S] or of an action, at most A
    logits: int  # [F]
    soft: int  # [F]
    end: int


@njit(inline="always")
def lay(begin: int, deter: int, width: int, stoch: int, encoded: int, widest: int) -> Room:
    """Where everything lies from `begin` on; with `begin` 0 its end is how many bytes that is."""
    joined = begin + (deter + stoch) * BYTES
    kept = joined + (width + deter) * BYTES
    hidden = kept + max(width + 2 + 3 * deter, widest + 1) * BYTES
    outputs = hidden + 2 * widest * BYTES
    chosen = outputs + 2 * encoded * BYTES
    draws = chosen + encoded * BYTES
    logits = draws + max(stoch, encoded) * BYTES
    soft = logits + stoch * BYTES
    here = begin + deter * BYTES
    return Room(begin, here, joined, kept, hidden, outputs, chosen, draws, logits, soft, soft + stoch * BYTES)


@njit(inline="always")
def room_of(table: int, thread: int) -> Room:
    """This thread's."""
    d = longs(table, DREAM)
    m = longs(d[Dream.MODEL], MODEL)
    stoch = m[Model.CHOICES] * m[Model.CLASSES]
    begin = d[Dream.SCRATCH] + thread * d[Dream.SCRATCH_SIZE]
    return lay(begin, m[Model.DETER], m[Model.WIDTH], stoch, d[Dream.ENCODED], d[Dream.WIDEST])


@njit(**PIECE)
def answer(net: int, layers: int, x: int, hidden: int, widest: int, kept: int, out: int) -> None:
    """A net's outputs from vectors x; `hidden` has room for two layers, `kept` for a layer and one vector more."""
    rows, below = longs(net, LAYER * (layers + 1)), x
    for layer in range(layers):
        at = LAYER * layer
        inner, width = rows[at + Layer.INNER], rows[at + Layer.WIDTH]
        above = hidden + (layer % 2) * widest * BYTES
        clear(above, width)
        add_product(rows[at + Layer.WEIGHT], inner, 1, below, above, width, inner)
        norm_silu(above, rows[at + Layer.SCALE], kept, width)
        below = above
    at = LAYER * layers
    head_of(rows[at + Layer.WEIGHT], rows[at + Layer.SCALE], rows[at + Layer.INNER], rows[at + Layer.WIDTH], below, out)


@njit(**PIECE)
def choose(logits: int, options: int, u: int, hot: int, place: int, row: int) -> None:
    """One of so many options by uniforms [16]: one-hot vectors, and the number of it in every `row`-th int64."""
    most, total = load(logits, 0), splat(0.0)
    for k in range(1, options):
        most = larger(most, load(logits, k))
    for k in range(options):
        total = total + exp(load(logits, k) - most)
        store(hot, k, total)
    level, passed, number = load(u, 0) * total, splat(1.0), splat(0.0)
    for k in range(options - 1):  # below each option whose sum is not above what was drawn lies the choice
        following = at_most(load(hot, k), level)
        number = number + following
        store(hot, k, passed - following)
        passed = following
    store(hot, options - 1, passed)
    store(logits, 0, number)
    numbers, chosen = floats(logits, LANES), longs(place, LANES * row)
    for s in range(LANES):
        chosen[s * row] = int(numbers[s])


@njit(**PIECE)
def take_numbers(outputs: int, count: int, normals: int, encoded: int, place: int) -> None:
    """Numbers about a bounded mean, as rows at `place`; encoded they are cut at +-1, as worlds do."""
    for k in range(count):
        std = LEAST_STD + (1.0 - LEAST_STD) * sigmoid(load(outputs, count + k) + 2.0)
        number = tanh(load(outputs, k)) + std * load(normals, k)
        store(outputs, k, number)
        store(encoded, k, -larger(-larger(number, splat(-1.0)), splat(-1.0)))
    to_rows(outputs, place, count, count)


@njit(**PIECE)
def act(table: int, thread: int, at: int, first: int) -> None:
    """What the actor does at the features: encoded in the room, and told as row `at` of the actions."""
    d, room = longs(table, DREAM), room_of(table, thread)
    size, choices = d[Dream.ENCODED], d[Dream.CHOICES]
    answer(d[Dream.ACTOR], d[Dream.ACTOR_LAYERS], room.features, room.hidden, d[Dream.WIDEST], room.kept, room.outputs)
    count = choices if choices else size
    row = (at * d[Dream.STARTS] + first) * count
    to_lanes(d[Dream.OF_ACTION] + 4 * row, count, room.draws, count)
    if not choices:
        take_numbers(room.outputs, size, room.draws, room.chosen, d[Dream.ACTIONS] + 4 * row)
        return
    options, before = longs(d[Dream.OPTIONS], choices), 0
    for j in range(choices):
        here, place = before * BYTES, d[Dream.ACTIONS] + 8 * (row + j)
        choose(room.outputs + here, options[j], room.draws + j * BYTES, room.chosen + here, place, choices)
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
    answer(d[Dream.PRIOR], d[Dream.PRIOR_LAYERS], room.features, room.hidden, d[Dream.WIDEST], room.kept, room.logits)
    to_lanes(d[Dream.OF_GUESS] + 4 * (at * d[Dream.STARTS] + first) * choices, choices, room.draws, choices)
    draw(d[Dream.MODEL], room.logits, room.draws, room.soft, room.stoch)


@njit(**PIECE)
def imagine(table: int, thread: int) -> None:
    """This thread's starts, 16 at a time, all their steps."""
    d, room = longs(table, DREAM), room_of(table, thread)
    m, starts = longs(d[Dream.MODEL], MODEL), d[Dream.STARTS]
    size = m[Model.DETER] + m[Model.CHOICES] * m[Model.CLASSES]
    for first in range(LANES * thread, starts, LANES * d[Dream.THREADS]):
        to_lanes(d[Dream.FEATURES] + 4 * first * size, size, room.features, size)
        for at in range(d[Dream.STEPS]):
            step(table, thread, at, first)
            to_rows(room.features, d[Dream.FEATURES] + 4 * ((at + 1) * starts + first) * size, size, size)
