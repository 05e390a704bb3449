"""Which device a name stands for, where torch is told what it would find; and what is compiled for one: no name has two
meanings, errors name their line, and kernels are kept."""

import importlib.util
import json
import os
import sys
import types

import pytest
import torch
from host_kernels import compile_host
from refusals import refusals
from snapshots import shown

from stride.commands import train
from stride.envs_fast.device_code import source_of
from stride.envs_fast.registry import WORLDS
from stride.runstore.run_files import read_json, write_json
from stride.utils import devices, provenance
from stride.utils.cuda_kernels import KernelError, compile_cuda, cubin_of, read_source, with_sizes
from stride.utils.devices import CPU, described, prepare, training_device
from stride.utils.places import module_of
from stride.utils.user_error import UserError
from tests.tiny_runs import tiny_run

NONE = "device: cuda: torch finds no CUDA device (torch 2.13.0+cpu was built without CUDA); use device=cpu"


@pytest.fixture
def gpus(monkeypatch):
    """`gpus(2)`: torch was built for CUDA and finds two of them, and CuPy is installed, or not."""

    def pretend(count, cupy=True, driver=""):
        def init():
            raise RuntimeError(driver)

        monkeypatch.setattr(torch.version, "cuda", "13.0")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "init", init)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA Made-Up")
        monkeypatch.setattr(devices, "find_spec", lambda name: importlib.util.find_spec("json") if cupy else None)

    return pretend


@pytest.fixture
def without_cuda(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch, "__version__", "2.13.0+cpu")


def test_the_cpu_is_taken_whatever_is_there_and_a_gpu_has_its_number(gpus):
    gpus(2)
    assert training_device("auto") == training_device("cpu") == CPU
    assert [str(training_device(name)) for name in ("cuda", "cuda:0", "cuda:1")] == ["cuda:0", "cuda:0", "cuda:1"]
    assert described(training_device("cuda:1")) == "cuda:1 (NVIDIA Made-Up)" and described(CPU) == "cpu"


TOO_OLD = "The NVIDIA driver on your system is too old (found version 11040). Please update"
NO_DRIVER = "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU"
REFUSED = [  # the name, how many GPUs there are, whether CuPy is, what the driver answers
    ("cuda:3", 2), ("cuda:3", 1), ("cuda:8", 8), ("cuda:300", 2), ("cuda", 1, False), ("cuda", 0, False, NO_DRIVER),
    ("cuda:1", 0, True, TOO_OLD), ("cuda", 0, True, "No CUDA GPUs are available"),
]  # fmt: skip


def test_what_is_not_there_is_one_line(gpus, snapshot):
    def take(case):
        name, *machine = case
        gpus(*machine)
        training_device(name)

    assert shown(refusals(take, REFUSED)) == snapshot


@pytest.mark.parametrize("more", ["", "-q", "--seed 1,2,3", "engine=graphed precision=tf32", "--json"])
def test_a_command_ends_before_there_is_a_run_or_a_kernel(more, tmp_path, monkeypatch, without_cuda, capfd):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(train, "warm", lambda *_: pytest.fail("kernels were compiled first"))
    assert train.command(["CartPole-v1:ppo", "device=cuda", *more.split()]) == 2
    out, err = capfd.readouterr()
    if more == "--json":
        event = json.loads(out)
        assert (event["event"], event["result"], event["error"]) == ("end", "failed", NONE)
    else:
        assert (out, err) == ("", f"error: {NONE}\n")
    assert not (tmp_path / "runs").exists()


GONE_ON = [
    ({}, "device=cpu"),
    ({"precision": "bf16"}, "device=cpu"),
    ({"engine": "graphed", "precision": "tf32"}, "device=cpu engine=auto precision=32"),
    ({"engine": "fused_gpu"}, "device=cpu engine=auto"),
]


