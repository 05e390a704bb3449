"""Collects the facts of a machine: GPU, driver, clocks, CUDA, and the versions of the packages that compute."""

import os
import platform
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from lab.gpu.parts import Found, Machine
from stride.utils.devices import training_device
from stride.utils.provenance import processor
from stride.utils.user_error import UserError

PACKAGES = ("torch", "cupy-cuda13x", "numpy", "numba", "lightning", "gymnasium", "hydra-core")
ASKED = (  # queries of nvidia-smi
    "driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "clocks.max.mem", "power.limit", "ecc.mode.current",
    "mig.mode.current", "utilization.gpu", "memory.used",
)  # fmt: skip


def present(machine: Machine) -> Iterator[Found]:
    """Yield the GPU's name; a fault if there is none."""
    try:
        device = training_device(machine.device)
    except UserError as error:
        yield Found("", {}, [str(error)])
    else:
        yield Found(torch.cuda.get_device_name(device) if device.type == "cuda" else processor(), {})


def facts(machine: Machine, seconds: float) -> Iterator[Found]:
    """Yield the facts; this check finds no faults."""
    device = training_device(machine.device)
    figures: dict[str, Any] = {
        "host": {"processor": processor(), "cores": os.cpu_count(), "system": platform.platform()},
        "python": platform.python_version(),
        "versions": {name: installed(name) for name in PACKAGES},
        **{"cuda": torch.version.cuda, "gpu": None, "nvidia_smi": None},
    }
    line = f"Python {figures['python']}, torch {torch.__version__}"
    if device.type == "cuda":
        gpu = torch.cuda.get_device_properties(device)
        figures["gpu"] = {
            "name": gpu.name, "capability": f"{gpu.major}.{gpu.minor}", "count": torch.cuda.device_count(),
            "multiprocessors": gpu.multi_processor_count, "memory_gib": round(gpu.total_memory / 2**30, 1),
            "l2_mib": round(gpu.L2_cache_size / 2**20, 1),
        }  # fmt: skip
        figures["nvidia_smi"] = asked(str(gpu.uuid))
        line = f"{gpu.name}, sm_{gpu.major}{gpu.minor}, {figures['gpu']['memory_gib']} GiB, {line}"
    yield Found(line, figures)


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def asked(uuid: str) -> dict[str, str] | str:
    """Return what nvidia-smi says about this idle GPU, or the text of its error."""
    command = ["nvidia-smi", f"--id=GPU-{uuid}", f"--query-gpu={','.join(ASKED)}", "--format=csv,noheader"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return dict(zip(ASKED, result.stdout.strip().split(", "), strict=True))
