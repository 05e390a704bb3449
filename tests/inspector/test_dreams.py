"""Dreams beside what came: asked for step by step, drawn in a real browser, and nothing of them without a model."""

import base64
import io
import json
import re
from html import unescape

import numpy as np
import pytest
from gallery import gallery_copy
from inspector_browsing import opened, serving
from PIL import Image

from stride.agents.trained.episode import dream, record_episode
from stride.agents.trained.loading import load_run
from stride.inspector.played import DREAM_STEPS
from stride.inspector.rooms import Rooms
from stride.runstore.dreams import read_dreams
from stride.utils.user_error import UserError

SIDE = 12  # of the pictures


@pytest.fixture(scope="module")
def runs(root):
    names = {"plain": "ppo", "pixels": "dreamer_pixels", "dreamer": "dreamer"}
    return {name: gallery_copy(recipe, root) for name, recipe in names.items()}


@pytest.fixture(scope="module")
def recorded(runs, tmp_path_factory):
    """Rooms that keep an episode of each, and what the page was given of it."""
    rooms = Rooms(tmp_path_factory.mktemp("served"))
    pages = {name: rooms.episode(run.id, "last", 3, "sampled", 20) for name, run in runs.items()}
    return rooms, {name: content(page) for name, page in pages.items()}


def content(page):
    """(key, numbers) of a piece of the page."""
    key = re.search('data-key="(.*?)"', page)[1]
    return key, json.loads(unescape(re.search('data-(?:episode|dream)="(.*?)"', page)[1]))


def own_dream(run, step):
    """(the episode of these rooms, what is dreamt from its step), from the run itself."""
    loaded = load_run(run.id, "last")
    episode = record_episode(loaded, 3, "sampled", 20, frames=False)
    return episode, dream(loaded.agent, episode, step, DREAM_STEPS)


def test_a_step_tells_what_is_imagined_from_it_under_the_actions_taken(runs, recorded):
    rooms, pages = recorded
    key, data = pages["dreamer"]
    assert data["dreams"] is True
    own_key, told = content(rooms.dream(key, 2))
    assert own_key == key and told["step"] == 2 and told["film"] is None
    assert len(told["seen"]) == min(DREAM_STEPS, data["steps"] - 2)
    _, own = own_dream(runs["dreamer"], 2)
    for name, wanted in {"seen": own.obs, "reward": own.reward, "goes_on": own.goes_on, "value": own.value}.items():
        np.testing.assert_allclose(told[name], wanted, rtol=1e-4, atol=1e-6)
    assert len(content(rooms.dream(key, data["steps"] - 1))[1]["seen"]) == 1
    assert content(rooms.dream(key, data["steps"]))[1]["seen"] == []


@pytest.mark.parametrize("step", [-1, 10**6, "0", 1.0, True, None, "<script>", [1]])
def test_a_step_that_is_none_is_one_line(recorded, step):
    rooms, pages = recorded
    with pytest.raises(UserError, match="has no step"):
        rooms.dream(pages["dreamer"][0], step)


def test_whoever_does_not_dream_is_not_asked(recorded):
    rooms, pages = recorded
    key, data = pages["plain"]
    assert data["dreams"] is False
    for unknown in (key, "", "another"):
        with pytest.raises(UserError, match="no longer stored"):
            rooms.dream(unknown, 0)


def test_images_are_dreamt_beside_those_that_came(runs, recorded):
    rooms, pages = recorded
    _, told = content(rooms.dream(pages["pixels"][0], 1))
    film = told["film"]
    assert (film["width"], film["height"]) == (SIDE, SIDE) and film["count"] == len(told["reward"]) > 2
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(film["png"].split(",")[1]))))
    episode, own = own_dream(runs["pixels"], 1)
    second = pixels[SIDE : 2 * SIDE]
    assert np.array_equal(second[:, :SIDE, 0], episode.observations[3][-1]), "the newest of two frames, two steps on"
    assert np.array_equal(second[:, SIDE:, 1], own.obs.numpy()[1][-1])


def test_the_end_of_a_run_says_how_far_dreams_stray(runs, recorded):
    rooms, run, plain = recorded[0], runs["dreamer"], runs["plain"]
    dreams = read_dreams(run)
    assert dreams.names == ("cart position", "cart velocity", "pole angle", "pole angular velocity")
    assert dreams.starts[0] >= dreams.starts[1] >= dreams.starts[2] and dreams.starts[0] > 100
    head, last = (run.metrics_csv.read_text().splitlines()[place].split(",") for place in (0, -1))
    for name, value in dreams.metrics().items():
        assert float(last[head.index(name)]) == pytest.approx(value, rel=1e-3) and value > 0
    assert run.facts()["outcome"]["dreams"].keys() == dreams.metrics().keys()
    assert "## Dreams" in run.report.read_text() and "| cart velocity |" in run.report.read_text()
    assert "Dreams" in rooms.overview(run.id) and "dreamt +5" in rooms.overview(run.id)
    assert not plain.dreams.exists() and "Dreams" not in plain.report.read_text() + rooms.overview(plain.id)


def test_a_damaged_file_is_a_line_in_the_overview(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    run = gallery_copy("dreamer_pixels", tmp_path)
    run.dreams.write_text('{"steps": "<img src=x>"}')
    assert "does not have the errors of dreams" in Rooms(tmp_path).overview(run.id)


@pytest.mark.browser
@pytest.mark.slow
def test_an_imagined_film_runs_beside_the_one_that_was_seen(runs, browser):
    """What is dashed is in test_browser.py."""
    with serving(runs["pixels"].id) as (_, url), opened(browser, url) as page:
        page.record("last")
        page.all(".ep-dream[data-dreamt='0']").wait_for()
        film = page.all("canvas.ep-dreamt")
        page.page.wait_for_function("+document.querySelector('canvas.ep-dreamt').dataset.at > 2")
        page.becomes(lambda: film.evaluate("c => [c.width, c.height]"), [SIDE, SIDE])
        assert any(film.evaluate(f"c => [...c.getContext('2d').getImageData(0, 0, {SIDE}, {SIDE}).data]")[::4])
        page.expect(page.all(".ep-dreamt-at")).to_have_text(re.compile(r"dreamt, \+\d+"))
        seen = page.all(".ep-films .ep-seen")
        page.expect(seen).to_be_visible()
        page.expect(page.all(".ep-dream-strip")).to_be_visible()
        assert film.bounding_box()["x"] > seen.bounding_box()["x"]
