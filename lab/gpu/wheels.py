"""Packs wheels of packages on a machine with a network, and unpacks them on one without. Standard library only."""

import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from stride.utils.user_error import UserError

FOLDER = ".wheels"  # in the checkout, ignored by git
LACKED = ("gymnasium", "farama-notifications", "hydra-core", "omegaconf", "antlr4-python3-runtime")
BUILT = ("antlr4-python3-runtime",)  # it has no wheel; one built here fits every machine
PINS = "constraints.txt"
PLATFORMS = [f"{name}_x86_64" for name in ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")]
NEEDED = {  # module that the checks import -> its package
    "torch": "torch", "numpy": "numpy", "lightning": "lightning", "numba": "numba", "llvmlite": "llvmlite",
    "gymnasium": "gymnasium", "farama_notifications": "farama-notifications", "hydra": "hydra-core",
    "omegaconf": "omegaconf", "antlr4": "antlr4-python3-runtime", "yaml": "pyyaml", "rich": "rich",
    "cupy": "cupy-cuda13x",
}  # fmt: skip


def pack(folder: Path, root: Path, python: str, names: tuple[str, ...]) -> list[str]:
    """Store wheels of these packages, in the pinned versions and without dependencies; return the folder's wheels."""
    pins = dict(line.split("==") for line in (root / PINS).read_text(encoding="utf-8").split() if "==" in line)
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        requirement = f"{name}=={pins[name]}" if name in pins else name
        if name in BUILT:
            _pip("wheel", "--no-deps", "--wheel-dir", str(folder), requirement)
            continue
        platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
        target = ["--only-binary=:all:", "--implementation", "cp", "--python-version", python, *platforms]
        _pip("download", "--no-deps", *target, "--dest", str(folder), requirement)
    return sorted(path.name for path in folder.glob("*.whl"))


def unpack(folder: Path, target: Path) -> None:
    wheels = sorted(map(str, folder.glob("*.whl")))
    if not wheels:
        raise UserError(f"{folder} holds no wheels; python scripts/gpu_check.py --wheels {folder} packs them")
    _pip("install", "--no-index", "--no-deps", "--no-compile", "--target", str(target), *wheels)


def missing(also: Path | None = None) -> list[str]:
    """Return the packages that neither this Python nor the folder `also` has."""
    path = [*([str(also)] if also else []), *sys.path]
    specs = {module: PathFinder.find_spec(module, path) for module in NEEDED}
    return [NEEDED[module] for module, spec in specs.items() if spec is None or spec.origin is None]  # None: a folder


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", arguments[0], "--quiet", *arguments[1:]]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        lines = result.stderr.strip().splitlines() or ["said nothing"]
        raise UserError(f"pip {arguments[0]} {arguments[-1]}: {lines[-1]}")
