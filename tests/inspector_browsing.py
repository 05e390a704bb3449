"""A running inspector, and a browser to look at it, for tests."""

import json
import os
import re
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

CHROMIUM = os.environ.get("STRIDE_CHROMIUM") or shutil.which("chromium") or ""
LOOKS = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]
PHONE = {"has_touch": True, "is_mobile": True, "device_scale_factor": 2}


@contextmanager
def serving(selector="@last"):
    pytest.importorskip("gradio", reason="needs Gradio: pip install 'stride-rl[web]'")
    from stride.commands.run_inspect import free_port
    from stride.inspector.app import Inspector

    with Inspector(selector) as inspector:
        url = inspector.launch("127.0.0.1", free_port("127.0.0.1", 0), share=False)
        yield inspector, url.rstrip("/")


@contextmanager
def chromium():
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'stride-rl[dev]'")
    if not CHROMIUM:
        pytest.skip("needs Chromium: apt-get install chromium (or name one in STRIDE_CHROMIUM)")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


class Page:
    """A page that notes what must not happen: errors, requests to elsewhere, dialogs that a script opened."""

    def __init__(self, browser, url, width=1280, scheme="light"):
        self.wrong = []
        self.page = browser.new_page(
            viewport={"width": width, "height": 900}, color_scheme=scheme, **(PHONE if width < 720 else {})
        )
        self.page.set_default_timeout(60_000)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on("request", self._request)
        self.page.goto(url)
        self.page.locator("#overview h2, #overview .damage").first.wait_for()

    def _request(self, request):
        if not re.match(r"(http://127\.0\.0\.1:|blob:|data:)", request.url):
            self.wrong.append(f"request to {request.url}")

    def tab(self, name):
        button = self.page.locator("#tabs button[role=tab]", has_text=name)
        button.tap() if self.page.viewport_size["width"] < 720 else button.click()
        self.page.locator("#tabs button[aria-selected=true]", has_text=name).wait_for()

    def open_run(self, run_id):
        self.tab("Runs")
        row = self.page.locator(f'#runs tr[data-run="{run_id}"]')
        row.wait_for(state="attached")
        if not row.is_visible():
            self.page.locator(f'#runs tr[data-fold="{row.get_attribute("data-group")}"] .fold').click()
        row.locator(".link").click()
        self.page.locator("#overview td", has_text=run_id).first.wait_for()

    def record(self, checkpoint="best"):
        self.tab("Episode")
        self.page.locator("#checkpoint input").fill(checkpoint)
        self.page.locator("#checkpoint input").press("Enter")
        # the tab shows the recording before, if there was one: that it comes late must not be taken for the new one
        self.page.locator("#player:not(:has-text('reading …'))").wait_for()
        before = self.page.locator(".stride-episode").evaluate_all("found => found.map(each => each.dataset.key)[0]")
        self.page.locator("#record").click()
        self.page.locator(f".stride-episode[data-ready=yes]:not([data-key='{before}'])").wait_for()

    def data(self):
        return json.loads(self.page.locator(".stride-episode").get_attribute("data-episode"))

    def number(self, selector):
        """The first number that an element shows."""
        return float(self.page.locator(selector).inner_text().split()[0].replace(",", ""))

    def step(self):
        return int(self.page.locator(".stride-episode").get_attribute("data-step"))

    def shot(self, folder, name):
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.page.wait_for_timeout(400)  # a picture, not an assertion: let the transitions end
        self.page.screenshot(path=f"{folder}/{name}.png", full_page=True)
