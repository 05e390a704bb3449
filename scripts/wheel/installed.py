"""A wheel of this checkout, and an environment that has it: what the wheel's tests and measurements begin with."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from utils.places import PROJECT

BUILD = "import sys; from scripts.wheel import backend; getattr(backend, f'build_{sys.argv[2]}')(sys.argv[1])"
OURS = ("stride_rl", "__editable__")


def build(folder: Path, kind: str = "wheel", checkout: Path = PROJECT) -> Path:
    """The wheel or `sdist` of a checkout, made in an empty folder by the backend that pip would ask."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-c", BUILD, folder, kind], cwd=checkout, check=True, capture_output=True)
    [made] = folder.iterdir()
    return made


def environment(folder: Path) -> Path:
    """The Python of a new environment that has whatever is installed here, pip among it, but this project."""
    venv.create(folder, with_pip=False)
    (lent := folder / "lent" / "site-packages").mkdir(parents=True)  # as a traceback tells a library
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(OURS) and path.suffix != ".pth":  # an editable installation is one of these
            (lent / path.name).symlink_to(path)
    site = sysconfig.get_path("purelib", vars={"base": str(folder)})
    Path(site, "lent.pth").write_text(f"{lent}\n")
    pip = folder / "bin" / "pip"
    pip.write_text(f'#!/bin/sh\nexec {folder}/bin/python -m pip "$@"\n')
    pip.chmod(0o755)
    return folder / "bin" / "python"


def install(wheel: Path, folder: Path) -> Path:
    """The Python of a new environment with the wheel; its dependencies have to be there by now."""
    python = environment(folder)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", wheel], check=True)
    return python
