"""The inspector in a real browser: what a person does with it, at a desk and on a phone."""

import csv
import json
import shutil

import pytest
import torch
from inspector_browsing import LOOKS, Page, chromium, serving
from tiny_runs import tiny_dreamer, tiny_run

from stride.agents.networks.actor_critic import ActorCritic
from stride.agents.networks.policies import POLICIES
from stride.inspector.app import TABS
from stride.inspector.played import HORIZON
from stride.inspector.runs import PAGE
from stride.runstore.history import STEPS, VAL

# the tables scroll inside of their own frames
WIDEST = "Math.max(document.querySelector('main').scrollWidth, document.documentElement.scrollWidth)"
pytestmark = pytest.mark.browser


SHORT = {"max_timesteps": 16, "eval_freq_epochs": "null"}
PIXELS = {"obs": "pixels", "grayscale_obs": "true", "resize_obs": 36, "frame_stack": 2, "policy": "cnn"}


class Valued(ActorCritic):
    """Explains itself as a value-based policy does: the best action for sure, and a value of each."""

    def explain(self, obs, carry, is_first):
        told = super().explain(obs, carry, is_first)
        q = told.distribution["probability"] - 3
        best = torch.nn.functional.one_hot(q.argmax(-1), q.shape[-1]).float()
        return told._replace(distribution={"probability": best, "q": q})


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch, chromium() as browser:
        patch.setenv("STRIDE_RUNS", str(tmp_path_factory.mktemp("runs")))
        patch.setitem(POLICIES, "valued", Valued)
        first = tiny_run(video_freq_epochs=2)
        second = tiny_run(seed=2, gamma=0.9)
        others = {
            "Pendulum": tiny_run("Pendulum-v1:ppo", **SHORT),
            "Taxi": tiny_run("Taxi-v4:ppo", action_mask="true", **SHORT),
            "pixels": tiny_run(**PIXELS, **SHORT, **{"policy_kwargs.features": 8}),
            "valued": tiny_run(policy="valued", **SHORT),
            "dreamer": tiny_dreamer(),
        }
        with serving() as (_, url):
            yield browser, url, first, second, others


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
    data = page.data()
    assert len(rows) == data["steps"] and float(rows[-1]["so_far"]) == data["return"]
    wanted = {"value", "td_error", "probability push left", "pole angle", "gradient of the value by pole angle"}
    assert rows[0].keys() >= wanted and float(rows[2]["pole angle"]) == data["observed"][2][2]
    with page.page.expect_download() as caught:
        page.page.get_by_role("button", name="everything but the frames").click()
    with open(caught.value.path(), encoding="utf-8") as file:
        assert json.load(file) == {key: value for key, value in data.items() if key != "videos"}
    assert caught.value.suggested_filename.endswith(".json")
    with page.page.expect_download() as caught:
        page.page.get_by_role("button", name="the frames", exact=True).click()
    assert caught.value.suggested_filename.endswith(".mp4")


def test_continuous_actions_are_shown_and_jumped_through(page, place):
    page.open_run(place[4]["Pendulum"].id)
    page.record()
    data, go = page.data(), lambda name: page.page.get_by_role("button", name=name).click()
    assert data["steps"] == 200 and data["kind"] == "numbers" and data["actions"] == ["torque"]
    assert "±" in page.page.locator(".ep-policy .number").inner_text()
    go("termination")
    assert page.step() == 200 and page.page.locator(".ep-policy .number").inner_text() == "–"
    go("where the critic was most surprised")
    largest = max(range(200), key=lambda step: abs(data["td_error"][step]))
    assert page.step() == largest
    assert page.number(".ep-policy .number") == pytest.approx(data["distribution"]["mean"][largest][0], abs=6e-3)
    go("where the policy was least sure")
    assert page.step() == data["entropy"].index(max(data["entropy"]))
    page.page.locator(".ep-slider").fill("7")
    go("next step whose reward is not zero")
    assert page.step() == next(step for step in range(8, 200) if data["reward"][step])
    assert page.number(".ep-reward") == pytest.approx(data["reward"][8], abs=1e-3)
    page.page.locator(".ep-strip button").nth(3).click()
    assert f"go to step {page.step()}" == page.page.locator(".ep-strip button").nth(3).get_attribute("title")


def test_keys_move_the_episode_but_not_while_something_is_typed(page, place):
    page.open_run(place[4]["Pendulum"].id)
    page.record()
    press = page.page.keyboard.press
    page.page.locator(".ep-head").click()
    for key, step in (("End", 200), ("ArrowLeft", 199), ("Home", 0), ("ArrowLeft", 0), ("ArrowRight", 1)):
        press(key)
        assert page.step() == step
    press(" ")
    page.page.wait_for_function("document.querySelector('.stride-episode').dataset.step > 4")
    press(" ")
    stopped = page.step()
    page.page.wait_for_timeout(200)  # at 30 frames a second it would have moved on
    assert page.step() == stopped
    page.page.locator("#seed input").click()
    for key in ("ArrowRight", "Home", "End", "ArrowUp"):
        press(key)
    assert page.step() == stopped


