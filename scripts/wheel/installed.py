"""A wheel of this checkout, and an environment that has it: what the wheel's tests and measurements begin with."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from utils.places import PROJECT

BUILD = "import sys; from scripts.wheel import backend; getattr(backend, f'build_{sys.argv[2]}')(sys.argv[1])"


def build(folder: Path, kind: str = "wheel", checkout: Path = PROJECT) -> Path:
    """The wheel or `sdist` of a checkout, made in an empty folder by the backend that pip would ask."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-c", BUILD, folder, kind], cwd=checkout, check=True, capture_output=True)
    [made] = folder.iterdir()
    return made


def install(wheel: Path, folder: Path) -> Path:
    """The Python of a new environment `folder`: the wheel, and as its dependencies whatever is installed here.

    This environment's own .pth files are not read, and so an editable installation is not seen.
    """
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    words = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(words, check=True)
    site = sysconfig.get_path("purelib", vars={"base": str(folder)})
    Path(site, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python
