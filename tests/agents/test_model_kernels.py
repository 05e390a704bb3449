"""A world model's kernels against plain torch: the cell, the scan, its gradients, and agents that learn by them."""

from copy import deepcopy
from typing import NamedTuple

import numpy as np
import pytest
import torch
from driven import advance, agent_for

from stride.agents.engines.fused_cpu.kernels import model_cell
from stride.agents.engines.fused_cpu.model_nets import KernelPool
from stride.agents.engines.fused_cpu.model_scan import model_table, scan
from stride.agents.engines.fused_cpu.workers import Workers
from stride.agents.networks.world_model import RSSM, ModelSizes, State
from stride.utils.user_error import UserError

LANES = 16
SHAPES = {
    "small": ModelSizes(),
    "odd": ModelSizes(deter=24, stoch=3, classes=5, width=20),
    "wide": ModelSizes(deter=256, stoch=8, classes=16, width=96),
}


OWN = {"dreamer": "imagined_starts=8", "planet": "elites=4"}


def record_of(table):
    """The table as kernels take it in a test, an array [1] of NumPy over its memory."""
    return np.frombuffer(table.values, table.dtype)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def rssm_of(name, actions=2, tokens=7):
    """With weights that make all its parts matter."""
    made, g = RSSM(actions, tokens, SHAPES[name], 0.01), generator()
    with torch.no_grad():
        for parameter in made.parameters():
            rows = parameter.shape[-1] if parameter.dim() > 1 else 4
            parameter.copy_(torch.randn(parameter.shape, generator=g) * rows**-0.5 + (parameter.dim() == 1))
    return made


def vectors(rows):
    """[16, features] as [features, 16]."""
    return np.ascontiguousarray(rows.detach().numpy().T)


def room(*shape):
    return np.zeros((*shape, LANES), np.float32)


def at(*arrays):
    return [array.ctypes.data for array in arrays]


def assert_as_near(found, wanted, exact):
    """Of what float64 says a kernel's numbers are at most 3 times as far as torch's, which add up in another order."""
    near = (wanted.double() - exact).abs().max()
    assert 0 < near < 1e-5
    assert (torch.from_numpy(found.T).double() - exact).abs().max() <= 3 * near


@pytest.mark.parametrize("name", SHAPES)
def test_a_step_of_the_cell_is_torchs(name):
    rssm, g, sizes = rssm_of(name), generator(1), SHAPES[name]
    features = (sizes.deter, sizes.stoch * sizes.classes, sizes.width)
    deter, stoch, prepared = (torch.randn(LANES, count, generator=g) for count in features)
    joined = np.concatenate((vectors(prepared), vectors(deter)))
    table, given, kept, out = (
        record_of(model_table(rssm)),
        vectors(stoch),
        room(sizes.width + 3 * sizes.deter + 2),
        room(sizes.deter),
    )
    model_cell.move(*at(table, given, joined, kept, out))
    with torch.no_grad():
        wanted = rssm.cell(State(deter, stoch), prepared)
        exact = deepcopy(rssm).double().cell(State(deter.double(), stoch.double()), prepared.double())
    assert_as_near(out, wanted, exact)


@pytest.mark.parametrize("name", SHAPES)
def test_a_guess_and_its_draw_are_torchs(name):
    rssm, g, sizes = rssm_of(name), generator(2), SHAPES[name]
    count = sizes.stoch * sizes.classes
    deter, tokens = (torch.randn(LANES, size, generator=g) for size in (sizes.deter, sizes.width))
    u = torch.rand(LANES, sizes.stoch, generator=g)
    table, known, hidden, chances = record_of(model_table(rssm)), vectors(deter), vectors(tokens), vectors(u)
    kept, logits, soft, hot = room(sizes.width + 1), room(count), room(count), room(count)
    model_cell.guess(*at(table, known, hidden, kept, logits))
    model_cell.draw(*at(table, logits, chances, soft, hot))
    with torch.no_grad():
        wanted, exact = (
            rssm._posterior(deter, tokens),
            deepcopy(rssm).double()._posterior(deter.double(), tokens.double()),
        )
    sample = wanted.sample(u, rssm.table)
    assert_as_near(logits, *(guess.log_probs.flatten(-2) for guess in (wanted, exact)))
    np.testing.assert_array_equal(hot.T, sample)
    assert sample.view(LANES, sizes.stoch, -1).argmax(-1).float().std() > 0.2  # several classes were drawn


@pytest.mark.parametrize("features", [3, 16, 40])
def test_rows_become_vectors_and_rows_again(features):
    rows = np.random.default_rng(0).normal(size=(LANES, features)).astype(np.float32)
    there, back = room(features), np.zeros_like(rows)
    model_cell.to_lanes(*at(rows), features, *at(there), features)
    np.testing.assert_array_equal(there, rows.T)
    model_cell.to_rows(*at(there, back), features, features)
    np.testing.assert_array_equal(back, rows)


# --- the scan


class Batch(NamedTuple):
    """What a model is shown, and weights of what comes of it, which make a loss."""

    tokens: torch.Tensor
    action: torch.Tensor
    is_first: torch.Tensor
    u: torch.Tensor
    slopes: list

    def double(self):
        tensors = (x.double() if x.is_floating_point() else x for x in self[:4])
        return Batch(*tensors, [x.double() for x in self.slopes])


