"""A world model's kernels against plain torch: the cell, the scan, its gradients, and agents that learn by them."""

import numpy as np
import pytest
import torch

from agents.engines.fused_cpu.kernels import model_cell
from agents.engines.fused_cpu.kernels.model_cell import MODEL, Model
from agents.networks.world_model import RSSM, Sizes, State

LANES = 16
SHAPES = {
    "small": Sizes(),
    "odd": Sizes(deter=24, stoch=3, classes=5, width=20),
    "wide": Sizes(deter=256, stoch=8, classes=16, width=96),
}


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


def table_of(rssm):
    """As kernels find it, and what must outlive it."""
    cell, sizes, unimix = rssm.cell, rssm.sizes, np.array([rssm.unimix], np.float32)
    table = np.zeros(MODEL, np.int64)
    counts = (sizes.deter, sizes.width, sizes.stoch, sizes.classes, unimix.ctypes.data)
    weights = (
        cell.from_stoch.weight, cell.input_norm.scale, cell.gates.weight, cell.gates_norm.scale,
        rssm.from_deter.weight, rssm.posterior_norm.scale, rssm.posterior.weight, rssm.posterior.bias,
    )  # fmt: skip
    table[: len(counts)], table[len(counts) :] = counts, [weight.data_ptr() for weight in weights]
    return table, unimix


def address(array):
    return array.ctypes.data


def vectors(rows):
    """[16, features] as [features, 16]."""
    return np.ascontiguousarray(rows.detach().numpy().T)


@pytest.mark.parametrize("name", SHAPES)
def test_a_step_of_the_cell_is_torchs(name):
    rssm, g, sizes = rssm_of(name), generator(1), SHAPES[name]
    state = State(
        torch.randn(LANES, sizes.deter, generator=g), torch.randn(LANES, sizes.stoch * sizes.classes, generator=g)
    )
    prepared = torch.randn(LANES, sizes.width, generator=g)
    table, _kept = table_of(rssm)
    joined = np.concatenate((vectors(prepared), vectors(state.deter)))
    kept, out = (
        np.zeros((sizes.width + 3 * sizes.deter + 2, LANES), np.float32),
        np.zeros((sizes.deter, LANES), np.float32),
    )
    stoch = vectors(state.stoch)
    model_cell.move(*(address(x) for x in (table, stoch, joined, kept, out)))
    with torch.no_grad():
        wanted = rssm.cell(state, prepared)
    np.testing.assert_allclose(out.T, wanted, atol=1e-6)


@pytest.mark.parametrize("name", SHAPES)
def test_a_guess_and_its_draw_are_torchs(name):
    rssm, g, sizes = rssm_of(name), generator(2), SHAPES[name]
    count = sizes.stoch * sizes.classes
    deter, tokens = torch.randn(LANES, sizes.deter, generator=g), torch.randn(LANES, sizes.width, generator=g)
    u = torch.rand(LANES, sizes.stoch, generator=g)
    table, _kept = table_of(rssm)
    d, hidden, chances = vectors(deter), vectors(tokens), vectors(u)
    kept, logits, soft, hot = (np.zeros((n, LANES), np.float32) for n in (sizes.width + 1, count, count, count))
    weights = (
        int(table[entry]) for entry in (Model.FROM_DETER, Model.POSTERIOR_SCALE, Model.POSTERIOR, Model.POSTERIOR_BIAS)
    )
    sizes_given = (address(d), sizes.deter, address(hidden), sizes.width, address(kept), address(logits), count)
    model_cell.guess(*weights, *sizes_given)
    model_cell.draw(*(address(x) for x in (table, logits, chances, soft, hot)))
    with torch.no_grad():
        wanted = rssm._see(deter, tokens)
        sample = wanted.sample(u, rssm.table)
    np.testing.assert_allclose(logits.T, wanted.log_probs.flatten(-2), atol=2e-6)
    np.testing.assert_array_equal(hot.T, sample)
    assert 0.2 < sample.view(LANES, sizes.stoch, -1).argmax(-1).float().std()  # several classes were drawn


@pytest.mark.parametrize("features", [3, 16, 40])
def test_rows_become_vectors_and_rows_again(features):
    rows = np.random.default_rng(0).normal(size=(LANES, features)).astype(np.float32)
    there, back = np.zeros((features, LANES), np.float32), np.zeros_like(rows)
    model_cell.to_lanes(address(rows), features, address(there), features)
    np.testing.assert_array_equal(there, rows.T)
    model_cell.to_rows(address(there), address(back), features, features)
    np.testing.assert_array_equal(back, rows)
