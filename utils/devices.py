"""The device that a config names: whether it is there, how it is called, and what makes its answers repeatable."""

import os
from importlib.util import find_spec

import torch

from stride.utils.user_error import UserError

CPU = torch.device("cpu")
MAPPED = ":4096:8"  # cuBLAS with a workspace of its own for each stream: the same sums in the same order


def training_device(name: str) -> torch.device:
    """auto, cpu, cuda or cuda:N as a device to train on; UserError, one line, where there is none of that name.

    A GPU always has its number, so that devices compare equal to those of tensors. CUDA is asked, but not begun.
    """
    if name in ("auto", "cpu"):
        return CPU
    if torch.version.cuda is None or not torch.cuda.is_available():
        raise UserError(f"device: {name}: torch finds no CUDA device ({why_no_cuda()}); device: cpu trains here")
    index, count = int(name.partition(":")[2] or 0), torch.cuda.device_count()
    if index >= count:
        raise UserError(f"device: {name}: there {_counted(count)}")
    if find_spec("cupy") is None:
        raise UserError("device: cuda needs CuPy: pip install 'stride-rl[gpu]'")
    return torch.device("cuda", index)


def why_no_cuda() -> str:
    """What keeps torch from finding a GPU: its build, or what the driver answers."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} was built without CUDA"
    try:
        torch.cuda.init()
    except RuntimeError as error:  # no driver, one that is too old, all GPUs hidden: torch's first sentence says which
        return str(error).split(". ")[0].strip()
    return f"torch {torch.__version__} for CUDA {torch.version.cuda} does not say why"


def described(device: torch.device) -> str:
    """For people: `cpu`, or `cuda:0 (NVIDIA H200)`."""
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)


def prepare(device: torch.device, precision: str | int) -> None:
    """Before the first tensor lies on a GPU: the same answers each time, and how float32 products are rounded there.

    Process-wide, as torch has it. Nothing changes for the CPU.
    """
    if device.type != "cuda":
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", MAPPED)  # read by cuBLAS as it begins
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # a kernel less a tensor
    torch.backends.cudnn.benchmark = False
    # cuDNN's own default is tf32. Said by the older names: Lightning reads these, and torch refuses a mix of both
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.cuda.set_device(device)


def _counted(count: int) -> str:
    names = [f"cuda:{index}" for index in range(count)]
    if count == 1:
        return f"is 1 CUDA device, {names[0]}"
    return f"are {count} CUDA devices, {f'{names[0]} and {names[1]}' if count == 2 else f'{names[0]} to {names[-1]}'}"
