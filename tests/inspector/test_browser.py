"""The inspector in a real browser: what a person does with it, at a desk and on a phone."""

import csv
import json
import os
import shutil

import pytest
from gallery import gallery_copy
from inspector_browsing import opened

from stride.inspector.app import TABS
from stride.inspector.played import DREAM_STEPS
from stride.inspector.runs import PAGE_RUNS
from stride.runstore.history import STEPS, VAL
from stride.runstore.run_lock import locked

# the tables scroll inside of their own frames
WIDEST = "Math.max(document.querySelector('main').scrollWidth, document.documentElement.scrollWidth)"
BARS = ".ep-observation .push"
SCREENSHOTS = os.environ.get("STRIDE_SCREENSHOTS", "")  # a folder for pictures that a person looks at
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def runs(root):
    names = ("filmed", "other", "pendulum", "taxi", "pixels", "dqn", "memory", "dreamer")
    return {name: gallery_copy(name, root) for name in names}


def test_an_episode_is_recorded_and_scrubbed_without_the_server(page, runs):
    data, loaded = page.record_run(runs["filmed"], "last"), []
    page.expect(page.episode).to_contain_text("epoch=04")
    page.page.on("request", lambda request: loaded.append(request.url) if "file=" in request.url else None)
    page.at(0)
    page.go_to(3)
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
        page.press(key)
    page.at(4)
    page.expect(page.all(".ep-so_far")).to_have_text("5")
    assert page.all(".ep-frame").evaluate("v => v.currentTime") == pytest.approx(4.5 / data["fps"], abs=1e-3)
    timeline = page.all(".ep-timeline")
    timeline.click(position={"x": timeline.bounding_box()["width"] / 2, "y": 40})
    assert abs(int(page.episode.get_attribute("data-step")) - data["steps"] / 2) <= 1
    page.button("button", name="termination").click()
    page.at(data["steps"])
    page.press("Home")
    page.at(0)
    page.button("button", name="play or pause (space)").click()
    page.past(2)
    assert loaded == []
    page.record("epoch=02")
    page.expect(page.episode).to_contain_text("epoch=02")


# how far from the left the bars of attention at the timeline's lower edge begin and end, as shares of its width
ATTENDED = """canvas => {
  const pen = canvas.getContext("2d"), row = pen.getImageData(0, canvas.height - 4, canvas.width, 1).data;
  const colour = getComputedStyle(document.querySelector(".stride-episode")).getPropertyValue("--c5");
  pen.fillStyle = colour;
  const number = parseInt(pen.fillStyle.slice(1), 16), wanted = [number >> 16, (number >> 8) & 255, number & 255];
  const at = [...Array(canvas.width).keys()].filter(
    x => row[4 * x + 3] > 40 && wanted.every((part, i) => Math.abs(row[4 * x + i] - part) < 40));
  return [at[0] / canvas.width, at.at(-1) / canvas.width];
}"""


def test_a_memory_shows_what_it_attends_to(page, runs):
    data = page.record_run(runs["memory"])
    assert all(sum(weights) == pytest.approx(1, abs=2e-3) for weights in data["attention"])
    assert [weights[1:] for weights in data["attention"][:1]] == [[0.0] * 6], "nothing was before the first step"
    page.expect(page.all(".ep-legend, .legend").first).to_contain_text("attention of this step to those before it")
    for step in (0, 8):
        page.go_to(step)
        begins, ends = page.all(".ep-timeline").evaluate(ATTENDED)
        assert begins * data["steps"] >= step - 6 - 0.5 and ends * data["steps"] <= step + 1.5
    if SCREENSHOTS:
        page.page.screenshot(path=f"{SCREENSHOTS}/memory.png", full_page=True)


def test_the_numbers_are_exported(page, runs):
    data = page.record_run(runs["filmed"])
    _, table = page.save("every step as a row")
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert len(rows) == data["steps"] and float(rows[-1]["so_far"]) == data["return"]
    wanted = {"value", "td_error", "probability push left", "pole angle", "gradient of the value by pole angle"}
    assert rows[0].keys() >= wanted and float(rows[2]["pole angle"]) == data["observed"][2][2]
    name, numbers = page.save("everything but the frames")
    assert name.endswith(".json") and json.loads(numbers.read_text()) == {
        key: value for key, value in data.items() if key != "videos"
    }
    assert page.save("the frames", exact=True)[0].endswith(".mp4")


def test_continuous_actions_are_shown_and_jumped_through(page, runs):
    data, number = page.record_run(runs["pendulum"]), page.all(".ep-policy .number")
    assert data["steps"] == 200 and data["kind"] == "numbers" and data["actions"] == ["torque"]
    page.expect(number).to_contain_text("±")
    largest = max(range(200), key=lambda step: abs(data["td_error"][step]))
    jumps = {
        "where the critic was most surprised": largest,
        "where the policy was least sure": data["entropy"].index(max(data["entropy"])),
        "termination": 200,
    }
    for name, step in jumps.items():
        page.button("button", name=name).click()
        page.at(step)
        if step == largest:
            mean = data["distribution"]["mean"][largest][0]
            assert page.number(".ep-policy .number") == pytest.approx(mean, abs=6e-3)
    page.expect(number).to_have_text("–")
    page.go_to(7)
    page.button("button", name="next step with a reward that is not zero").click()
    page.at(next(step for step in range(8, 200) if data["reward"][step]))
    assert page.number(".ep-reward") == pytest.approx(data["reward"][8], abs=1e-3)
    picture = page.all(".ep-strip button").nth(3)
    picture.click()
    page.at(picture.get_attribute("title").removeprefix("go to step "))


