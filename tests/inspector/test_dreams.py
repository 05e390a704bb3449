"""Dreams beside what came: asked for step by step, drawn in a real browser, and nothing of them without a model."""

import base64
import io
import json
import re
from html import unescape

import numpy as np
import pytest
from inspector_browsing import Page, chromium, serving
from PIL import Image
from tiny_runs import tiny_dreamer, tiny_run

from stride.agents.trained.episode import dream, record_episode
from stride.agents.trained.loading import load_run
from stride.inspector.played import HORIZON
from stride.inspector.rooms import Rooms
from stride.runstore.dreams import read_dreams
from stride.utils.user_error import UserError

PIXELS = {"obs": "pixels", "grayscale_obs": "true", "resize_obs": 12, "frame_stack": 2}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRIDE_RUNS", str(tmp_path_factory.mktemp("runs")))
        plain = tiny_run(max_timesteps=16, eval_freq_epochs="null", test_episodes=0)
        pixels = tiny_dreamer(**PIXELS, max_timesteps=48, buffer_size=400, learning_starts=32)
        yield {"plain": plain, "pixels": pixels, "dreamer": tiny_dreamer()}


@pytest.fixture(scope="module")
def kept(runs, tmp_path_factory):
    """Rooms that keep an episode of each, and what the page was given of it."""
    rooms = Rooms(tmp_path_factory.mktemp("served"))
    pages = {name: rooms.episode(run.id, "last", 3, "sampled", 20) for name, run in runs.items()}
    return rooms, {name: shown(page) for name, page in pages.items()}


def shown(page):
    """(key, numbers) of a piece of the page."""
    key = re.search('data-key="(.*?)"', page)[1]
    return key, json.loads(unescape(re.search('data-(?:episode|dream)="(.*?)"', page)[1]))


def test_a_step_tells_what_is_imagined_from_it_under_the_actions_taken(runs, kept):
    rooms, pages = kept
    key, data = pages["dreamer"]
    assert data["dreams"] is True
    asked, told = shown(rooms.dream(key, 2))
    loaded = load_run(runs["dreamer"].id, "last")
    episode = record_episode(loaded, 3, "sampled", 20, frames=False)
    own = dream(loaded.agent, episode, 2, HORIZON)
    assert asked == key and told["step"] == 2 and told["film"] is None
    assert len(told["seen"]) == min(HORIZON, data["steps"] - 2)
    assert np.allclose(told["seen"], own.obs, rtol=1e-4) and np.allclose(
        told["reward"], own.reward, rtol=1e-4, atol=1e-6
    )
    assert np.allclose(told["goes_on"], own.goes_on, rtol=1e-4) and np.allclose(
        told["value"], own.value, rtol=1e-4, atol=1e-6
    )
    assert len(shown(rooms.dream(key, data["steps"] - 1))[1]["seen"]) == 1
    assert shown(rooms.dream(key, data["steps"]))[1]["seen"] == []


@pytest.mark.parametrize("step", [-1, 10**6, "0", 1.0, True, None, "<script>", [1]])
def test_a_step_that_is_none_is_one_line(kept, step):
    rooms, pages = kept
    with pytest.raises(UserError, match="has no step"):
        rooms.dream(pages["dreamer"][0], step)


def test_whoever_does_not_dream_is_not_asked(kept):
    rooms, pages = kept
    key, data = pages["plain"]
    assert data["dreams"] is False
    for unknown in (key, "", "another"):
        with pytest.raises(UserError, match="not kept any more"):
            rooms.dream(unknown, 0)


def test_images_are_dreamt_beside_those_that_came(runs, kept):
    rooms, pages = kept
    key, _ = pages["pixels"]
    _, told = shown(rooms.dream(key, 1))
    film, side = told["film"], 12
    assert (film["width"], film["height"]) == (side, side) and film["count"] == len(told["reward"]) > 2
    pixels = read_png(base64.b64decode(film["png"].split(",")[1]))
    loaded = load_run(runs["pixels"].id, "last")
    episode = record_episode(loaded, 3, "sampled", 20, frames=False)
    own = dream(loaded.agent, episode, 1, HORIZON).obs.numpy()
    came = pixels[side : 2 * side, :side]
    assert np.array_equal(came[..., 0], episode.observations[3][-1]), "the newest of two frames, two steps on"
    assert np.array_equal(pixels[side : 2 * side, side:, 1], own[1][-1])


def read_png(data):
    """uint8 [H, W, 3]"""
    return np.asarray(Image.open(io.BytesIO(data)))


def test_the_end_of_a_run_says_how_far_dreams_stray(runs, kept):
    rooms, _ = kept
    run = runs["dreamer"]
    found = read_dreams(run)
    assert found.names == ("cart position", "cart velocity", "pole angle", "pole angular velocity")
    assert found.starts[0] >= found.starts[1] >= found.starts[2] and found.starts[0] > 100
    head, last = (run.metrics_csv.read_text().splitlines()[place].split(",") for place in (0, -1))
    for name, value in found.metrics().items():
        assert float(last[head.index(name)]) == pytest.approx(value, rel=1e-3) and value > 0
    assert run.facts()["outcome"]["dreams"].keys() == found.metrics().keys()
    assert "## Dreams" in run.report.read_text() and "| cart velocity |" in run.report.read_text()
    assert "Dreams" in rooms.overview(run.id) and "dreamt +5" in rooms.overview(run.id)
    plain = runs["plain"]
    assert not plain.dreams.exists() and "Dreams" not in plain.report.read_text() + rooms.overview(plain.id)


def test_a_damaged_file_is_a_line_in_the_overview(runs):
    run, rooms = runs["pixels"], Rooms(runs["pixels"].path)
    run.dreams.write_text('{"steps": "<img src=x>"}')
    assert "does not tell how far dreams stray" in rooms.overview(run.id)


@pytest.mark.browser
@pytest.mark.slow
def test_an_imagined_film_runs_beside_the_one_that_was_seen(runs):
    """What is dashed is in test_browser.py."""
    with chromium() as browser, serving(runs["pixels"].id) as (_, url):
        page = Page(browser, url)
        look_at_the_film(page)
        page.page.close()
        assert page.wrong == []


def look_at_the_film(page):
    page.record("last")
    page.page.locator(".ep-dream[data-dreamt='0']").wait_for()
    film = page.page.locator("canvas.ep-dreamt")
    page.page.wait_for_function("+document.querySelector('canvas.ep-dreamt').dataset.at > 2")
    assert film.evaluate("c => [c.width, c.height]") == [12, 12]
    assert any(film.evaluate("c => [...c.getContext('2d').getImageData(0, 0, 12, 12).data]")[::4])
    assert re.fullmatch(r"dreamt, \+\d+", page.page.locator(".ep-dreamt-at").inner_text())
    seen = page.page.locator(".ep-films .ep-seen").bounding_box()
    assert seen["width"] > 0 and page.page.locator(".ep-dream-strip").is_visible()
    assert film.bounding_box()["x"] > seen["x"]
