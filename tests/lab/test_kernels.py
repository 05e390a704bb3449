"""Every kernel compiles for GPUs that are not here, and fits into their registers; the page says how many."""

import re

import pytest

from lab import kernels
from stride.utils.cuda_kernels import Source, read_source

pytestmark = [pytest.mark.nvrtc, pytest.mark.skipif(kernels.library_file() is None, reason=kernels.MISSING)]

WRITTEN_BY = re.compile(r"NVRTC (\d+\.\d+)")
ROW = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)  # a kernel of the page
SPILLING = """
extern "C" __global__ void __launch_bounds__(1024, 2) greedy(float* x) {
  float kept[64];
#pragma unroll
  for (int k = 0; k < 64; k++) kept[k] = x[threadIdx.x + 1024 * k];
  for (int turn = 0; turn < 100; turn++) {
#pragma unroll
    for (int k = 0; k < 64; k++) kept[k] = kept[k] * kept[(k + 7) % 64] + 1.0f;
  }
#pragma unroll
  for (int k = 0; k < 64; k++) x[threadIdx.x + 1024 * k] = kept[k];
}
"""


def on_the_page(table):
    """Whether all fit into the registers, and have a row each."""
    return kernels.unfit(table) == [] and set(table) <= set(ROW.findall(kernels.PAGE.read_text()))


@pytest.mark.parametrize(
    "source", [*kernels.sources(), *kernels.rollouts(), *kernels.updates()], ids=lambda source: source.name
)
def test_a_source_compiles_without_spills_and_is_on_the_page(source):
    assert on_the_page(kernels.measured([source], ["sm_90"]))


@pytest.mark.parametrize("precision", kernels.LOWERED)
def test_what_tensor_cores_multiply_compiles_without_spills_and_is_on_the_page(precision):
    assert on_the_page(kernels.lowered(precision, ["sm_80"]))
    with pytest.raises(RuntimeError, match="NVRTC refuses update"):
        kernels.lowered(precision, ["sm_75"])


@pytest.mark.slow
def test_every_kernel_fits_into_the_oldest_gpu_as_the_page_says():
    oldest = next(iter(kernels.ARCHITECTURES))
    table = kernels.measured([*kernels.sources(), *kernels.rollouts(), *kernels.updates()], [oldest])
    assert kernels.unfit(table) == []
    page = kernels.PAGE.read_text()
    if WRITTEN_BY.findall(page) == [kernels.nvrtc_version()]:
        first = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", page, re.MULTILINE))
        assert first == {kernel: str(row[oldest].registers) for kernel, row in table.items()}


@pytest.mark.soak
@pytest.mark.slow
def test_the_page_is_what_nvrtc_says_for_every_architecture():
    page, wanted = kernels.PAGE.read_text(), kernels.markdown(kernels.everything(), kernels.nvrtc_version())
    assert page == wanted or WRITTEN_BY.findall(page) != [kernels.nvrtc_version()]
    assert ROW.findall(page) == ROW.findall(wanted)


def test_a_spill_is_an_error_and_what_nvrtc_refuses_has_its_file_and_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "greedy.cu").write_text(SPILLING)
    monkeypatch.setattr(kernels, "sources", lambda: [read_source(tmp_path / "greedy.cu")])
    for made in ("rollouts", "updates"):
        monkeypatch.setattr(kernels, made, list)
    monkeypatch.setattr(kernels, "LOWERED", ())
    monkeypatch.setattr(kernels, "ARCHITECTURES", {"sm_90": ""})
    assert kernels.main([]) == 1
    assert capsys.readouterr().err.startswith("greedy spills ")
    (tmp_path / "wrong.cu").write_text('\n#include "utils/device_math.cuh"\nWrods words;\n')
    with pytest.raises(RuntimeError, match=r'(?s)NVRTC refuses wrong:.*wrong\.cu\(3\).*"Wrods" is undefined'):
        kernels.resources(read_source(tmp_path / "wrong.cu"), "sm_90")
    with pytest.raises(RuntimeError, match="does not say what nothing takes"):
        kernels.resources(Source("nothing", "__device__ int x;"), "sm_90")