def test_keys_move_the_episode_but_not_while_something_is_typed(page, runs):
    page.record_run(runs["pendulum"])
    page.all(".ep-head").click()
    for key, step in (("End", 200), ("ArrowLeft", 199), ("Home", 0), ("ArrowLeft", 0), ("ArrowRight", 1)):
        page.press(key)
        page.at(step)
    page.press(" ")
    page.past(4)
    page.press(" ")
    stopped = page.episode.get_attribute("data-step")
    page.page.wait_for_timeout(200)  # at 30 frames a second it would have moved on
    page.at(stopped)
    page.all("#seed input").click()
    for key in ("ArrowRight", "Home", "End", "ArrowUp"):
        page.press(key)
    page.at(stopped)


def test_masked_actions_are_grey(page, runs):
    allowed = page.record_run(runs["taxi"])["allowed"]
    for step in (0, 3):
        page.go_to(step)
        page.expect(page.all(".ep-policy .ep-bar.masked")).to_have_count(allowed[step].count(False))
        words = page.all(".ep-policy .number").all_inner_texts()
        assert [word != "masked" for word in words] == allowed[step] and False in allowed[step]


def test_saliency_is_switched_on_and_off(page, runs):
    data, bars = page.record_run(runs["filmed"]), page.all(BARS)
    page.expect(bars.first).to_be_hidden()
    page.go_to(2)
    for kind in ("action", "value"):
        page.all(".ep-cause").select_option(kind)
        page.expect(bars.first).to_be_visible()
        pushes = [x * spread for x, spread in zip(data["saliency"][kind][2], data["spread"], strict=True)]
        styles = bars.evaluate_all("all => all.map(b => [parseFloat(b.style.width), parseFloat(b.style.left) < 50])")
        widths, left = zip(*styles, strict=True)
        assert widths == pytest.approx([50 * abs(x) / max(map(abs, pushes)) for x in pushes], abs=0.01)
        assert [*left] == [x < 0 for x in pushes]
    page.all(".ep-cause").select_option("")
    page.expect(bars.first).to_be_hidden()


def test_an_image_policy_shows_what_it_saw_and_what_that_did(page, runs):
    page.record_run(runs["pixels"])
    page.expect(page.all(".ep-ages span")).to_have_text(["1 ago", "now"])
    page.go_to(3)
    times = page.all(".stride-episode video").evaluate_all("all => all.map(each => each.currentTime)")
    assert len(times) == 4 and len(set(times)) == 1 and times[0] > 0
    seen, heat = page.all(".ep-seen"), page.all(".ep-pictures .ep-value")
    page.expect(seen).to_be_visible()
    page.expect(heat).to_be_hidden()
    page.all(".ep-cause").select_option("value")
    page.expect(heat).to_be_visible()
    page.expect(page.all(".ep-pictures .ep-action")).to_be_hidden()
    page.becomes(heat.bounding_box, seen.bounding_box())


def questions(page):
    """What a page asks its server for from now on."""
    urls = []
    page.page.on("request", lambda request: urls.append(request.url) if "queue/join" in request.url else None)
    return urls


def dashed(page, name):
    """The points of a dream's line, [x, y] each."""
    line = page.all(f".ep-dream-line:has(.label:text-is('{name}')) polyline.dreamt")
    return [[float(x) for x in point.split(",")] for point in line.get_attribute("points").split()]


def test_the_dream_of_a_step_is_dashed_beside_what_came(page, runs):
    data = page.record_run(runs["dreamer"], "last")
    page.all(".ep-dream[data-dreamt='0']").wait_for()
    names = [*(each["name"] for each in data["observations"]), "reward", "continue", "value"]
    page.expect(page.all(".ep-dream-line .label")).to_have_text(names)
    points = min(DREAM_STEPS, data["steps"])
    assert len(dashed(page, "pole angle")) == 1 + points and len(dashed(page, "reward")) == points
    solid = page.all(".ep-dream-line polyline.truth").first.get_attribute("points")
    assert len(solid.split()) == 1 + points
    dash = page.all(".ep-dream-line polyline.dreamt").first
    assert dash.evaluate("line => getComputedStyle(line).strokeDasharray") != "none"
    asked = questions(page)
    left = page.all(".ep-slider").evaluate(
        "slider => { slider.value = 3; slider.dispatchEvent(new Event('input')); "
        "return document.querySelectorAll('.ep-dream-line polyline.dreamt').length }"
    )
    assert left == 0, "nothing is shown of another step"
    page.all(".ep-dream[data-dreamt='3']").wait_for()
    assert asked != [] and [x for x, _ in dashed(page, "cart position")[:2]] == pytest.approx([130, 138.4], abs=0.1)
    page.go_to(0)
    page.all(".ep-dream[data-dreamt='0']").wait_for()
    before = len(asked)
    page.page.wait_for_timeout(400)
    page.button("button", name="termination").click()
    page.expect(page.all(".ep-dream-head")).to_contain_text("no steps follow the end")
    page.page.wait_for_timeout(400)
    assert len(asked) - before <= 1, "the page's own clock may ask once; a step that is known, or none, does not"


