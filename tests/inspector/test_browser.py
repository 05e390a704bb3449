"""The inspector in a real browser: what a person does with it, at a desk and on a phone."""

import csv
import json
import os
import time

import pytest
from inspector_browsing import LOOKS, Page, chromium, serving
from tiny_runs import tiny_run

from trainer_callbacks.history import STEPS, VAL

# the tables scroll inside of their own frames
WIDEST = "Math.max(document.querySelector('main').scrollWidth, document.documentElement.scrollWidth)"
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch, chromium() as browser:
        patch.setenv("STRIDE_RUNS", str(tmp_path_factory.mktemp("runs")))
        first = tiny_run(video_freq_epochs=2)
        second = tiny_run(seed=2, gamma=0.9)
        with serving() as (_, url):
            yield browser, url, first, second


@pytest.fixture
def page(place):
    browser, url, *_ = place
    opened = Page(browser, url)
    yield opened
    opened.page.close()
    assert opened.wrong == []


def test_an_episode_is_recorded_and_scrubbed_without_the_server(page, place):
    page.open_run(place[2].id)
    page.record("last")
    root, seen = page.page.locator(".stride-episode"), []
    assert "epoch=04" in root.inner_text()
    page.page.on("request", lambda request: seen.append(request.url) if "file=" in request.url else None)
    assert page.step() == 0
    page.page.locator(".ep-slider").fill("3")
    assert page.step() == 3
    page.page.keyboard.press("ArrowRight")
    page.page.keyboard.press("ArrowRight")
    page.page.keyboard.press("ArrowLeft")
    assert page.step() == 4
    assert page.page.locator(".ep-so_far").inner_text() == "5"
    fps = json.loads(root.get_attribute("data-episode"))["fps"]
    assert page.page.locator(".ep-frame").evaluate("v => v.currentTime") == pytest.approx(4.5 / fps, abs=1e-3)
    box = page.page.locator(".ep-timeline").bounding_box()
    page.page.locator(".ep-timeline").click(position={"x": box["width"] / 2, "y": 40})
    steps = json.loads(root.get_attribute("data-episode"))["steps"]
    assert abs(page.step() - steps / 2) <= 1
    page.page.get_by_role("button", name="termination").click()
    assert page.step() == steps
    page.page.keyboard.press("Home")
    assert page.step() == 0
    page.page.get_by_role("button", name="play or pause (space)").click()
    page.page.wait_for_function("document.querySelector('.stride-episode').dataset.step > 2")
    assert seen == []
    page.record("epoch=02")
    assert "epoch=02" in root.inner_text()


def test_the_numbers_are_exported(page, place):
    page.open_run(place[2].id)
    page.record()
    with page.page.expect_download() as caught:
        page.page.get_by_role("button", name="every step as a row").click()
    with open(caught.value.path(), encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    data = json.loads(page.page.locator(".stride-episode").get_attribute("data-episode"))
    assert len(rows) == data["steps"] and float(rows[-1]["so_far"]) == data["return"]
    assert rows[0].keys() >= {"value", "td_error", "probability push left", "pole angle"}
    with page.page.expect_download() as caught:
        page.page.get_by_role("button", name="the frames", exact=True).click()
    assert caught.value.suggested_filename.endswith(".mp4")


def test_two_runs_are_compared(page, place):
    for run in place[2:]:
        page.page.locator(f'#runs tr[data-run="{run.id}"] input').check()
    page.page.locator("#compare-ticked").click()
    page.page.locator("#compared tr", has_text="gamma").wait_for()
    assert "0.9" in page.page.locator("#compared tr", has_text="gamma").inner_text()


def test_a_live_run_is_seen_to_advance(page, place):
    run = place[3]
    facts = json.loads(run.config_json.read_text())
    run.config_json.write_text(json.dumps({**facts, "status": "running"}))
    page.open_run(run.id)
    page.page.locator("#overview .badge.live").wait_for()
    columns = run.metrics_csv.read_text().split("\n")[0].split(",")
    row = {STEPS: "777777", VAL: "444"}
    with open(run.metrics_csv, "a", encoding="utf-8") as file:
        file.write(",".join(row.get(name, "") for name in columns) + "\n")
    page.page.locator("#overview dd", has_text="777,777").wait_for()
    run.config_json.write_text(json.dumps(facts))


def test_an_unknown_run_is_a_toast(page):
    page.page.locator("#run input").fill("nothing-like-it")
    page.page.locator("#run input").press("Enter")
    toast = page.page.locator(".toast-body").first
    toast.wait_for()
    assert "no run 'nothing-like-it'" in toast.inner_text() and "Traceback" not in toast.inner_text()


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_every_tab_fits(place, width, scheme, tmp_path):
    """Screenshots stay in $STRIDE_SCREENSHOTS, to be looked at."""
    browser, url, first, second, *_ = place
    folder, page = os.environ.get("STRIDE_SCREENSHOTS") or tmp_path, Page(browser, url, width, scheme)
    look = f"{width}-{scheme}"
    page.shot(folder, f"runs-{look}")
    for run in (first, second):
        page.page.locator(f'#runs tr[data-run="{run.id}"] input').check()
    page.tab("Compare")
    page.page.locator("#compared tr", has_text="gamma").wait_for()
    page.shot(folder, f"compare-{look}")
    page.open_run(first.id)
    page.shot(folder, f"overview-{look}")
    started = time.monotonic()
    page.record()
    print(f"recorded and drawn in {time.monotonic() - started:.1f} s")
    page.page.locator(".ep-strip button").nth(3).wait_for()
    page.page.locator(".ep-slider").fill("4")
    page.page.locator(".ep-cause").select_option("action")
    page.shot(folder, f"episode-{look}")
    page.tab("Videos")
    page.page.locator("#videos video").first.wait_for()
    page.shot(folder, f"videos-{look}")
    page.tab("Config")
    page.page.locator("#model pre").first.wait_for()
    page.shot(folder, f"model-{look}")
    assert page.page.evaluate(WIDEST) <= width
    page.page.close()
    assert page.wrong == []
