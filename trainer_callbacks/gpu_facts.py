"""What the bits of a training on a GPU rest on beside code and versions: the model, its driver, and torch's CUDA."""

import re
from pathlib import Path

import torch

DRIVER = Path("/proc/driver/nvidia/version")  # its first line names the kernel module and its version
NUMBER = re.compile(r"\s(\d+\.\d+(\.\d+)?)\s")


def gpu_facts(device: torch.device) -> dict[str, str]:
    """{} for the CPU."""
    if device.type != "cuda":
        return {}
    return {
        "gpu": torch.cuda.get_device_name(device),
        "driver": driver_version(DRIVER.read_text() if DRIVER.exists() else ""),
        "cuda": str(torch.version.cuda),
    }


def driver_version(told: str) -> str:
    """Of the text that the driver's own file holds; "unknown" where it says none, as under WSL."""
    found = NUMBER.search(told.partition("\n")[0])
    return found[1] if found else "unknown"
