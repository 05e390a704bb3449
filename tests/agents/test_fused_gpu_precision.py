"""`precision: tf32 | bf16` of `engine: fused_gpu`: how far from float64 its gradient is, and that tensor cores made it.

The host rounds operands as a GPU does, multiplies exactly and adds up in float32, in an order of its own.
"""

from dataclasses import replace

import pytest
import torch
from driven import advance, agent_for, continued
from fused_cases import autograd_gradient, digest
from fused_gpu_cases import fused, held, judged, stats_of
from host_kernels import compile_host

from stride.agents.engines.choice import choose_on_gpu
from stride.agents.engines.fused_gpu import engine
from stride.envs_fast.vec_env import CPU
from stride.utils.cuda_kernels import read_source, with_sizes
from stride.utils.user_error import UserError

TINY = ("n_steps=40", "n_envs=6", "batch_size=80", "n_epochs=2", "threads=2", "hidden_dims=[16,32]", "policy_lr=1e-2")
WITHIN = {32: (0.0, 1e-6), "tf32": (1e-5, 1e-3), "bf16": (1e-4, 1e-2)}  # of the largest number of a gradient
M, N, K = 32, 24, 48
PRODUCT = """
#include "utils/tensor_cores.cuh"
extern "C" __global__ void product(const float* a, const float* b, float* c) {
  multiply<SIXTEEN, ROWS, COLUMNS, INNER>(
      {a, INNER, 1}, {b, 1, INNER}, [=](int i, int k) { return c[i * COLUMNS + k]; },
      [=](int i, int k, float sum) { c[i * COLUMNS + k] = sum; });
  __syncthreads();
}
"""


def lowered(precision):
    """Its play is eager's, in float32: the config's precision is that of the kernels alone."""
    agent = fused("CartPole-v1:ppo", *TINY)
    agent.config = replace(agent.config, precision=precision)
    return agent


def rounded(x, bits):
    """To so many bits of mantissa, to nearest; these numbers have no ties."""
    mantissa, exponent = torch.frexp(x.double())
    return torch.ldexp(torch.round(mantissa * 2.0 ** (bits + 1)) / 2.0 ** (bits + 1), exponent)


@pytest.mark.parametrize(("precision", "bits"), [("tf32", 10), ("bf16", 7)])
def test_a_product_is_that_of_rounded_operands(tmp_path, precision, bits):
    (tmp_path / "product.cu").write_text(PRODUCT)
    sizes = {"SIXTEEN": int(precision == "bf16"), "ROWS": M, "COLUMNS": N, "INNER": K}
    kernels = compile_host(with_sizes(read_source(tmp_path / "product.cu"), sizes), CPU)
    draw = torch.Generator().manual_seed(1)
    a, b, c = (torch.randn(*shape, generator=draw) for shape in ((M, K), (N, K), (M, N)))
    a[3, 5] = float("nan")
    expected = c.double() + rounded(a, bits) @ rounded(b, bits).T
    kernels.launch("product", 64, a, b, c, block=64)
    assert c[3].isnan().all() and c.isnan().sum() == N
    assert (c - expected)[~c.isnan()].abs().max() < 1e-5
    assert (expected - a.double() @ b.double().T).nan_to_num().abs().max() > 1e-3, "and of no others"


@pytest.mark.slow  # three nets for g++
def test_the_gradient_is_as_far_from_float64_as_the_format_is_and_no_nearer():
    found = {}
    for precision in WITHIN:
        agent = lowered(precision)
        updates = judged(agent)
        batch = updates.order[0, : agent.config.minibatch_size].long()
        expected = autograd_gradient(agent, batch, held(updates))
        updates.update(0)
        places = {id(place.parameter): place for place in updates.recipe.shape.layout.tensors}
        largest = max(each.abs().max().item() for each in expected)
        found[precision] = max(
            (places[id(parameter)].view(updates.gradient) - theirs).abs().max().item() / largest
            for parameter, theirs in zip(agent.policy.parameters(), expected, strict=True)
        )
        assert stats_of(updates).kl == 0.0 and stats_of(updates).clipped == 0.0, "the first ratio is 1"
    for precision, (least, most) in WITHIN.items():
        assert least <= found[precision] <= most, found


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_a_training_repeats_goes_on_and_follows_float32(precision):
    straight, half = advance(lowered(precision), 3), advance(lowered(precision), 2)
    assert digest(straight) == digest(advance(continued(half, lowered(precision)), 1))
    exact = advance(lowered(32), 1)
    advance(other := lowered(precision), 1)
    apart = max(
        (x - y).abs().max().item() for x, y in zip(other.policy.parameters(), exact.policy.parameters(), strict=True)
    )
    assert 0 < apart < 0.02


def test_it_is_taken_where_it_is_asked_for_and_refused_where_there_are_no_such_tensor_cores(monkeypatch):
    agent = agent_for("CartPole-v1:ppo", *TINY, "engine=eager")
    for name in ("auto", "fused_gpu"):
        assert choose_on_gpu(replace(agent.config, engine=name, precision="tf32"), agent).name == "fused_gpu"
    monkeypatch.setattr(engine, "capability", lambda device: (7, 5))
    with pytest.raises(UserError, match="precision: tf32 needs a GPU from sm_80 on, this one is sm_75; engine: auto"):
        choose_on_gpu(replace(agent.config, engine="fused_gpu", precision="tf32"), agent)
