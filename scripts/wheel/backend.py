"""The build backend: setuptools, but for the wheel, which is made of the relocated files (see relocate.py).

An editable installation and an sdist are those of the checkout as it lies there.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from setuptools import build_meta  # type: ignore[import-untyped]
from setuptools.build_meta import (  # type: ignore[import-untyped]
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
)

from scripts.wheel.relocate import NAME, relocate

__all__ = [
    "build_editable", "build_sdist", "build_wheel", "get_requires_for_build_editable", "get_requires_for_build_sdist",
    "get_requires_for_build_wheel", "prepare_metadata_for_build_editable", "prepare_metadata_for_build_wheel",
]  # fmt: skip

DESCRIPTION = ("pyproject.toml", "README.md", "LICENSE")
OF_CHECKOUT = re.compile(r"^py-modules = .*\n", re.M)  # the four commands at the top, which a wheel has in stride/
Settings = dict[str, str | list[str] | None] | None


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """PEP 517."""
    target = os.path.abspath(wheel_directory)
    with relocated():
        return build_meta.build_wheel(target, config_settings)


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    """PEP 517."""
    target = os.path.abspath(metadata_directory)
    with relocated():
        return build_meta.prepare_metadata_for_build_wheel(target, config_settings)


@contextmanager
def relocated() -> Iterator[None]:
    """Stand in a folder that holds `stride/` alone, and what describes it."""
    checkout = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each in DESCRIPTION:
            shutil.copyfile(checkout / each, folder / each)
        description = folder / "pyproject.toml"
        description.write_text(OF_CHECKOUT.sub("", description.read_text(encoding="utf-8")), encoding="utf-8")
        relocate(checkout, folder / NAME)
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(checkout)
