"""Finds the torch device that a config names, describes it, and makes its results repeatable."""

import os
import re
from importlib.util import find_spec
from pathlib import Path

import torch

from stride.utils.user_error import UserError

CPU = torch.device("cpu")
DRIVER = Path("/proc/driver/nvidia/version")  # its first line names the kernel module and its version
VERSION = re.compile(r"\s(\d+\.\d+(\.\d+)?)\s")
WORKSPACE = ":4096:8"  # a separate cuBLAS workspace for each stream, so that sums keep their order


def training_device(name: str) -> torch.device:
    """Return the device for auto, cpu, cuda or cuda:N; UserError, one line, if there is no such device.

    A GPU always has its index, so that it equals the device of tensors. CUDA is asked but not initialised.
    """
    if name in ("auto", "cpu"):
        return CPU
    try:
        device = torch.device(name)
    except RuntimeError:
        device = CPU
    if device.type != "cuda":
        raise UserError(f"device must be cpu, cuda or cuda:N, not {name!r}")
    if torch.version.cuda is None or not torch.cuda.is_available():
        raise UserError(f"device: {name}: torch finds no CUDA device ({why_no_cuda()}); use device=cpu")
    device_index = device.index or 0
    device_count = torch.cuda.device_count()
    if device_index >= device_count:
        raise UserError(f"device: {name}: there {_counted(device_count)}")
    if find_spec("cupy") is None:
        raise UserError("device: cuda needs CuPy: pip install 'stride-rl[gpu]'")
    return torch.device("cuda", device_index)


def why_no_cuda() -> str:
    """Say why torch finds no GPU: its build, or the first sentence of the driver's error."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} was built without CUDA"
    try:
        torch.cuda.init()
    except RuntimeError as error:  # no driver, too old a driver, or all GPUs hidden
        return str(error).split(". ")[0].strip()
    return f"torch {torch.__version__} for CUDA {torch.version.cuda} gives no reason"


def described(device: torch.device) -> str:
    """Return the device as text for people: `cpu`, or `cuda:0 (NVIDIA H200)`."""
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)


def prepare(device: torch.device, precision: str | int) -> None:
    """Make the results of a GPU repeatable, and set how it rounds float32 products (`precision`: "tf32" or another).

    Call it before the first tensor is on the GPU. It holds for the whole process. It does nothing for the CPU.
    """
    if device.type != "cuda":
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", WORKSPACE)  # read by cuBLAS as it begins
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # a kernel less a tensor
    torch.backends.cudnn.benchmark = False
    # cuDNN's default is tf32. These are the older names of the switches: Lightning reads them, and torch refuses a mix
    tf32 = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    torch.cuda.set_device(device)


def gpu_details(device: torch.device) -> dict[str, str]:
    """Return the GPU's model, its driver and torch's CUDA version, on which bits depend; {} for the CPU."""
    if device.type != "cuda":
        return {}
    return {
        "gpu": torch.cuda.get_device_name(device),
        "driver": driver_version(DRIVER.read_text() if DRIVER.exists() else ""),
        "cuda": str(torch.version.cuda),
    }


def driver_version(text: str) -> str:
    """Find the version in the text of the driver's file; "unknown" if there is none, as under WSL."""
    match = VERSION.search(text.partition("\n")[0])
    return match[1] if match else "unknown"


def _counted(device_count: int) -> str:
    if device_count == 1:
        return "is 1 CUDA device, cuda:0"
    return f"are {device_count} CUDA devices, cuda:0 {'and' if device_count == 2 else 'to'} cuda:{device_count - 1}"
