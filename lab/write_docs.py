"""Writes docs/config.md and docs/wrappers.md; `--check` only says whether one is stale, by exit code 1."""

import sys

from stride.commands.usage import parser_of
from stride.config import manual as config_manual
from stride.envs_gym.wrappers import manual as wrapper_manual
from stride.utils import entry
from stride.utils.provenance import PROJECT

FOLDER = PROJECT / "docs"
PAGES = {"config.md": config_manual.markdown, "wrappers.md": wrapper_manual.markdown}


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a page is stale")
    check = parser.parse_args(argv).check
    code = 0
    for name, make_text in PAGES.items():
        page, text = FOLDER / name, make_text()
        if not check:
            page.write_text(text, encoding="utf-8")
        elif not page.is_file() or page.read_text(encoding="utf-8") != text:
            print(f"docs/{name} is stale: run python -m lab.write_docs", file=sys.stderr)
            code = 1
    return code


if __name__ == "__main__":
    entry.run(main)
