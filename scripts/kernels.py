"""Writes docs/benchmarks/kernels.md: what each kernel takes of each kind of GPU, by NVRTC, which needs none.

Registers spilled into memory are an error. `--check` says by exit code 1 whether the page is stale; where another
version of NVRTC wrote it, whether it names the same kernels.
"""

import re
import sys
from itertools import chain
from pathlib import Path

from scripts import nvrtc
from scripts.nvrtc import Used
from scripts.usage import parser_of
from utils import entry
from utils.device_source import OPTIONS, PROJECT, read_source

PAGE = PROJECT / "docs" / "benchmarks" / "kernels.md"
FOLDERS = ("agents", "envs_fast", "utils")
ARCHITECTURES = {  # the oldest and newest that CUDA 13 compiles for, and what is common between
    "sm_75": "T4, RTX 20", "sm_80": "A100", "sm_86": "RTX 30", "sm_90": "H100, H200", "sm_120": "RTX 50",
}  # fmt: skip
WRITTEN_BY = re.compile(r"NVRTC (\d+\.\d+)")
ROW = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)

Table = dict[str, dict[str, Used]]  # by kernel, by architecture


def main(argv: list[str]) -> int:
    """Exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page is stale")
    check = parser.parse_args(argv).check
    table = measured(sources(), list(ARCHITECTURES))
    if lines := spills(table):
        print("\n".join(lines), file=sys.stderr)
        return 1
    wanted = markdown(table, nvrtc.version())
    if not check:
        PAGE.write_text(wanted, encoding="utf-8")
        return 0
    if not PAGE.is_file() or is_stale(PAGE.read_text(encoding="utf-8"), wanted):
        print("docs/benchmarks/kernels.md is stale: run python -m scripts.kernels", file=sys.stderr)
        return 1
    return 0


def sources() -> list[Path]:
    """Every CUDA source of the project."""
    return sorted(chain.from_iterable((PROJECT / folder).rglob("*.cu") for folder in FOLDERS))


def measured(files: list[Path], architectures: list[str]) -> Table:
    """What the kernels of these files take."""
    table: Table = {}
    for file in files:
        source = read_source(file)
        for arch in architectures:
            for used in nvrtc.resources(source, arch):
                table.setdefault(used.kernel, {})[arch] = used
    return table


def spills(table: Table) -> list[str]:
    """A line for each kernel that does not fit into the registers of an architecture."""
    return [
        f"{kernel} spills {used.spilled} bytes of registers into memory on {arch}"
        for kernel, row in table.items()
        for arch, used in row.items()
        if used.spilled
    ]


def markdown(table: Table, version: str) -> str:
    """The page."""
    rows = [
        f"| `{kernel}` | {' | '.join(str(row[arch].registers) for arch in ARCHITECTURES)} "
        f"| {max(used.stack for used in row.values())} |"
        for kernel, row in sorted(table.items())
    ]
    return "\n".join([
        "# Kernels on GPUs",
        "",
        f"Registers of a thread, and the most bytes of stack, as NVRTC {version} compiles every kernel with "
        f"`{' '.join(OPTIONS)}`.",
        "None spills a register into memory, which is checked. No GPU is needed to write this page, "
        "`python -m scripts.kernels`, and it says",
        "nothing about speed.",
        "",
        "| | " + " | ".join(f"{arch} ({cards})" for arch, cards in ARCHITECTURES.items()) + " | stack |",
        "|---|" + "---:|" * (len(ARCHITECTURES) + 1),
        *rows,
        "",
    ])  # fmt: skip


def is_stale(page: str, wanted: str) -> bool:
    """Whether it says anything else; another version of NVRTC may count other registers of the same kernels."""
    if WRITTEN_BY.findall(page) == WRITTEN_BY.findall(wanted):
        return page != wanted
    return ROW.findall(page) != ROW.findall(wanted)


if __name__ == "__main__":
    entry.run(main)
