"""The device that a config names: whether it is there, how it is called, and what makes its answers repeatable."""

import os
import re
from importlib.util import find_spec
from pathlib import Path

import torch

from stride.utils.user_error import UserError

CPU = torch.device("cpu")
DRIVER = Path("/proc/driver/nvidia/version")  # its first line names the kernel module and its version
NUMBER = re.compile(r"\s(\d+\.\d+(\.\d+)?)\s")
WORKSPACE = ":4096:8"  # cuBLAS with a workspace of its own for each stream: the same sums in the same order


def training_device(name: str) -> torch.device:
    """auto, cpu, cuda or cuda:N as a device to train on; UserError, one line, where there is none of that name.

    A GPU always has its number, so that devices compare equal to those of tensors. CUDA is asked, but not begun.
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
    """What keeps torch from finding a GPU: its build, or what the driver answers."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} was built without CUDA"
    try:
        torch.cuda.init()
    except RuntimeError as error:  # no driver, one that is too old, all GPUs hidden: torch's first sentence says which
        return str(error).split(". ")[0].strip()
    return f"torch {torch.__version__} for CUDA {torch.version.cuda} gives no reason"


def described(device: torch.device) -> str:
    """For people: `cpu`, or `cuda:0 (NVIDIA H200)`."""
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)


def prepare(device: torch.device, precision: str | int) -> None:
    """Before the first tensor is on a GPU: the same answers each time, and how float32 products are rounded there.

    Process-wide, as torch has it. Nothing changes for the CPU.
    """
    if device.type != "cuda":
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", WORKSPACE)  # read by cuBLAS as it begins
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # a kernel less a tensor
    torch.backends.cudnn.benchmark = False
    # cuDNN's own default is tf32. Said by the older names: Lightning reads these, and torch refuses a mix of both
    tf32 = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    torch.cuda.set_device(device)


def gpu_details(device: torch.device) -> dict[str, str]:
    """The model, its driver, and torch's CUDA, which equal bits rest on beside code and versions; {} for the CPU."""
    if device.type != "cuda":
        return {}
    return {
        "gpu": torch.cuda.get_device_name(device),
        "driver": driver_version(DRIVER.read_text() if DRIVER.exists() else ""),
        "cuda": str(torch.version.cuda),
    }


def driver_version(text: str) -> str:
    """The version in the text of the driver's file; "unknown" where there is none, as under WSL."""
    match = NUMBER.search(text.partition("\n")[0])
    return match[1] if match else "unknown"


def _counted(device_count: int) -> str:
    if device_count == 1:
        return "is 1 CUDA device, cuda:0"
    return f"are {device_count} CUDA devices, cuda:0 {'and' if device_count == 2 else 'to'} cuda:{device_count - 1}"