def test_masked_actions_are_grey(page, place):
    page.open_run(place[4]["Taxi"].id)
    page.record()
    allowed = page.data()["allowed"]
    for step in (0, 3):
        page.page.locator(".ep-slider").fill(str(step))
        assert page.page.locator(".ep-policy .ep-bar.masked").count() == allowed[step].count(False) > 0
        words = page.page.locator(".ep-policy .number").all_inner_texts()
        assert [word == "masked" for word in words] == [not ok for ok in allowed[step]]


def test_saliency_is_switched_on_and_off(page, place):
    page.open_run(place[2].id)
    page.record()
    data, bars = page.data(), ".ep-observation .push"
    assert not page.page.locator(bars).first.is_visible()
    page.page.locator(".ep-slider").fill("2")
    for kind in ("action", "value"):
        page.page.locator(".ep-cause").select_option(kind)
        pushes = [x * spread for x, spread in zip(data["saliency"][kind][2], data["spread"], strict=True)]
        found = page.page.locator(bars).evaluate_all("all => all.map(each => parseFloat(each.style.width))")
        assert found == pytest.approx([50 * abs(x) / max(map(abs, pushes)) for x in pushes], abs=0.01)
        left = page.page.locator(bars).evaluate_all("all => all.map(each => parseFloat(each.style.left) < 50)")
        assert left == [x < 0 for x in pushes]
    assert page.page.locator(bars).first.is_visible()
    page.page.locator(".ep-cause").select_option("")
    assert not page.page.locator(bars).first.is_visible()


def test_an_image_policy_shows_what_it_saw_and_what_that_did(page, place):
    page.open_run(place[4]["pixels"].id)
    page.record()
    assert page.page.locator(".ep-ages span").all_inner_texts() == ["1 ago", "now"]
    page.page.locator(".ep-slider").fill("3")
    times = page.page.locator(".stride-episode video").evaluate_all("all => all.map(each => each.currentTime)")
    assert len(times) == 4 and len(set(times)) == 1 and times[0] > 0
    seen, heat = page.page.locator(".ep-seen"), page.page.locator(".ep-pictures .ep-value")
    assert seen.is_visible() and not heat.is_visible()
    page.page.locator(".ep-cause").select_option("value")
    assert heat.is_visible() and not page.page.locator(".ep-pictures .ep-action").is_visible()
    assert heat.bounding_box() == seen.bounding_box()


def asked(page):
    """What a page asks its server for from now on."""
    found = []
    page.page.on("request", lambda request: found.append(request.url) if "queue/join" in request.url else None)
    return found


def dashed(page, name):
    """The points of a dream's line, [x, y] each."""
    line = page.page.locator(f".ep-dream-line:has(.label:text-is('{name}')) polyline.dreamt")
    return [[float(x) for x in point.split(",")] for point in line.get_attribute("points").split()]


def test_the_dream_of_a_step_is_dashed_beside_what_came(page, place):
    page.open_run(place[4]["dreamer"].id)
    page.record("last")
    shown_at = page.page.locator(".ep-dream[data-dreamt='0']")
    shown_at.wait_for()
    data, names = page.data(), page.page.locator(".ep-dream-line .label").all_inner_texts()
    assert names == [*(each["name"] for each in data["observations"]), "reward", "going on", "value"]
    points = min(HORIZON, data["steps"])
    assert len(dashed(page, "pole angle")) == 1 + points and len(dashed(page, "reward")) == points
    solid = page.page.locator(".ep-dream-line polyline.truth").first.get_attribute("points")
    assert len(solid.split()) == 1 + points
    dash = page.page.locator(".ep-dream-line polyline.dreamt").first
    assert dash.evaluate("line => getComputedStyle(line).strokeDasharray") != "none"
    found = asked(page)
    page.page.locator(".ep-slider").fill("3")
    assert page.page.locator(".ep-dream-line polyline.dreamt").count() == 0, "nothing is shown of another step"
    page.page.locator(".ep-dream[data-dreamt='3']").wait_for()
    assert found != [] and [x for x, _ in dashed(page, "cart position")[:2]] == pytest.approx([130, 138.4], abs=0.1)
    page.page.locator(".ep-slider").fill("0")
    page.page.locator(".ep-dream[data-dreamt='0']").wait_for()
    before = len([url for url in found if "join" in url])
    page.page.wait_for_timeout(400)
    page.page.get_by_role("button", name="termination").click()
    assert "nothing follows the end" in page.page.locator(".ep-dream-head").inner_text()
    page.page.wait_for_timeout(400)
    assert len(found) - before <= 1, "the page's own clock may ask once; a step that is known, or none, does not"


def test_a_policy_without_dreams_shows_nothing_of_them(page, place):
    page.open_run(place[2].id)
    page.record()
    found = asked(page)
    page.page.locator(".ep-slider").fill("2")
    page.page.wait_for_timeout(300)  # longer than a dream would wait to be asked for
    assert page.page.locator(".ep-dream, .ep-dreamt, .ep-films").count() == 0
    assert len(found) <= 1, "the page's own clock"