@pytest.mark.parametrize(("keys", "words"), GONE_ON)
def test_a_run_of_a_gpu_goes_on_without_one(keys, words, tmp_path, monkeypatch, capsys, without_cuda):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    run = tiny_run(nan_guard="skip", max_timesteps=64)  # so that eager is taken here: nothing is compiled
    trained_on_a_gpu(run, {"device": "cuda", **keys})
    more = ["--resume", run.id, "--accept-changes", "--max-timesteps", "128"]
    capsys.readouterr()
    assert train.command([*more, "-q"]) == 2
    line = capsys.readouterr().err
    assert line == f"error: {NONE}; to continue on this machine: python train.py --resume {run.id} {words}\n"
    assert train.command([*more, *words.split()]) == 0
    out, facts = capsys.readouterr().out, read_json(run.config_json)
    assert "device cuda -> cpu" in out
    assert ", not bit-exact; engine graphed then, eager now; device cuda then, cpu now" in out
    assert (facts["engine"], facts["device"], facts["outcome"]["env_steps"]) == ("eager", "cpu", 128)


def trained_on_a_gpu(run, keys):
    """Its files as a GPU would have left them: `engine: auto` had taken graphed there."""
    for path in (run.config_json, *run.checkpoints.glob("*.json")):
        facts = read_json(path)
        facts |= {"engine": "graphed", "config": {**facts["config"], "engine": "auto", **keys}}
        if path != run.config_json:
            facts["device"] = "cuda"
        if not path.is_symlink():
            write_json(path, facts)


def test_cpu_runs_leave_torch_as_it_is():
    before = os.environ.get("CUBLAS_WORKSPACE_CONFIG"), torch.are_deterministic_algorithms_enabled()
    prepare(CPU, 32)
    assert (os.environ.get("CUBLAS_WORKSPACE_CONFIG"), torch.are_deterministic_algorithms_enabled()) == before


@pytest.mark.parametrize(("precision", "tf32"), [(32, False), ("tf32", True), ("bf16", False)])
def test_a_gpu_answers_the_same_each_time(precision, tf32, monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    matmul, cudnn, deterministic = torch.backends.cuda.matmul, torch.backends.cudnn, torch.utils.deterministic
    switches = [(matmul, "allow_tf32"), (cudnn, "allow_tf32"), (cudnn, "benchmark")]
    switches += [(deterministic, "fill_uninitialized_memory")]
    before = [getattr(owner, name) for owner, name in switches]
    try:
        prepare(torch.device("cuda", 1), precision)
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8" and chosen == [torch.device("cuda", 1)]
        assert torch.are_deterministic_algorithms_enabled()
        assert [getattr(owner, name) for owner, name in switches] == [tf32, tf32, False, False]
        assert torch.get_float32_matmul_precision() == ("high" if tf32 else "highest")  # Lightning asks so
    finally:
        torch.use_deterministic_algorithms(False)
        for (owner, name), value in zip(switches, before, strict=True):
            setattr(owner, name, value)


# ---- sources of device code


def written(folder, text):
    (folder / "tried.cu").write_text(text)
    return read_source(folder / "tried.cu").text


def test_a_name_that_two_modules_share_has_one_meaning(tmp_path, monkeypatch):
    for name, constants in {"one": {"SHARED": 2.5, "OWN": 1}, "two": {"SHARED": 2.5}, "three": {"SHARED": 2.0}}.items():
        made = types.ModuleType(name)
        vars(made).update(constants)
        monkeypatch.setitem(sys.modules, module_of(f"{name}.py"), made)
    assert written(tmp_path, '#include "one.py"\n#include "two.py"\n').count("#define SHARED 0x1.4") == 1
    with pytest.raises(ValueError, match=r"three.py: SHARED is 0x1.0\S+ here, but 0x1.4\S+ in a module .* before"):
        written(tmp_path, '#include "one.py"\n#include "three.py"\n')


def test_a_line_that_does_not_compile_is_named_in_its_own_file(tmp_path):
    """Whatever stands in front: sizes, other files, and the files that these include."""
    first, second = tmp_path / "first.cuh", tmp_path / "second.cu"
    first.write_text('#include "utils/device_math.cuh"\nint first[WIDTH];\n')
    second.write_text('#include "utils/device_math.cuh"\nint odd = ODD, second = ;\n')
    source = with_sizes(read_source(first, second), {"WIDTH": 64, "ODD": -7})
    with pytest.raises(RuntimeError, match=r"(?s)g\+\+ refuses first_second:.*\bsecond\.cu:2:\d+: error: ") as error:
        compile_host(source, CPU)
    assert str(error.value).count("error: ") == 1


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
