"""Opens the built site in a browser: makes pictures of pages, and tests at which rank the search finds answers.

    make docs && python -m lab.site.pictures pictures

It stores eight pages at two widths, light and dark, as PNG files; then it prints each question with the rank of its
page. Exit code 1: a page is not among the first three.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Page, sync_playwright

from stride.commands.usage import parser_of
from stride.utils import entry
from stride.utils.provenance import PROJECT
from stride.utils.user_error import UserError

CHROMIUM = os.environ.get("STRIDE_CHROMIUM") or shutil.which("chromium") or ""
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage"]
SITE = PROJECT / "build" / "site"
PAGES = (
    "index", "glossary", "your_environment", "learners/index", "learners/ppo", "reference/cli", "results",
    "troubleshooting",
)  # fmt: skip
WIDTHS = {1440: 900, 390: 844}  # pixels, with the height of each
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
QUESTIONS = {  # text of a search -> the page that answers it
    "does not learn": "troubleshooting",
    "own environment": "your_environment",
    "resume after crash": "troubleshooting",
    "gpu cuda": "gpu",
    "learning rate schedule": "config",
    "KL divergence metric": "reference/metrics",
    "stable baselines": "from_sb3",
    "export onnx": "export",
    "many seeds cluster": "scale",
    "what is an epoch": "glossary",
}
FIRST = 3  # the lowest rank that is good enough


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="where the pictures go")
    folder = parser.parse_args(argv).folder
    if not (SITE / "index.html").is_file():
        raise UserError(f"{SITE} has no site: make docs")
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM or None, args=FLAGS)
        for width, height in WIDTHS.items():
            for scheme in SCHEMES:
                page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
                for name in PAGES:
                    page.goto(address(name))
                    page.screenshot(path=folder / f"{name.replace('/', '-')}-{width}-{scheme}.png")
                    print(f"{name} {width} {scheme}: {overflow(page)} pixels wider than the screen")
        results = [*ranks(browser.new_page())]
        browser.close()
    for question, rank in results:
        print(f"{question}: rank {rank or 'none'}")
    return 0 if all(0 < rank <= FIRST for _, rank in results) else 1


def address(name: str) -> str:
    return (SITE / f"{name}.html").as_uri()


def overflow(page: Page) -> int:
    """Return by how many pixels a page is wider than the screen."""
    width: Any = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return int(width)


def ranks(page: Page) -> Iterator[tuple[str, int]]:
    """Yield each question with the rank of its page in the site's own search; 0 if it is not listed."""
    page.goto(address("index"))
    page.wait_for_load_state("networkidle")
    page.keyboard.press("/")
    for question, answer in QUESTIONS.items():
        page.fill("[data-md-component=search-query]", "")
        page.keyboard.type(question, delay=20)
        page.wait_for_function("document.querySelectorAll('.md-search-result__item').length > 0", timeout=20_000)
        page.wait_for_timeout(700)  # milliseconds: the list for the letters before may still be shown
        links = page.eval_on_selector_all(
            ".md-search-result__item > a.md-search-result__link", "links => links.map(link => link.pathname)"
        )
        names = [str(link) for link in links]
        yield question, next((rank for rank, name in enumerate(names, 1) if name.endswith(f"/{answer}.html")), 0)


if __name__ == "__main__":
    entry.run(main)
