"""What is learnt from remembered sequences: of 16 states at a time a world model's losses and their slopes.

What `model_loss` and Dreamer.replay_loss say in torch, less pictures. Every net goes there and back while its rows lie
in the innermost cache; weights' gradients are left to one product over all rows (model_products.py), sums over rows are
made of PARTS pieces, so that results do not depend on threads. Letters as in agents/networks/world_model.py: E = D + F
features, N = T * B states.
"""

from stride.agents.engines.fused_cpu.kernels.calls import PIECE, floats, longs
from stride.agents.engines.fused_cpu.kernels.model_cell import MODEL, Model, add_product, clear, to_lanes, to_rows
from stride.agents.engines.fused_cpu.kernels.model_losses import be_paid, criticise, diverge, go_on, see
from stride.agents.engines.fused_cpu.kernels.model_memory import RECALL, WEIGHS, Recall, Teller, Told, Weigh, told_at
from stride.agents.engines.fused_cpu.kernels.model_nets import ANSWER, LAYER, PARTS, Answer, Layer, answer_of, slopes_of
from stride.agents.engines.fused_cpu.kernels.model_two_hot import number_of
from stride.agents.engines.fused_cpu.kernels.vectors import BYTES, load, splat, store
from stride.agents.engines.plan.layout import LANES
from stride.utils.kernel_cache import njit

FEW = 4  # vectors beside the slopes of a net: what its chances are divided by, a share, two places


@njit(inline="always")
def room(features: int, stoch: int, most: int, widest: int) -> int:
    """Vectors of a thread: features and their slopes, four of a guess, slopes of a net, and room for its layers."""
    return 2 * features + 4 * stoch + (most + FEW) + (3 * widest + most + 1)


