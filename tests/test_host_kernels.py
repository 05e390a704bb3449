"""The stand-in for a GPU finds what would be wrong on one: a missing barrier, wrong arguments, code that is refused."""

import numpy as np
import pytest
import torch
from host_kernels import HostKernels, compile_host

from stride.utils.cuda_kernels import read_source

BARRIER = "  __syncthreads();  // every warp has left its sum\n"
SUM = f"""
#include "utils/device_math.cuh"
DEVICE float warp_sum(float x) {{
  for (int lanes = 16; lanes; lanes >>= 1) x += __shfl_xor_sync(~0u, x, lanes);
  return x;
}}
extern "C" __global__ void __launch_bounds__(256) block_sum(const float* in, float* out, int n) {{
  __shared__ float parts[32];
  float sum = 0.0f;
  for (int k = threadIdx.x; k < n; k += blockDim.x) sum += in[n * blockIdx.x + k];
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
{BARRIER}  if (threadIdx.x < 32) {{  // one warp goes on by itself
    sum = warp_sum(threadIdx.x < blockDim.x / 32 ? parts[threadIdx.x] : 0.0f);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
  }}
  __syncthreads();
  if (threadIdx.x == blockDim.x - 1) out[gridDim.x + blockIdx.x] = out[blockIdx.x];
}}
"""
STUCK = """
extern "C" __global__ void stuck(float* out) {
  if (threadIdx.x < 16) __syncthreads();
  else __syncwarp();
}
"""
REVERSE = """
#include "utils/device_math.cuh"
extern "C" __global__ void reverse(float* out) {
  DYNAMIC_SHARED(cells);
  cells[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = cells[blockDim.x - 1 - threadIdx.x];
}
"""
BLOCKS, COUNT, THREADS = 3, 1000, 256
ORDERS = (0, 1, 2, 3, 4)  # forwards, backwards, shuffled


@pytest.fixture
def compiled(tmp_path):
    def compiled(text: str) -> HostKernels:
        (tmp_path / "tried.cu").write_text(text)
        return compile_host(read_source(tmp_path / "tried.cu"), torch.device("cpu"))

    return compiled


def sums(kernels: HostKernels, x: torch.Tensor, order: int) -> torch.Tensor:
    """The sum of each block, twice: as one thread wrote it, and as another then read it."""
    out, kernels.order = torch.zeros(2, BLOCKS), order
    kernels.launch("block_sum", BLOCKS * THREADS, x, out, np.int32(COUNT), block=THREADS)
    return out


@pytest.fixture
def x() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).random((BLOCKS, COUNT), dtype=np.float32))


def test_a_block_adds_up_the_same_in_every_order_unless_a_barrier_is_missing(compiled, x):
    """Without it the reader comes before the writers, but for threads that take turns backwards."""
    good, faulty = compiled(SUM), compiled(SUM.replace(BARRIER, ""))
    results = [sums(good, x, order) for order in ORDERS]
    torch.testing.assert_close(results[0][0], x.sum(1), rtol=1e-5, atol=0.0)
    assert all(torch.equal(result, results[0][:1].expand(2, BLOCKS)) for result in results)
    for order in ORDERS:
        result = sums(faulty, x, order)
        assert torch.isclose(result, x.sum(1), rtol=1e-5).all() if order == 1 else result.isnan().all()


def test_threads_that_wait_at_different_barriers_are_an_error(compiled):
    with pytest.raises(RuntimeError, match="tried: stuck has threads that wait for each other at different barriers"):
        compiled(STUCK).launch("stuck", 32, torch.zeros(1), block=32)


def test_shared_memory_is_as_large_as_the_launch_says(compiled):
    kernels, out = compiled(REVERSE), torch.empty(64)
    kernels.launch("reverse", 64, out, block=64, shared=4 * 64)
    assert out.tolist() == [*reversed(range(64))]
    with pytest.raises(RuntimeError, match="tried: reverse writes beyond the shared memory it was given"):
        kernels.launch("reverse", 64, out, block=64, shared=4 * 60)


def test_arguments_of_other_types_are_refused(compiled, x):
    kernels, out = compiled(SUM), torch.zeros(2, BLOCKS)
    takes = r"tried: block_sum takes \*f4 \*f4 i4, got "
    for arguments in ((x, out), (x, out, np.int64(COUNT)), (x.double(), out, np.int32(COUNT))):
        with pytest.raises(TypeError, match=takes):
            kernels.launch("block_sum", BLOCKS * THREADS, *arguments, block=THREADS)
    with pytest.raises(ValueError, match="contiguous"):
        kernels.launch("block_sum", BLOCKS * THREADS, x.t(), out, np.int32(COUNT), block=THREADS)
