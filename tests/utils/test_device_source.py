"""Constants reach device code exactly, files once, and no name with two meanings; what is compiled is kept."""

import sys
import types

import numpy as np
import pytest
import torch

from stride.envs_fast.device_code import source_of
from stride.envs_fast.registry import WORLDS
from stride.utils import provenance
from stride.utils.cuda_kernels import KernelError, compile_cuda, cubin_of, defines, read_source, with_sizes
from stride.utils.places import module_of
from stride.utils.user_error import UserError


def test_only_numbers_in_capitals_are_defined():
    module = {"A": 1, "_B": 2, "c": 3, "D": "text", "E": (1.5, "x", np.float32(-0.1)), "F": np.float32}
    module["G2"] = np.int64(-7)
    assert defines(module) == {"A": "1", "E_0": "0x1.8000000000000p+0", "E_2": "(-0x1.99999a0000000p-4f)", "G2": "(-7)"}


def written(folder, text):
    (folder / "tried.cu").write_text(text)
    return read_source(folder / "tried.cu").text


def test_a_name_that_two_modules_share_has_one_meaning(tmp_path, monkeypatch):
    for name, constants in {"one": {"SHARED": 2.5, "OWN": 1}, "two": {"SHARED": 2.5}, "three": {"SHARED": 2.0}}.items():
        made = types.ModuleType(name)
        vars(made).update(constants)
        monkeypatch.setitem(sys.modules, module_of(f"{name}.py"), made)
    assert written(tmp_path, '#include "one.py"\n#include "two.py"\n').count("#define SHARED 0x1.4") == 1
    with pytest.raises(ValueError, match=r"three.py: SHARED is 0x1.0\S+ here and 0x1.4\S+ in a module .* before"):
        written(tmp_path, '#include "one.py"\n#include "three.py"\n')


def test_a_file_is_pasted_once_and_lines_keep_their_numbers(tmp_path):
    text = written(tmp_path, '#include "envs_fast/world.cuh"\n#include "utils/device_math.cuh"\nint x;\n')
    assert text.count("DEVICE Words philox(") == 1 and '#include "' not in text
    assert text.endswith('#line 3 "tried.cu"\nint x;\n')
    first, second = tmp_path / "first.cuh", tmp_path / "second.cu"
    for file in (first, second):
        file.write_text(f'#include "utils/device_math.cuh"\nint {file.stem};\n')
    source = read_source(first, second)
    assert source.name == "first_second" and source.text.count("DEVICE Words philox(") == 1
    assert '#line 2 "first.cuh"\nint first;\n#line 1 "second.cu"\n#line 2 "second.cu"\nint second;\n' in source.text


def test_sizes_stand_in_front_and_messages_keep_their_lines(tmp_path):
    (tmp_path / "tried.cu").write_text("int x[WIDTH];\n")
    sized = with_sizes(read_source(tmp_path / "tried.cu"), {"WIDTH": 64, "RELU": True, "RATE": 0.5, "DIMS": [32, 16]})
    lines = "#define WIDTH 64\n#define RELU 1\n#define RATE 0x1.0000000000000p-1\n#define DIMS 32, 16\n"
    assert sized == ("tried", lines + '#line 1 "tried.cu"\nint x[WIDTH];\n')


def test_a_kernel_that_was_edited_is_other_code(tmp_path, monkeypatch):
    """To resume a run exactly is to run the same code, CUDA sources included."""
    monkeypatch.setattr(provenance, "PROJECT", tmp_path)
    kernel, hashes = tmp_path / "envs_fast" / "tried.cu", set()
    kernel.parent.mkdir()
    for text in ("int x;", "int y;"):
        kernel.write_text(text)
        hashes.add(provenance.source_hash.__wrapped__())
    assert len(hashes) == 2


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