@njit(**PIECE)
def value(table: int, thread: int) -> None:
    """What the critics say of this thread's states."""
    t = longs(table, RECALL)
    m, bins = longs(t[Recall.MODEL], MODEL), t[Recall.BINS]
    size, rows = m[Model.DETER] + m[Model.CHOICES] * m[Model.CLASSES], t[Recall.STEPS] * t[Recall.SEQUENCES]
    x = t[Recall.SCRATCH] + thread * t[Recall.SCRATCH_SIZE]
    chances, room = x + size * BYTES, x + (size + bins + 1) * BYTES
    for index in range(thread, rows // LANES, t[Recall.THREADS]):
        to_lanes(t[Recall.FEATURES] + 4 * LANES * index * size, size, x, size)
        logits, at = t[Recall.OF_CRITIC] + index * bins * BYTES, index * BYTES
        answers, values = t[Recall.ANSWERS], t[Recall.VALUES]
        critic, slow = answers + 8 * ANSWER * Teller.CRITIC, answers + 8 * ANSWER * Teller.SLOW
        number_of(critic, index, rows, x, room, chances, values, bins, logits, t[Recall.VALUE] + at)
        number_of(slow, index, rows, x, room, chances, values, bins, 0, t[Recall.OF_SLOW] + at)


@njit(**PIECE)
def look_back(table: int) -> None:
    """Returns of all states but the last, and their weights; the last instant of an episode has no successor here."""
    t = longs(table, RECALL)
    w, per, steps = floats(t[Recall.WEIGHS], WEIGHS), t[Recall.SEQUENCES] // LANES, t[Recall.STEPS]
    for group in range(per):
        last = (steps - 1) * per + group
        following = load(t[Recall.VALUE], last)
        store(t[Recall.TARGET], last, splat(0.0))  # which nothing is learnt from: its weight is 0 as it was
        for back in range(1, steps):
            index = last - back * per
            after = index + per
            goes = 1.0 - load(t[Recall.FIRST], after)
            discount = goes * (1.0 - load(t[Recall.ENDED], after)) * w[Weigh.GAMMA]
            paid = load(t[Recall.VALUE], index) * (1.0 - goes) + load(t[Recall.REWARD], after) * goes
            known = load(t[Recall.VALUE], after) * (1.0 - w[Weigh.LAMBDA])
            following = paid + discount * (known + following * w[Weigh.LAMBDA])
            store(t[Recall.TARGET], index, following)
            store(told_at(table, Told.WEIGHT, index), 0, goes)
            store(told_at(table, Told.REACHED, index), 0, goes * following)


@njit(**PIECE)
def tell(table: int, thread: int) -> None:
    """This thread's parts of the states."""
    t = longs(table, RECALL)
    groups = t[Recall.STEPS] * t[Recall.SEQUENCES] // LANES
    for part in range(thread, PARTS, t[Recall.THREADS]):
        for index in range(part * groups // PARTS, (part + 1) * groups // PARTS):
            tell_group(table, thread, index, part)


@njit(**PIECE)
def tell_group(table: int, thread: int, index: int, part: int) -> None:
    """16 states: losses of all nets, whose slopes at the features add up."""
    t = longs(table, RECALL)
    m = longs(t[Recall.MODEL], MODEL)
    deter, stoch = m[Model.DETER], m[Model.CHOICES] * m[Model.CLASSES]
    size, x = deter + stoch, t[Recall.SCRATCH] + thread * t[Recall.SCRATCH_SIZE]
    of_x = x + size * BYTES
    of_guess = of_x + size * BYTES
    out = of_guess + 4 * stoch * BYTES
    room = out + (t[Recall.MOST] + FEW) * BYTES
    to_lanes(t[Recall.FEATURES] + 4 * LANES * index * size, size, x, size)
    clear(of_x, size)
    diverge(table, index, answered(table, Teller.PRIOR, index, x, room), of_guess, out)
    back(table, Teller.PRIOR, index, part, out, of_x, room)
    go_on(table, index, answered(table, Teller.GOES_ON, index, x, room), out)
    back(table, Teller.GOES_ON, index, part, out, of_x, room)
    be_paid(table, index, answered(table, Teller.REWARD, index, x, room), out)
    back(table, Teller.REWARD, index, part, out, of_x, room)
    if t[Recall.SEEN]:
        see(table, index, answered(table, Teller.VECTOR, index, x, room), out)
        back(table, Teller.VECTOR, index, part, out, of_x, room)
    if t[Recall.CRITIC]:
        criticise(table, index, out)
        back(table, Teller.CRITIC, index, part, out, of_x, room)
    to_rows(of_x, t[Recall.SLOPE_DETER] + 4 * LANES * index * deter, deter, deter)
    to_rows(of_x + deter * BYTES, t[Recall.SLOPE_STOCH] + 4 * LANES * index * stoch, stoch, stoch)


@njit(inline="always")
def answered(table: int, teller: int, index: int, x: int, room: int) -> int:
    """What a net says of the states: where its vectors lie."""
    t = longs(table, RECALL)
    answer = t[Recall.ANSWERS] + 8 * ANSWER * teller
    return answer_of(answer, index, t[Recall.STEPS] * t[Recall.SEQUENCES], x, room)


@njit(**PIECE)
def back(table: int, teller: int, index: int, part: int, out: int, of_x: int, room: int) -> None:
    """Slopes of a net's answers become rows, go through it, and add up at the features."""
    t = longs(table, RECALL)
    answer = t[Recall.ANSWERS] + 8 * ANSWER * teller
    a = longs(answer, ANSWER)
    first, count = longs(a[Answer.LAYERS], LAYER), a[Answer.OUTPUTS]
    to_rows(out, a[Answer.SLOPE_OUT] + 4 * LANES * index * count, count, count)
    below = slopes_of(answer, out, index, part, t[Recall.STEPS] * t[Recall.SEQUENCES], room)
    inner = first[Layer.INNER]
    add_product(first[Layer.WEIGHT], 1, inner, below, of_x, inner, first[Layer.WIDTH])
