"""What is learnt from an imagination: losses of actor and critic, and their slopes through both nets, 16 starts a time.

What Dreamer.behaviour_loss says in torch from its returns on. Weights' gradients are left to one product over all rows
(model_products.py); sums over rows are made of PARTS pieces, so that results do not depend on threads.
"""

from stride.agents.engines.fused_cpu.kernels.calls import PIECE, floats, longs
from stride.agents.engines.fused_cpu.kernels.model_actor import slopes_of_choice, slopes_of_numbers
from stride.agents.engines.fused_cpu.kernels.model_cell import clear, to_rows
from stride.agents.engines.fused_cpu.kernels.model_dream import DREAM, RATES, Dream, Rate, Reader
from stride.agents.engines.fused_cpu.kernels.model_nets import ANSWER, PARTS, Answer, slopes_of
from stride.agents.engines.fused_cpu.kernels.model_two_hot import pull_both
from stride.agents.engines.fused_cpu.kernels.vectors import BYTES, load, store
from stride.agents.engines.plan.layout import LANES
from stride.utils.kernel_cache import njit

FEW = 4  # vectors beside those of a net


@njit(inline="always")
def work_size(most: int, widest: int) -> int:
    """Vectors of a thread: slopes and chances of outputs, two hidden layers, and a few."""
    return 2 * most + 2 * widest + FEW


@njit(**PIECE)
def learn(table: int, thread: int) -> None:
    """This thread's parts of the rows."""
    d = longs(table, DREAM)
    groups, work = d[Dream.STEPS] * d[Dream.STARTS] // LANES, d[Dream.SCRATCH] + thread * d[Dream.SCRATCH_SIZE]
    for part in range(thread, PARTS, d[Dream.THREADS]):
        for index in range(part * groups // PARTS, (part + 1) * groups // PARTS):
            criticise(table, index, work)
            passed(table, Reader.CRITIC, index, part, work)
            encourage(table, index, work)
            passed(table, Reader.ACTOR, index, part, work)


@njit(inline="always")
def passed(table: int, reader: int, index: int, part: int, out: int) -> None:
    """Slopes of a net's answers, vectors at `out`, become rows, and go through it."""
    d = longs(table, DREAM)
    answer = d[Dream.ANSWERS] + 8 * ANSWER * reader
    count = longs(answer, ANSWER)[Answer.OUTPUTS]
    to_rows(out, longs(answer, ANSWER)[Answer.SLOPE_OUT] + 4 * LANES * index * count, count, count)
    slopes_of(answer, out, index, part, d[Dream.STEPS] * d[Dream.STARTS], out + count * BYTES)


@njit(**PIECE)
def criticise(table: int, index: int, out: int) -> None:
    """The critic's loss towards the returns and what the slow critic says, and slopes of its logits at `out`."""
    d, rates = longs(table, DREAM), floats(longs(table, DREAM)[Dream.RATES], RATES)
    at = index * BYTES
    logits, loss = d[Dream.OF_CRITIC] + d[Dream.BINS] * at, d[Dream.CRITIC_LOSS] + at
    store(out, d[Dream.BINS] + 1, load(d[Dream.WEIGHT], index) * rates[Rate.SHARE])
    pull_both(
        d[Dream.VALUES], d[Dream.BINS], logits, d[Dream.RETURN] + at, d[Dream.OF_SLOW] + at, rates[Rate.SLOW], out, loss
    )


@njit(**PIECE)
def encourage(table: int, index: int, out: int) -> None:
    """The actor's loss, its entropy, and slopes of its outputs at `out`."""
    d, rates = longs(table, DREAM), floats(longs(table, DREAM)[Dream.RATES], RATES)
    count, choices, at = d[Dream.OUTPUTS], d[Dream.CHOICES], index * BYTES
    outputs, loss, spread = d[Dream.OF_ACTOR] + count * at, d[Dream.POLICY_LOSS] + at, d[Dream.SPREAD] + at
    credit, care, room = out + count * BYTES, out + (count + 1) * BYTES, out + (count + 2) * BYTES
    clear(loss, 1)
    clear(spread, 1)
    weight = load(d[Dream.WEIGHT], index) * rates[Rate.SHARE]
    store(credit, 0, weight * (load(d[Dream.RETURN], index) - load(d[Dream.VALUE], index)) / rates[Rate.SPAN])
    store(care, 0, weight * rates[Rate.ENTROPY])
    if not choices:
        numbers = d[Dream.ENCODED]
        place = d[Dream.ACTIONS] + 4 * LANES * index * numbers
        slopes_of_numbers(outputs, numbers, place, room, credit, care, out, loss, spread)
        return
    options, before = longs(d[Dream.OPTIONS], choices), 0
    for j in range(choices):
        here, place = before * BYTES, d[Dream.ACTIONS] + 8 * (LANES * index * choices + j)
        slopes_of_choice(outputs + here, options[j], place, choices, room, credit, care, out + here, loss, spread)
        before += options[j]