def batch_of(sizes, steps=9, sequences=LANES):
    g, rows = generator(3), (steps, sequences)
    tokens, action = (torch.randn(*rows, size, generator=g) for size in (7, 2))
    is_first = torch.rand(rows, generator=g) < 0.15
    assert is_first[1:].any() and not is_first[0].all()
    shapes = ((sizes.deter,), (sizes.stoch * sizes.classes,), (sizes.stoch, sizes.classes))
    slopes = [torch.randn(*rows, *shape, generator=g) for shape in shapes]
    return Batch(tokens, action, is_first, torch.rand(*rows, sizes.stoch, generator=g), slopes)


def observed(rssm, batch, threads=0):
    """(what becomes of a batch, all gradients), by kernels on so many threads; by torch on none."""
    given = [batch.tokens.clone().requires_grad_(), batch.action.clone().requires_grad_()]
    if threads:
        state, log_probs = scan(KernelPool(Workers(threads), threads), rssm, *given, batch.is_first, batch.u)
        log_probs = log_probs.view_as(batch.slopes[2])
    else:
        state, (log_probs,) = rssm.observe(*given, batch.is_first, batch.u)
    loss = sum((x * slope).sum() for x, slope in zip((*state, log_probs), batch.slopes, strict=True))
    names, weights = zip(*((n, w) for n, w in rssm.named_parameters() if not n.startswith("prior")), strict=True)
    gradients = torch.autograd.grad(loss, [*given, *weights])
    return [x.detach() for x in (*state, log_probs)], dict(zip(("tokens", "action", *names), gradients, strict=True))


@pytest.mark.parametrize("name", SHAPES)
def test_the_scan_and_its_gradients_are_autograds(name):
    rssm, batch = rssm_of(name), batch_of(SHAPES[name])
    found, gradients = observed(rssm, batch, 1)
    wanted, right = observed(deepcopy(rssm).double(), batch.double())
    np.testing.assert_array_equal(found[1], wanted[1])  # the same choices
    for mine, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine.double(), exact, atol=1e-5, rtol=0)
    assert len(gradients) == 12
    for what, exact in right.items():
        assert (gradients[what] - exact).abs().max() <= 1e-5 * exact.abs().max(), what


def test_two_threads_and_more_sequences_change_no_bit():
    """A sequence goes its way alone; only sums over all of them are made of more."""
    rssm, batch = rssm_of("small"), batch_of(SHAPES["small"], 5, 3 * LANES)
    (found, gradients), (again, same) = (observed(rssm, batch, threads) for threads in (1, 2))
    assert all(map(torch.equal, [*found, *gradients.values()], [*again, *same.values()]))
    first = Batch(*(x[:, LANES : 2 * LANES] for x in batch[:4]), [x[:, LANES : 2 * LANES] for x in batch.slopes])
    alone, its = observed(rssm, first, 1)
    assert all(torch.equal(x[:, LANES : 2 * LANES], y) for x, y in zip(found, alone, strict=True))
    assert torch.equal(gradients["tokens"][:, LANES : 2 * LANES], its["tokens"])


def test_a_number_that_is_none_is_told_on():
    """The guard looks at losses: a kernel must not hide what it was given."""
    rssm, batch = rssm_of("small"), batch_of(SHAPES["small"], 4)
    batch.tokens[1, 5, 0] = torch.nan
    (_, stoch, log_probs), gradients = observed(rssm, batch, 1)
    assert log_probs[1, 5].isnan().all() and log_probs[:, :5].isfinite().all() and log_probs[:, 6:].isfinite().all()
    assert gradients["from_tokens.weight"].isnan().any() and gradients["cell.gates.weight"].isnan().any()
    assert stoch[0].isfinite().all()


# --- agents


def test_what_the_kernels_do_not_know_is_refused_by_name():
    refused = {
        "batch_size=24": "batch_size 24 is not a multiple of 16, the sequences it takes side by side",
        "size=1m": "it does not know cells of 8 blocks, as in size: 1m",
        "precision=bf16": "it does not know precision: bf16",
    }
    for word, why in refused.items():
        agent = agent_for("CartPole-v1:dreamer", word)
        assert (agent.engine.name, agent.engine.reason) == ("eager", why)
    with pytest.raises(UserError, match="fused_cpu cannot run this config: batch_size 24 is not a multiple of 16"):
        agent_for("CartPole-v1:dreamer", "batch_size=24", "engine=fused_cpu")
    assert agent_for("CartPole-v1:dreamer", "engine=eager").engine.reason == "as configured"


@pytest.mark.parametrize("algo_id", ["dreamer", "planet"])
def test_an_agent_learns_by_kernels_as_without(algo_id):
    words = ("n_envs=4", "deter=16", "width=16", "batch_length=5", "learning_starts=40", "train_ratio=4", "lr_warmup=1")
    words = (*words, "buffer_size=400", "train_freq=16", "horizon=3", OWN[algo_id])
    eager, fused = (agent_for(f"CartPole-v1:{algo_id}", *words, f"engine={name}") for name in ("eager", "fused_cpu"))
    assert (fused.engine.play.name, fused.engine.learn.name, fused.engine.threads.number) == ("eager", "fused_cpu", 1)
    for agent in (eager, fused):
        advance(agent, 3)
    assert fused.progress == eager.progress and fused.progress["updates"] > 0
    for (name, mine), theirs in zip(fused.state_dict().items(), eager.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5, msg=name)
