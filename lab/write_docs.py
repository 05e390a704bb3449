"""Writes docs/config.md and config/schema.json; `--check` only says whether one of them is stale, by exit code 1."""

import sys

from config.manual import markdown
from scripts import schema
from scripts.usage import parser_of
from utils import entry
from utils.provenance import PROJECT

PAGE = PROJECT / "docs" / "config.md"
SCHEMA = PROJECT / "config" / "schema.json"


def main(argv: list[str]) -> int:
    """Exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is stale")
    check, stale = parser.parse_args(argv).check, False
    for file, wanted in ((PAGE, markdown()), (SCHEMA, schema.text() + "\n")):
        if not check:
            file.parent.mkdir(exist_ok=True)
            file.write_text(wanted, encoding="utf-8")
        elif not file.is_file() or file.read_text(encoding="utf-8") != wanted:
            stale = True
            print(f"{file.relative_to(PROJECT)} is stale: run python -m lab.write_docs", file=sys.stderr)
    return int(stale)


if __name__ == "__main__":
    entry.run(main)
