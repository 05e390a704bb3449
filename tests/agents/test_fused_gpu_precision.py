"""`precision: tf32 | bf16` of `engine: fused_gpu`: how far from float64 its gradient is, and that tensor cores made it.

The host rounds operands as a GPU does, multiplies exactly and adds up in float32, in an order of its own.
"""

import pytest
import torch
from fused_cases import LOWERED, autograd_gradient, furthest, gradients_of, held, judged, stats_of
from host_kernels import compile_host
from same_as_eager import learning_lowered

from stride.envs_fast.vec_env import CPU
from stride.utils.cuda_kernels import read_source, with_sizes

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
    assert (expected - a.double() @ b.double().T).nan_to_num().abs().max() > 1e-3


@pytest.mark.slow  # three nets for g++
def test_the_gradient_is_as_far_from_float64_as_the_format_is_and_no_nearer():
    apart = {}
    for precision in WITHIN:
        agent = learning_lowered(precision, "CartPole-v1:ppo", *LOWERED)
        updates = judged(agent)
        exact = autograd_gradient(agent, updates.order[0, : agent.config.minibatch_size].long(), held(updates))
        updates.update(0)
        apart[precision] = furthest(gradients_of(updates.recipe, updates.gradient, agent.policy.parameters()), exact)
        assert stats_of(updates).kl == 0.0 and stats_of(updates).clipped == 0.0, "the first ratio is 1"
    for precision, (least, most) in WITHIN.items():
        assert least <= apart[precision] <= most, apart
