"""Writes the generated pages of docs/, and the generated parts of others; `--check` says whether one is stale.

Pages as a whole: config.md, wrappers.md, reference/. Parts are marked in a page by `<!-- generated: MAKER -->`
and `<!-- end -->`; lab/site/blocks.py lists the makers. Exit code 1 with `--check` where a page is stale.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from lab.site import api, blocks, commands, reference
from stride.commands.usage import parser_of
from stride.config import manual as config_manual
from stride.envs_gym.wrappers import manual as wrapper_manual
from stride.utils import entry
from stride.utils.provenance import PROJECT

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
    check = parser.parse_args(argv).check
    code = 0
    for page, text in made():
        if not check:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text, encoding="utf-8")
        elif not page.is_file() or page.read_text(encoding="utf-8") != text:
            print(f"docs/{page.relative_to(FOLDER)} is stale: run python -m lab.write_docs", file=sys.stderr)
            code = 1
    return code


def made() -> Iterator[tuple[Path, str]]:
    """Every page that has something generated, and its text as it should be."""
    for name, make_text in PAGES.items():
        yield FOLDER / name, make_text()
    for page in blocks.pages(FOLDER):
        yield page, blocks.filled(page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    entry.run(main)