def test_q_values_stand_beside_the_actions(page, place):
    page.open_run(place[4]["valued"].id)
    page.record()
    page.page.locator(".ep-slider").fill("2")
    words = page.page.locator(".ep-policy .number").all_inner_texts()
    shares = page.data()["distribution"]
    assert [word.split()[0] for word in words] == [f"{100 * p:g}" for p in shares["probability"][2]]
    assert [float(word.split("Q")[1]) for word in words] == pytest.approx(shares["q"][2], abs=6e-3)
    with page.page.expect_download() as caught:
        page.page.get_by_role("button", name="every step as a row").click()
    with open(caught.value.path(), encoding="utf-8") as file:
        assert float(next(csv.DictReader(file))["q push left"]) == shares["q"][0][0]


@pytest.mark.slow
def test_on_a_phone_tabs_stay_where_they_are(place):
    browser, url, first, *_ = place
    page = Page(browser, url, 390, "dark")
    page.open_run(first.id)
    places = "all => all.map(each => [each.innerText, each.offsetLeft, each.offsetTop])"
    buttons = page.page.locator("#tabs button[role=tab]")
    before = buttons.evaluate_all(places)
    assert [name for name, *_ in before] == list(TABS)
    for name in (*TABS, *TABS[::-1], "Episode", "Runs", "Episode", "Videos", "Overview", "Videos"):
        page.tab(name)
        assert buttons.evaluate_all(places) == before and page.page.evaluate(WIDEST) <= 390
    page.record()
    page.tab("Runs")
    page.tab("Episode")
    page.page.locator(".ep-slider").fill("2")
    assert page.step() == 2
    page.page.close()
    assert page.wrong == []


def test_two_runs_are_compared(page, place):
    page.tab("Runs")
    assert page.page.locator("#compare-ticked").is_disabled()
    for run in place[2:4]:
        page.page.locator(f'#runs tr[data-run="{run.id}"] input').check()
    page.page.locator("#compare-ticked").click()
    row = page.page.locator("#compared tr:has(td:text-is('gamma'))")
    row.wait_for()
    assert "0.9" in row.inner_text() and "CartPole-v1:ppo gamma=0.9" in page.page.locator("#compared").inner_text()


def test_a_live_run_is_seen_to_advance(page, place):
    run = place[3]
    facts = json.loads(run.config_json.read_text())
    run.config_json.write_text(json.dumps({**facts, "status": "running"}))
    page.open_run(run.id)
    page.page.locator("#overview .badge.running").wait_for()
    columns = run.metrics_csv.read_text().split("\n")[0].split(",")
    row = {STEPS: "777777", VAL: "444"}
    with open(run.metrics_csv, "a", encoding="utf-8") as file:
        file.write(",".join(row.get(name, "") for name in columns) + "\n")
    page.page.locator("#overview dd", has_text="777,777").wait_for()
    assert page.page.locator("#overview .chart .curve").count() > 5
    run.config_json.write_text(json.dumps(facts))


def test_an_unknown_run_is_a_toast(page):
    page.page.locator("#run input").fill("nothing-like-it")
    page.page.locator("#run input").press("Enter")
    toast = page.page.locator(".toast-body").first
    toast.wait_for()
    assert "no run 'nothing-like-it'" in toast.inner_text() and "Traceback" not in toast.inner_text()


def test_the_newest_are_shown_first_and_more_on_demand(place):
    browser, url, first, *_ = place
    older = [first.path.with_name(f"20200101-{number:06d}-older") for number in range(PAGE)]
    try:
        for folder in older:
            folder.mkdir()
            (folder / "config.json").write_text("{}")
        older[-1].joinpath("config.json").write_text('{"goal": "x"}')
        page = Page(browser, url)
        page.open_run(first.id)
        page.tab("Runs")
        assert page.page.locator("#runs tr[data-run]").count() == PAGE
        row = page.page.locator(f'#runs tr[data-run="{older[-1].name}"]')
        assert "damaged" in row.inner_text() and "goal is not a finite number" in row.inner_text()
        page.page.locator("#more").click()
        page.page.locator(f'#runs tr[data-run="{older[0].name}"]').wait_for()
        page.page.locator("#more").wait_for(state="hidden")
        row.locator(".link").click()
        page.page.locator("#overview .damage", has_text="goal is not a finite number").wait_for()
        page.page.close()
        assert page.wrong == []
    finally:
        for folder in older:
            shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_every_tab_fits(place, width, scheme):
    """$STRIDE_SCREENSHOTS names a folder for pictures of them."""
    browser, url, first, *_ = place
    page = Page(browser, url, width, scheme)
    page.open_run(first.id)
    for tab in TABS:
        page.tab(tab)
        page.page.wait_for_timeout(300)
        assert page.page.evaluate(WIDEST) <= width
    page.record()
    page.page.locator(".ep-strip button").nth(3).wait_for()
    assert page.page.evaluate(WIDEST) <= width
    page.page.close()
    assert page.wrong == []
