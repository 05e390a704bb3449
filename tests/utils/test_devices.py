"""Which device a name stands for: there are no GPUs here, so torch is told what it would find."""

import importlib.util
import json
import os

import pytest
import torch

from stride.commands import train
from stride.runstore.run_files import read_json, write_json
from stride.utils import devices
from stride.utils.devices import CPU, described, prepare, training_device
from stride.utils.user_error import UserError
from tests.tiny_runs import tiny_run

NONE = "device: cuda: torch finds no CUDA device (torch 2.13.0+cpu was built without CUDA); device: cpu trains here"


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


@pytest.mark.parametrize("name", ["auto", "cpu"])
def test_the_cpu_is_taken_whatever_is_there(name, gpus):
    gpus(2)
    assert training_device(name) == CPU


def test_a_gpu_has_its_number(gpus):
    gpus(2)
    assert [str(training_device(name)) for name in ("cuda", "cuda:0", "cuda:1")] == ["cuda:0", "cuda:0", "cuda:1"]
    assert described(training_device("cuda:1")) == "cuda:1 (NVIDIA Made-Up)" and described(CPU) == "cpu"


REFUSED = [  # how many GPUs, CuPy, what the driver answers, the name, the line
    (2, True, "", "cuda:3", "device: cuda:3: there are 2 CUDA devices, cuda:0 and cuda:1"),
    (1, True, "", "cuda:3", "device: cuda:3: there is 1 CUDA device, cuda:0"),
    (8, True, "", "cuda:8", "device: cuda:8: there are 8 CUDA devices, cuda:0 to cuda:7"),
    (2, True, "", "cuda:300", "device: cuda:300: there are 2 CUDA devices, cuda:0 and cuda:1"),
    (1, False, "", "cuda", "device: cuda needs CuPy: pip install 'stride-rl[gpu]'"),
    (0, False, "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU", "cuda",
     "device: cuda: torch finds no CUDA device (Found no NVIDIA driver on your system); device: cpu trains here"),
    (0, True, "The NVIDIA driver on your system is too old (found version 11040). Please update", "cuda:1",
     "device: cuda:1: torch finds no CUDA device (The NVIDIA driver on your system is too old (found version 11040)); "
     "device: cpu trains here"),
    (0, True, "No CUDA GPUs are available", "cuda",
     "device: cuda: torch finds no CUDA device (No CUDA GPUs are available); device: cpu trains here"),
]  # fmt: skip


@pytest.mark.parametrize(("count", "cupy", "driver", "name", "line"), REFUSED, ids=[line for *_, line in REFUSED])
def test_what_is_not_there_is_one_line(count, cupy, driver, name, line, gpus):
    gpus(count, cupy, driver)
    with pytest.raises(UserError) as raised:
        training_device(name)
    assert str(raised.value) == line


def test_a_build_without_cuda_says_so(without_cuda):
    with pytest.raises(UserError) as raised:
        training_device("cuda")
    assert str(raised.value) == NONE


class TestCommand:
    """The same at the terminal: exit code 2, one line, no run folder, nothing compiled."""

    @pytest.fixture(autouse=True)
    def runs(self, tmp_path, monkeypatch, without_cuda):
        monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
        monkeypatch.setattr(train, "warm", lambda *_: pytest.fail("kernels were compiled first"))
        return tmp_path / "runs"

    @pytest.mark.parametrize("words", [[], ["-q"], ["--seed", "1,2,3"], ["engine=graphed", "precision=tf32"]], ids=str)
    def test_a_run(self, words, runs, capsys):
        assert train.command(["CartPole-v1:ppo", "device=cuda", *words]) == 2
        said = capsys.readouterr()
        assert (said.out, said.err) == ("", f"error: {NONE}\n") and not runs.exists()

    def test_for_programs(self, runs, capfd):
        assert train.command(["CartPole-v1:ppo", "device=cuda", "--json"]) == 2
        (event,) = map(json.loads, capfd.readouterr().out.splitlines())
        assert (event["event"], event["result"], event["error"]) == ("end", "failed", NONE) and not runs.exists()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, "device=cpu"),
        ({"precision": "bf16"}, "device=cpu"),
        ({"engine": "graphed", "precision": "tf32"}, "device=cpu engine=auto precision=32"),
        ({"engine": "fused_gpu"}, "device=cpu engine=auto"),
    ],
)
def test_a_run_of_a_gpu_goes_on_without_one(keys, words, tmp_path, monkeypatch, capsys, without_cuda):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    run = tiny_run(nan_guard="skip", max_timesteps=64)  # so that eager is taken here: nothing is compiled
    trained_on_a_gpu(run, {"device": "cuda", **keys})
    more = ["--resume", run.id, "--accept-changes", "--max-timesteps", "128"]
    capsys.readouterr()
    assert train.command([*more, "-q"]) == 2
    line = capsys.readouterr().err
    assert line == f"error: {NONE}; to go on there: python train.py --resume {run.id} {words}\n"
    assert train.command([*more, *words.split()]) == 0
    said = capsys.readouterr().out
    facts = read_json(run.config_json)
    assert "device cuda -> cpu" in said
    assert ", not to the bit; engine graphed then, eager now; device cuda then, cpu now" in said
    assert (facts["engine"], facts["device"], facts["outcome"]["env_steps"]) == ("eager", "cpu", 128)


def trained_on_a_gpu(run, keys):
    """Its files as a GPU would have left them: `engine: auto` had taken graphed there."""
    changed = {"engine": "auto", **keys}
    sidecars = [path for path in run.checkpoints.glob("*.json") if not path.is_symlink()]
    for path in (run.config_json, *sidecars):
        facts = read_json(path)
        written = {**facts, "engine": "graphed", "config": {**facts["config"], **changed}}
        if path != run.config_json:
            written["device"] = "cuda"
        write_json(path, written)


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
