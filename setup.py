"""setuptools, for a package whose folders are at the top of a checkout, beside the folder `stride`.

It looks for packages in src/, so src/stride gets a link to each of these folders and to all that is in stride/. An
editable installation puts src/ on the path: editors and type checkers find `stride.agents` there, as Python does.
Git has none of the links. `python setup.py --name` makes them where nothing was installed.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import setup

ROOT = Path(__file__).resolve().parent
NOT_IN_IT = {"lab", "stride", "tests"}


def main() -> None:
    make_links(ROOT / "src" / "stride")
    with TemporaryDirectory() as folder:  # not build/, where files of earlier builds would get into the wheel
        setup(options={"build": {"build_base": folder}})


def make_links(package: Path) -> None:
    package.mkdir(parents=True, exist_ok=True)
    parts = [file.parent for file in ROOT.glob("*/__init__.py") if file.parent.name not in NOT_IN_IT]
    parts += [path for path in ROOT.glob("stride/*") if path.name != "__pycache__"]
    for link in package.iterdir():
        if not link.exists():  # what it leads to was removed
            link.unlink()
    for path in parts:
        link = package / path.name
        if not link.is_symlink():
            link.symlink_to(Path("..", "..", path.relative_to(ROOT)))


if __name__ == "__main__":
    main()
