"""CUDA sources on their way to a GPU: what needs none, compiling and keeping, with CuPy's NVRTC; and CuPy's absence."""

import sys

import pytest
import torch

from stride.envs_fast.device_code import source_of
from stride.envs_fast.registry import WORLDS
from stride.utils.cuda_kernels import KernelError, compile_cuda, cubin_of
from stride.utils.user_error import UserError

SOURCE = source_of(WORLDS["CartPole-v1"])


def test_without_cupy_one_line_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(UserError, match=r"^device: cuda needs CuPy: pip install 'stride-rl\[gpu\]'$"):
        cubin_of(SOURCE, "sm_90", tmp_path)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    with pytest.raises(UserError, match="needs CuPy"):
        compile_cuda(SOURCE, torch.device("cuda:0"))


@pytest.fixture
def nvrtc():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    return cupy.cuda.nvrtc


def test_what_is_compiled_is_kept_by_all_that_it_follows_from(nvrtc, tmp_path, monkeypatch):
    first = cubin_of(SOURCE, "sm_90", tmp_path / "new")
    assert first.read_bytes().startswith(b"\x7fELF")
    monkeypatch.setattr(nvrtc, "compileProgram", None)  # whoever compiles again is found out
    assert cubin_of(SOURCE, "sm_90", tmp_path / "new") == first
    for source, architecture in ((SOURCE._replace(text=SOURCE.text + " "), "sm_90"), (SOURCE, "sm_80")):
        with pytest.raises(TypeError):
            cubin_of(source, architecture, tmp_path / "new")
    assert [*(tmp_path / "new").iterdir()] == [first]


def test_what_does_not_compile_is_named_with_its_line(nvrtc, tmp_path):
    with pytest.raises(KernelError, match=r"(?s)NVRTC refuses cartpole: .*cartpole.cu\(\d+\): error: "):
        cubin_of(SOURCE._replace(text=SOURCE.text + "\nint x = ;"), "sm_90", tmp_path)
    with pytest.raises(KernelError, match=r"(?s)NVRTC refuses cartpole: .*gpu-architecture"):
        cubin_of(SOURCE, "sm_11", tmp_path)
    assert not [*tmp_path.iterdir()]
