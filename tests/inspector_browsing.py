"""A running inspector, and a browser to look at it, for tests. What a page shows is waited for, never read at once:
Gradio may put an element in again at any time."""

import asyncio
import json
import os
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

CHROMIUM = os.environ.get("STRIDE_CHROMIUM") or shutil.which("chromium") or ""
PHONE = {"has_touch": True, "is_mobile": True, "device_scale_factor": 2}
SOON = 60  # seconds that a slow machine may take


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
    sync_api.expect.set_options(timeout=1000 * SOON)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@contextmanager
def opened(browser, url, width=1280, scheme="light"):
    """A page that ends the test if something happened that must not."""
    page = Page(browser, url, width, scheme)
    yield page
    page.page.close()
    assert page.wrong == []


class Page:
    """A page that notes what must not happen: errors, requests to elsewhere, dialogs that a script opened."""

    def __init__(self, browser, url, width, scheme):
        from playwright.sync_api import expect

        self.expect, self.wrong = expect, []
        self.page = browser.new_page(
            viewport={"width": width, "height": 900}, color_scheme=scheme, **(PHONE if width < 720 else {})
        )
        self.page.set_default_timeout(1000 * SOON)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on("request", self._request)
        self.page.goto(url)
        self.page.locator("#overview h2, #overview .damage").first.wait_for()
        self.all, self.press, self.button = self.page.locator, self.page.keyboard.press, self.page.get_by_role
        self.episode = self.all(".stride-episode")

    def _request(self, request):
        if not re.match(r"(http://127\.0\.0\.1:|blob:|data:)", request.url):
            self.wrong.append(f"request to {request.url}")

    def becomes(self, read, wanted):
        """What is read of the page is that, now or soon."""
        deadline = time.monotonic() + SOON
        while (value := read()) != wanted and time.monotonic() < deadline:
            self.page.wait_for_timeout(50)
        assert value == wanted

    def tab(self, name):
        button = self.all("#tabs button[role=tab]", has_text=name)
        button.tap() if self.page.viewport_size["width"] < 720 else button.click()
        self.all("#tabs button[aria-selected=true]", has_text=name).wait_for()

    def open_run(self, run_id):
        self.tab("Runs")
        row = self.all(f'#runs tr[data-run="{run_id}"]')
        row.wait_for(state="attached")
        if not row.is_visible():
            self.all(f'#runs tr[data-fold="{row.get_attribute("data-group")}"] .fold').click()
        row.locator(".link").click()
        self.all(f'#overview [data-run="{run_id}"]').wait_for()

    def record_run(self, run, checkpoint="best"):
        """The numbers of an episode of this run that is recorded now."""
        self.open_run(run.id)
        return self.record(checkpoint)

    def record(self, checkpoint="best"):
        self.tab("Episode")
        self.all("#checkpoint input").fill(checkpoint)
        self.all("#checkpoint input").press("Enter")
        # the tab shows the recording before, if there was one: that it comes late must not be taken for the new one
        self.all("#player:not(:has-text('reading …'))").wait_for()
        before = self.episode.evaluate_all("found => found.map(each => each.dataset.key)[0]")
        self.all("#record").click()
        self.all(f".stride-episode[data-ready=yes]:not([data-key='{before}'])").wait_for()
        return json.loads(self.episode.get_attribute("data-episode"))

    def at(self, step):
        """The recording stands at this step."""
        self.expect(self.episode).to_have_attribute("data-step", str(step))

    def go_to(self, step):
        self.all(".ep-slider").fill(str(step))
        self.at(step)

    def past(self, step):
        """The recording plays beyond this step."""
        self.page.wait_for_function(f"document.querySelector('.stride-episode').dataset.step > {step}")

    def download(self, act):
        """(name, path) of the file that is saved."""
        with self.page.expect_download() as caught:
            act()
        return caught.value.suggested_filename, Path(caught.value.path())

    def save(self, title, **more):
        return self.download(self.button("button", name=title, **more).click)

    def number(self, selector):
        """The first number that an element shows."""
        return float(self.all(selector).inner_text().split()[0].replace(",", ""))


def apart(coroutine):
    """The result of a coroutine, run in a thread of its own: a browser may have left a loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()
