"""A wheel of this checkout, and environments to install it into."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, f'build_{sys.argv[2]}')(sys.argv[1])"
OURS = ("stride_rl", "__editable__")


def build(folder: Path, kind: str = "wheel", checkout: Path = ROOT) -> Path:
    """The `wheel` or `sdist` of a checkout, made in an empty folder by the backend that pip would ask."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-c", BUILD, folder, kind], cwd=checkout, check=True, capture_output=True)
    [result] = folder.iterdir()
    return result


def environment(folder: Path) -> Path:
    """The Python of a new environment that has all that is installed here, pip included, but not this project."""
    venv.create(folder, with_pip=False)
    (libraries := folder / "libraries" / "site-packages").mkdir(parents=True)  # so that blame.py sees libraries
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(OURS) and path.suffix != ".pth":  # an editable installation is one of these
            (libraries / path.name).symlink_to(path)
    site = sysconfig.get_path("purelib", vars={"base": str(folder)})
    Path(site, "libraries.pth").write_text(f"{libraries}\n")
    pip = folder / "bin" / "pip"
    pip.write_text(f'#!/bin/sh\nexec {folder}/bin/python -m pip "$@"\n')
    pip.chmod(0o755)
    return folder / "bin" / "python"


def install(wheel: Path, folder: Path) -> Path:
    """The Python of a new environment with the wheel; its dependencies must be installed here."""
    python = environment(folder)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", wheel], check=True)
    return python
