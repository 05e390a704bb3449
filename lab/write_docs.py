"""Writes docs/config.md; `--check` only says whether it is stale, by exit code 1."""

import sys

from stride.commands.usage import parser_of
from stride.config.manual import markdown
from stride.utils import entry
from stride.utils.provenance import PROJECT

PAGE = PROJECT / "docs" / "config.md"


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page is stale")
    page = markdown()
    if not parser.parse_args(argv).check:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page, encoding="utf-8")
    elif not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != page:
        print(f"{PAGE.relative_to(PROJECT)} is stale: run python -m lab.write_docs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    entry.run(main)
