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
GIVEN = """
#include "utils/device_math.cuh"
extern "C" __global__ void reverse(float* out) {
  DYNAMIC_SHARED(kept);
  kept[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
}
"""
BLOCKS, EACH, THREADS = 3, 1000, 256
FORWARDS, BACKWARDS, SHUFFLED = 0, 1, (2, 3, 4)


@pytest.fixture
def compiled(tmp_path):
    def compiled(text: str) -> HostKernels:
        (tmp_path / "tried.cu").write_text(text)
        return compile_host(read_source(tmp_path / "tried.cu"), torch.device("cpu"))

    return compiled


def sums(kernels: HostKernels, x: torch.Tensor, order: int) -> torch.Tensor:
    """The sum of each block, twice: as one thread wrote it, and as another then read it."""
    out, kernels.order = torch.zeros(2, BLOCKS), order
    kernels.launch("block_sum", BLOCKS * THREADS, x, out, np.int32(EACH), block=THREADS)
    return out


@pytest.fixture
def x() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).random((BLOCKS, EACH), dtype=np.float32))


def test_a_block_adds_up_the_same_in_every_order(compiled, x):
    kernels = compiled(SUM)
    results = [sums(kernels, x, order) for order in (FORWARDS, BACKWARDS, *SHUFFLED)]
    torch.testing.assert_close(results[0][0], x.sum(1), rtol=1e-5, atol=0.0)
    assert all(torch.equal(each, results[0][:1].expand(2, BLOCKS)) for each in results)


def test_a_missing_barrier_is_found(compiled, x):
    """The reader comes before the writers: in the order of blocks' warps, not in the opposite one."""
    kernels = compiled(SUM.replace(BARRIER, ""))
    right = torch.isclose(sums(kernels, x, BACKWARDS), x.sum(1), rtol=1e-5)
    assert right.all(), "backwards it is hidden"
    for order in (FORWARDS, *SHUFFLED):
        assert sums(kernels, x, order).isnan().all()


def test_threads_that_wait_at_different_barriers_are_found(compiled):
    with pytest.raises(RuntimeError, match="tried: stuck has threads that wait for each other at different barriers"):
        compiled(STUCK).launch("stuck", 32, torch.zeros(1), block=32)


def test_shared_memory_is_as_large_as_the_launch_says(compiled):
    kernels, out = compiled(GIVEN), torch.empty(64)
    kernels.launch("reverse", 64, out, block=64, shared=4 * 64)
    assert out.tolist() == [*reversed(range(64))]
    with pytest.raises(RuntimeError, match="tried: reverse writes beyond the shared memory it was given"):
        kernels.launch("reverse", 64, out, block=64, shared=4 * 60)


def test_arguments_of_other_types_are_refused(compiled, x):
    kernels, out = compiled(SUM), torch.zeros(2, BLOCKS)
    takes = r"tried: block_sum takes \*f4 \*f4 i4, got "
    for wrong in ((x, out), (x, out, np.int64(EACH)), (x.double(), out, np.int32(EACH)), (x, np.int32(1), np.int32(1))):
        with pytest.raises(TypeError, match=takes):
            kernels.launch("block_sum", BLOCKS * THREADS, *wrong, block=THREADS)
    with pytest.raises(ValueError, match="contiguous"):
        kernels.launch("block_sum", BLOCKS * THREADS, x.t(), out, np.int32(EACH), block=THREADS)


def test_a_compiler_names_the_file_and_the_line(compiled):
    with pytest.raises(RuntimeError, match=r"(?s)g\+\+ refuses tried:.*tried\.cu:3:.*Wrods"):
        compiled('\n#include "utils/device_math.cuh"\nWrods words;\n')
