"""Writes the generated pages of docs/, and the generated parts of others and of README.

    python -m lab.write_docs             writes them
    python -m lab.write_docs --sample    also trains, and writes into README what the training printed
    python -m lab.write_docs --check     writes nothing; exit code 1 when a page is stale

Pages as a whole: config.md, wrappers.md, reference/. Parts are marked in a page by `<!-- generated: MAKER -->`
and `<!-- end -->`; lab/site/blocks.py lists the makers.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from lab.site import api, blocks, commands, measured, reference
from stride.commands.usage import parser_of
from stride.config import manual as config_manual
from stride.envs_gym.wrappers import manual as wrapper_manual
from stride.utils import entry
from stride.utils.provenance import PROJECT

README = PROJECT / "README.md"
FOLDER = PROJECT / "docs"
PAGES = {
    "config.md": config_manual.markdown,
    "reference/cli.md": commands.page,
    "reference/metrics.md": reference.metrics,
    "reference/python.md": api.page,
    "reference/run_files.md": reference.run_files,
    "wrappers.md": wrapper_manual.markdown,
}


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a page is stale")
    parser.add_argument("--sample", action="store_true", help="train, and write into README what the training printed")
    given = parser.parse_args(argv)
    if given.sample:
        README.write_text(measured.with_sample(README.read_text(encoding="utf-8")), encoding="utf-8")
    code = 0
    for page, text in made():
        if not given.check:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text, encoding="utf-8")
        elif not page.is_file() or page.read_text(encoding="utf-8") != text:
            name = page.name if page == README else f"docs/{page.relative_to(FOLDER)}"
            print(f"{name} is stale: run python -m lab.write_docs", file=sys.stderr)
            code = 1
    return code


def made() -> Iterator[tuple[Path, str]]:
    """Every page that has something generated, and its text as it should be."""
    for name, make_text in PAGES.items():
        yield FOLDER / name, make_text()
    for page in (README, *blocks.pages(FOLDER)):
        yield page, blocks.filled(page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    entry.run(main)