def test_q_values_stand_beside_the_actions_and_nothing_of_dreams(page, runs):
    shares = page.record_run(runs["dqn"])["distribution"]
    asked = questions(page)
    page.go_to(2)
    page.page.wait_for_timeout(300)  # longer than a dream would wait to be asked for
    assert page.all(".ep-dream, .ep-dreamt, .ep-films").count() == 0
    assert len(asked) <= 1, "the page's own clock"
    words = [word.split() for word in page.all(".ep-policy .number").all_inner_texts()]
    assert [float(percent) for percent, *_ in words] == pytest.approx(
        [100 * p for p in shares["probability"][2]], abs=0.1
    )
    assert [float(word[-1].removeprefix("Q")) for word in words] == pytest.approx(shares["q"][2], abs=6e-3)
    _, table = page.save("every step as a row")
    first = next(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert float(first["q push left"]) == shares["q"][0][0]


def test_a_live_run_is_seen_to_advance(page, runs):
    """This process holds the run: one that nobody holds would be dead after two seconds."""
    run = runs["other"]
    facts = json.loads(run.config_json.read_text())
    columns = run.metrics_csv.read_text().split("\n")[0].split(",")
    row = {STEPS: "777777", VAL: "444"}
    with locked(run.path):
        run.config_json.write_text(json.dumps({**facts, "status": "running"}))
        page.open_run(run.id)
        page.all("#overview .badge.running").wait_for()
        with open(run.metrics_csv, "a", encoding="utf-8") as file:
            file.write(",".join(row.get(name, "") for name in columns) + "\n")
        page.all("#overview dd", has_text="777,777").wait_for()
        page.becomes(lambda: page.all("#overview .chart .curve").count() > 5, True)
        run.config_json.write_text(json.dumps(facts))


def test_an_unknown_run_is_a_toast(page):
    page.all("#run input").fill("nothing-like-it")
    page.all("#run input").press("Enter")
    toast = page.all(".toast-body").first
    page.expect(toast).to_contain_text("no run 'nothing-like-it'")
    page.expect(toast).not_to_contain_text("Traceback")


def test_the_newest_are_shown_first_and_more_on_demand(browser, served, root, runs):
    older = [root / f"20200101-{number:06d}-older" for number in range(PAGE_RUNS)]
    for folder in older:
        folder.mkdir()
        (folder / "config.json").write_text("{}")
    (older[-1] / "config.json").write_text('{"goal": "x"}')
    try:
        with opened(browser, served[1]) as page:
            page.open_run(runs["filmed"].id)
            page.tab("Runs")
            page.expect(page.all("#runs tr[data-run]")).to_have_count(PAGE_RUNS)
            row = page.all(f'#runs tr[data-run="{older[-1].name}"]')
            page.expect(row).to_contain_text("damaged")
            page.expect(row).to_contain_text("goal is not a finite number")
            page.all("#more").click()
            page.all(f'#runs tr[data-run="{older[0].name}"]').wait_for()
            page.all("#more").wait_for(state="hidden")
            row.locator(".link").click()
            page.all("#overview .damage", has_text="goal is not a finite number").wait_for()
    finally:
        for folder in older:
            shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [
    (1440, "light"), (390, "dark"),
    pytest.param(1440, "dark", marks=pytest.mark.soak), pytest.param(390, "light", marks=pytest.mark.soak),
])  # fmt: skip
def test_every_tab_fits_and_the_row_of_tabs_stays_where_it_is(browser, served, runs, width, scheme):
    places = "all => all.map(each => [each.innerText, each.offsetLeft, each.offsetTop])"
    with opened(browser, served[1], width, scheme) as page:
        page.open_run(runs["filmed"].id)
        buttons = page.all("#tabs button[role=tab]")
        before = buttons.evaluate_all(places)
        assert [name for name, *_ in before] == list(TABS)
        for name in (*TABS, *TABS[::-1], "Episode", "Runs", "Episode", "Videos", "Overview", "Videos"):
            page.tab(name)
            assert buttons.evaluate_all(places) == before
            page.page.wait_for_timeout(100)  # for what comes late
            page.becomes(lambda: page.page.evaluate(WIDEST) <= width, True)
            if SCREENSHOTS:
                page.page.screenshot(path=f"{SCREENSHOTS}/{name.split()[0]}-{width}-{scheme}.png", full_page=True)
        page.record()
        page.all(".ep-strip button").nth(3).wait_for()
        assert page.page.evaluate(WIDEST) <= width
        page.tab("Runs")
        page.tab("Episode")
        page.go_to(2)
