"""A copy of tests/ that tests the wheel: each name of ours that a test speaks of rewritten, in its texts and code.

What only a checkout has is left out, listed with the reason. Scripts that the wheel does not have and tests measure by
lie beside the copy, as `measuring`. Anything else that cannot be rewritten stops it, as it stops the wheel.
"""

import re
import shutil
from pathlib import Path

from scripts.wheel.relocate import NAME, UnrecognisedError, dotted, is_ours, moved, rewritten, shipped

BESIDE = "measuring"
DESCRIPTION = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs", "LICENSE", "Makefile")
SETTINGS = """\
[tool.pytest.ini_options]
pythonpath = ["tests", "tests/publishing"]
testpaths = ["tests"]
"""
OF_CHECKOUT = {  # what is there to be proven of a checkout alone
    "tests/agents/test_fused_gpu_hashes.py": "scripts that measure checkouts",
    "tests/agents/test_moved_clone.py": "a clone that is moved",
    "tests/config/test_manual.py::test_the_page_is_up_to_date": "docs/config.md is written from a checkout",
    "tests/envs_gym/test_family_pages.py": "pages of a checkout",
    "tests/envs_gym/test_tensor_page.py": "a tutorial in a checkout",
    "tests/report/test_own_metrics.py::test_the_page_is_a_program": "a page of a checkout",
    "tests/lab/bench": "scripts that measure checkouts",
    "tests/lab/evidence": "scripts that write docs/results",
    "tests/lab/faults": "scripts that plant faults",
    "tests/lab/gpu": "scripts that measure checkouts",
    "tests/lab/test_house.py": "the house as it is read",
    "tests/lab/test_kernels.py": "sources that a wheel is built from",
    "tests/lab/test_smoke.py": "scripts that measure checkouts",
    "tests/lab/test_unconfigured.py": "scripts that write docs/results",
    "tests/lab/test_usage.py": "python -m scripts.NAME",
    "tests/test_architecture.py": "the house as it is read",
    "tests/test_docs.py": "pages that name files of a checkout",
    "tests/test_family_pages.py": "pages of a checkout",
    "tests/test_first_sink.py": "a tutorial in a checkout",
    "tests/test_first_world.py": "a tutorial in a checkout",
    "tests/test_notebooks.py": "notebooks of a checkout",
    "tests/test_tutorial.py": "a tutorial in a checkout",
    "tests/test_installs.py": "installations of a checkout",
    "tests/test_wheel.py": "how a wheel is made",
    "tests/test_your_environment.py": "a tutorial in a checkout",
}
IN_TEXT = re.compile(r"\bfrom ([a-z][\w.]*) import\b|\bimport ([a-z][\w.]*(?:, ?[a-z][\w.]*)*)")


def move_tests(checkout: Path, folder: Path) -> list[str]:
    """Write the copy into an empty folder; the files that are not in it, and tests that are not to be run, each with
    its reason.
    """
    places = dict(shipped(checkout))
    modules = {dotted(path): dotted(place) for path, place in places.items() if path.suffix == ".py"}
    scripts = [*sorted((checkout / "scripts").rglob("*.py")), *sorted((checkout / "lab").rglob("*.py"))]
    scripts = [path.relative_to(checkout) for path in scripts]
    scripts = [path for path in scripts if path not in places and "wheel" not in path.parts]
    modules |= {dotted(path): BESIDE + dotted(path).removeprefix(path.parts[0]) for path in scripts}
    for path in scripts:
        target = folder / "tests" / BESIDE / path.relative_to(path.parts[0])
        try:
            write(target, moved_text(checkout, path, modules))
        except UnrecognisedError:  # one that starts scripts by their names: of a checkout, as are its tests
            del modules[dotted(path)]
    left_out = [f"{name}: {why}" for name, why in OF_CHECKOUT.items() if "::" in name]
    for path in (path.relative_to(checkout) for path in sorted((checkout / "tests").rglob("*")) if path.is_file()):
        reason = next((why for name, why in OF_CHECKOUT.items() if path.is_relative_to(name)), "")
        if reason:
            left_out.append(f"{path}: {reason}")
        elif path.suffix == ".py":
            write(folder / path, moved_text(checkout, path, modules))
        elif path.suffix != ".pyc":
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(checkout / path, folder / path)
    for name in DESCRIPTION:
        copy = shutil.copytree if (checkout / name).is_dir() else shutil.copyfile
        copy(checkout / name, folder / name)
    options = (checkout / "pyproject.toml").read_text().partition("[tool.pytest.ini_options]\n")[2]
    rest = options[options.index("addopts") :]
    (folder / "pyproject.toml").write_text(SETTINGS + rest)
    return left_out


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def moved_text(checkout: Path, path: Path, modules: dict[str, str]) -> str:
    """A file with our names as the wheel has them, also in the programs that it starts."""
    text = rewritten((checkout / path).read_text(encoding="utf-8"), path.as_posix(), modules)
    return IN_TEXT.sub(lambda found: imported(found, modules), text)


def imported(found: re.Match[str], modules: dict[str, str]) -> str:
    """An import in a string, which is a program or a line of one."""
    if found[1]:
        return f"from {modules[found[1]]} import" if found[1] in modules else found[0]
    names = re.split(", ?", found[2])
    if not any(is_ours(name, modules) and name in modules for name in names):
        return found[0]
    return "; ".join(one_import(name, modules) for name in names)


def one_import(name: str, modules: dict[str, str]) -> str:
    if not is_ours(name, modules):
        return f"import {name}"
    top = name.partition(".")[0]
    whole = f"from {moved(top).rpartition('.')[0] or NAME} import {top}"
    return whole if name == top else f"import {modules[name]}; {whole}"
