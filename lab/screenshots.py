"""Pictures of every tab of the inspector, at a desk and on a phone, light and dark, to be looked at.

STRIDE_RUNS=/tmp/runs python -m lab.screenshots /tmp/pictures           of the newest run, and whatever it is beside
"""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from inspector.app import TABS, Inspector
from run_inspect import free_port
from scripts.usage import parser_of
from utils import entry
from utils.user_error import UserError

if TYPE_CHECKING:
    from playwright.sync_api import Page

CHROMIUM = os.environ.get("STRIDE_CHROMIUM") or shutil.which("chromium") or ""
WIDTHS, SCHEMES = (1440, 390), ("light", "dark")
SETTLED = 700  # ms after the last thing that was asked for
PATIENCE = 120_000  # ms a page may take


def picture(page: "Page", tab: str, folder: Path, look: str) -> None:
    page.locator("#tabs button[role=tab]", has_text=tab).first.click()
    page.wait_for_timeout(SETTLED)
    if tab == "Config & Model":
        page.locator("#model .network").wait_for()
    page.mouse.move(0, 0)
    page.wait_for_timeout(SETTLED)
    page.screenshot(path=folder / f"{tab.split()[0].lower()}-{look}.png", full_page=True)


def visit(page: "Page", folder: Path, look: str) -> None:
    """Every tab as it opens; then an episode, a table that was sorted and filtered, and a chart that was zoomed."""
    page.locator("#overview h2").wait_for()
    for tab in TABS:
        picture(page, tab, folder, look)
    page.locator("#tabs button[role=tab]", has_text="Episode").click()
    shown = page.locator(".stride-episode")
    before = shown.get_attribute("data-key") if shown.count() else ""
    page.locator("#record").click()
    page.locator(f".stride-episode[data-ready=yes]:not([data-key='{before}'])").wait_for()
    page.locator(".ep-slider").fill("20")
    page.wait_for_timeout(SETTLED)
    page.screenshot(path=folder / f"recorded-{look}.png", full_page=True)
    page.locator("#tabs button[role=tab]", has_text="Videos").click()
    page.locator("#videos video").first.wait_for()
    page.screenshot(path=folder / f"filmed-{look}.png", full_page=True)
    page.locator("#tabs button[role=tab]", has_text="Runs").click()
    page.locator("#filter").fill("steps>1 sort:-steps by:run")
    page.locator("th[aria-sort=descending]", has_text="steps").wait_for()
    page.screenshot(path=folder / f"sorted-{look}.png", full_page=True)
    page.locator("#tabs button[role=tab]", has_text="Overview").click()
    page.locator("#overview .smooth input").fill("0.6")
    page.locator("#overview [aria-label='y axis']").select_option("log")
    page.wait_for_timeout(SETTLED)
    page.screenshot(path=folder / f"smoothed-{look}.png", full_page=True)


def main(argv: list[str]) -> int:
    """Exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path, help="where the pictures go")
    parser.add_argument("--run-id", default="@last")
    options = parser.parse_args(argv)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise UserError("pictures need playwright: pip install 'stride-rl[dev]'") from error
    if not CHROMIUM:
        raise UserError("pictures need Chromium: apt-get install chromium (or name one in STRIDE_CHROMIUM)")
    options.folder.mkdir(parents=True, exist_ok=True)
    with Inspector(options.run_id) as inspector, sync_playwright() as playwright:
        url = inspector.launch("127.0.0.1", free_port("127.0.0.1", 0), share=False)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        for width in WIDTHS:
            for scheme in SCHEMES:
                page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
                page.set_default_timeout(PATIENCE)
                page.on("pageerror", lambda error: print(f"script error: {error}"))
                page.goto(url)
                visit(page, options.folder, f"{width}-{scheme}")
                page.close()
        browser.close()
    print(f"{len([*options.folder.glob('*.png')])} pictures in {options.folder}")
    return 0


if __name__ == "__main__":
    entry.run(main)
