"""A world model's kernels against plain torch: cell, guess, draw and scan, and their gradients."""

from copy import deepcopy
from typing import NamedTuple

import pytest
import torch
from model_cases import assert_near, generator, randomise

from stride.agents.engines.fused_cpu.model_nets import KernelPool
from stride.agents.engines.fused_cpu.model_scan import scan
from stride.agents.engines.fused_cpu.workers import Workers
from stride.agents.networks.world_model import RSSM, ModelSizes

LANES = 16  # sequences side by side
SHAPES = {
    "small": ModelSizes(),
    "odd": ModelSizes(deter=24, stoch=3, classes=5, width=20),
    "wide": ModelSizes(deter=256, stoch=8, classes=16, width=96),
}


def rssm_of(name, actions=2, tokens=7):
    rssm = RSSM(actions, tokens, SHAPES[name], 0.01)
    randomise(rssm.parameters())
    return rssm


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

    def part(self, first, last):
        """Some of its sequences."""
        return Batch(*(x[:, first:last] for x in self[:4]), [x[:, first:last] for x in self.slopes])


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
    inputs = [batch.tokens.clone().requires_grad_(), batch.action.clone().requires_grad_()]
    if threads:
        state, log_probs = scan(KernelPool(Workers(threads), threads), rssm, *inputs, batch.is_first, batch.u)
        log_probs = log_probs.view_as(batch.slopes[2])
    else:
        state, (log_probs,) = rssm.observe(*inputs, batch.is_first, batch.u)
    loss = sum((x * slope).sum() for x, slope in zip((*state, log_probs), batch.slopes, strict=True))
    names, weights = zip(*((n, w) for n, w in rssm.named_parameters() if not n.startswith("prior")), strict=True)
    gradients = torch.autograd.grad(loss, [*inputs, *weights])
    return [x.detach() for x in (*state, log_probs)], dict(zip(("tokens", "action", *names), gradients, strict=True))


@pytest.mark.parametrize("name", SHAPES)
def test_the_scan_and_its_gradients_are_autograds(name):
    """Of what float64 says, its numbers are at most 3 times as far as torch's, which add up in another order."""
    rssm, batch = rssm_of(name), batch_of(SHAPES[name])
    mine, gradients = observed(rssm, batch, 1)
    single, _ = observed(rssm, batch)
    exact, exact_gradients = observed(deepcopy(rssm).double(), batch.double())
    assert torch.equal(mine[1].double(), exact[1]), "the same choices"
    assert mine[1].view(*batch.slopes[2].shape).argmax(-1).float().std() > 0.2, "several classes were drawn"
    for ours, torchs, right in zip(mine, single, exact, strict=True):
        rounding = (torchs.double() - right).abs().max()
        assert rounding < 1e-5 and (ours.double() - right).abs().max() <= 3 * rounding
    assert len(gradients) == 12
    assert_near(gradients, exact_gradients, 1e-5)


def test_two_threads_and_more_sequences_change_no_bit():
    """A sequence goes its way alone; only sums over all of them are made of more."""
    rssm, batch = rssm_of("small"), batch_of(SHAPES["small"], 5, 3 * LANES)
    (whole, gradients), (again, same) = (observed(rssm, batch, threads) for threads in (1, 2))
    assert all(map(torch.equal, [*whole, *gradients.values()], [*again, *same.values()]))
    alone, its = observed(rssm, batch.part(LANES, 2 * LANES), 1)
    assert all(torch.equal(x[:, LANES : 2 * LANES], y) for x, y in zip(whole, alone, strict=True))
    assert torch.equal(gradients["tokens"][:, LANES : 2 * LANES], its["tokens"])


def test_a_nan_shows_in_all_that_follows_from_it():
    """The guard looks at losses: a kernel must not hide its inputs."""
    rssm, batch = rssm_of("small"), batch_of(SHAPES["small"], 4)
    batch.tokens[1, 5, 0] = torch.nan
    (_, stoch, log_probs), gradients = observed(rssm, batch, 1)
    assert log_probs[1, 5].isnan().all() and log_probs[:, :5].isfinite().all() and log_probs[:, 6:].isfinite().all()
    assert gradients["from_tokens.weight"].isnan().any() and gradients["cell.gates.weight"].isnan().any()
    assert stoch[0].isfinite().all()
