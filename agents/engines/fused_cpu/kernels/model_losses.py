"""Losses of 16 states, and their slopes at what a world model's nets say of them. Formulas: agents/model_learning.py.

Each goes to its row of what is told, with the share of a state in the mean.
"""

from stride.agents.engines.fused_cpu.kernels.calls import PIECE, floats, longs
from stride.agents.engines.fused_cpu.kernels.model_cell import MODEL, Model, clear, mix, to_lanes, to_rows
from stride.agents.engines.fused_cpu.kernels.model_memory import RECALL, WEIGHS, Recall, Told, Weigh, told_at
from stride.agents.engines.fused_cpu.kernels.model_scan import slope_of_draw
from stride.agents.engines.fused_cpu.kernels.model_two_hot import pull, pull_both, softmax
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


@njit(**PIECE)
def diverge(table: int, index: int, logits: int, room: int, out: int) -> None:
    """Divergence of posterior and prior, `balanced`: slopes of prior logits at `out`, of the posterior as rows."""
    t = longs(table, RECALL)
    m, w = longs(t[Recall.MODEL], MODEL), floats(t[Recall.WEIGHS], WEIGHS)
    count = m[Model.CHOICES] * m[Model.CLASSES]
    posterior, soft, of_prior, none = room, room + count * BYTES, room + 2 * count * BYTES, room + 3 * count * BYTES
    to_lanes(t[Recall.LOG_PROBS] + 4 * LANES * index * count, count, posterior, count)
    mix(t[Recall.MODEL], logits, soft)
    kl = splat(0.0)
    for i in range(count):
        log_p = load(posterior, i)
        kl = kl + exp(log_p) * (log_p - load(logits, i))
    pulled = at_most(splat(w[Weigh.FREE]), kl) * w[Weigh.SHARE]
    store(told_at(table, Told.KL, index), 0, kl * w[Weigh.SHARE])
    store(told_at(table, Told.PULLED, index), 0, larger(kl, splat(w[Weigh.FREE])) * w[Weigh.SHARE])
    for i in range(count):
        log_p = load(posterior, i)
        p = exp(log_p) * pulled
        store(of_prior, i, -p * w[Weigh.PRIOR])
        store(posterior, i, p * (log_p - load(logits, i) + 1.0) * w[Weigh.POSTERIOR])
    to_rows(posterior, t[Recall.SLOPE_LOG_PROBS] + 4 * LANES * index * count, count, count)
    clear(none, count)
    slope_of_draw(t[Recall.MODEL], soft, of_prior, none, out)


@njit(**PIECE)
def go_on(table: int, index: int, logits: int, out: int) -> None:
    """`going_on_loss` and the chance of an end."""
    t = longs(table, RECALL)
    w, ended = floats(t[Recall.WEIGHS], WEIGHS), load(t[Recall.ENDED], index)
    logit = load(logits, 0)
    store(told_at(table, Told.ENDS, index), 0, sigmoid(-logit))
    x, weight = logit - w[Weigh.HIGHER], (1.0 + ended * (w[Weigh.END] - 1.0)) * w[Weigh.SHARE]
    apart = log(1.0 + exp(-larger(x, -x))) + larger(x, splat(0.0)) - x * (1.0 - ended)
    store(told_at(table, Told.GOING_ON, index), 0, weight * apart)
    store(out, 0, weight * (sigmoid(x) - (1.0 - ended)))


@njit(**PIECE)
def be_paid(table: int, index: int, logits: int, out: int) -> None:
    """The reward's two-hot loss."""
    t = longs(table, RECALL)
    w, bins, loss = floats(t[Recall.WEIGHS], WEIGHS), t[Recall.BINS], told_at(table, Told.REWARD, index)
    share, places = out + (bins + 1) * BYTES, out + (bins + 2) * BYTES
    softmax(logits, bins, out)
    store(share, 0, splat(w[Weigh.SHARE]))
    store(loss, 0, load(out, bins) * w[Weigh.SHARE])
    for i in range(bins):
        store(out, i, load(out, i) * w[Weigh.SHARE])
    pull(t[Recall.VALUES], bins, logits, t[Recall.REWARD] + index * BYTES, share, places, out, loss)


@njit(**PIECE)
def see(table: int, index: int, told: int, out: int) -> None:
    """Squares of what differs of the vector."""
    t = longs(table, RECALL)
    count, weight = t[Recall.SEEN], floats(t[Recall.WEIGHS], WEIGHS)[Weigh.OBSERVATION]
    weight *= floats(t[Recall.WEIGHS], WEIGHS)[Weigh.SHARE]
    to_lanes(t[Recall.VECTOR] + 4 * LANES * index * count, count, out, count)
    loss = splat(0.0)
    for i in range(count):
        apart = load(told, i) - load(out, i)
        loss = loss + apart * apart * weight
        store(out, i, apart * (weight + weight))
    store(told_at(table, Told.OBSERVATION, index), 0, loss)


@njit(**PIECE)
def criticise(table: int, index: int, out: int) -> None:
    """The critic's loss towards the returns and what the slow critic says."""
    t = longs(table, RECALL)
    w, at = floats(t[Recall.WEIGHS], WEIGHS), index * BYTES
    logits = t[Recall.OF_CRITIC] + t[Recall.BINS] * at
    store(out, t[Recall.BINS] + 1, load(told_at(table, Told.WEIGHT, index), 0) * w[Weigh.REPLAY])
    pull_both(
        t[Recall.VALUES], t[Recall.BINS], logits, t[Recall.TARGET] + at, t[Recall.OF_SLOW] + at, w[Weigh.SLOW], out,
        told_at(table, Told.REPLAY, index),
    )  # fmt: skip
