"""Tables and charts in a real browser: sorting, filtering, comparing, zooming, saving; and an episode that stays."""

import csv
import json
import re
import shutil
import xml.etree.ElementTree as ElementTree

import pytest
from inspector_browsing import Page, chromium, serving
from tiny_runs import tiny_run

from stride.inspector.app import TABS
from stride.inspector.compare import choices, chosen, compare, first_choice
from stride.inspector.runs import Runs
from stride.runstore.history import TRAIN, VAL
from stride.utils.user_error import UserError

pytestmark = pytest.mark.browser
GROUPED = ("--group", "20260101-000000-beef")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two seeds of a group, a run of another environment, and one with numbers that nobody can draw."""
    with pytest.MonkeyPatch.context() as patch, chromium() as browser:
        patch.setenv("STRIDE_RUNS", str(tmp_path_factory.mktemp("runs")))
        seeds = [tiny_run("CartPole-v1:ppo", *GROUPED, seed=seed) for seed in (1, 2)]
        other = tiny_run("Pendulum-v1:ppo", max_timesteps=16, eval_freq_epochs="null")
        odd = other.path.with_name("20200101-000000-odd")
        shutil.copytree(seeds[0].path, odd)
        facts = json.loads((odd / "config.json").read_text())
        (odd / "config.json").write_text(json.dumps({**facts, "group": "", "seed": 77}))
        head, *rows = (odd / "metrics.csv").read_text().split("\n")
        columns = head.split(",")
        for place, value in enumerate(("1e300", "nan", "5e-324", "-1e90", "inf")):
            cells = rows[place % len(rows)].split(",")
            if len(cells) == len(columns):
                cells[columns.index(TRAIN)] = value
                cells[columns.index(VAL)] = value
                rows[place % len(rows)] = ",".join(cells)
        (odd / "metrics.csv").write_text("\n".join([head, *rows]))
        with serving(seeds[1].id) as (_, url):
            yield browser, url, seeds, other, odd


@pytest.fixture
def page(place):
    opened = Page(*place[:2])
    yield opened
    opened.page.close()
    assert opened.wrong == []


def rows(page):
    """Ids as they are shown."""
    return page.page.locator("#runs tr[data-run]:visible").evaluate_all("all => all.map(row => row.dataset.run)")


def test_the_table_is_sorted_by_a_press_and_filtered_by_menus_and_words(page, place):
    _, _, seeds, other, odd = place
    page.tab("Runs")
    group = page.page.locator("#runs tr[data-fold]")
    assert set(rows(page)) == {other.id, odd.name} and "2 seeds" in group.inner_text()
    group.locator(".fold").click()
    assert set(rows(page)) == {other.id, odd.name, *(run.id for run in seeds)}
    page.page.locator("select[data-key=by]").select_option("by:run")
    group.wait_for(state="detached")
    press = page.page.locator("#runs .sort", has_text="seed")
    press.click()
    page.page.locator("#runs th[aria-sort=descending]", has_text="seed").wait_for()
    assert rows(page)[:2] == [odd.name, seeds[1].id]
    page.page.locator("#runs .sort", has_text="seed").click()
    page.page.locator("#runs th[aria-sort=ascending]", has_text="seed").wait_for()
    assert rows(page)[-2:] == [seeds[1].id, odd.name]
    assert page.page.locator("#filter").input_value() == "by:run sort:seed"
    page.page.locator("select[data-key=group]").select_option("group:20260101-000000-beef")
    page.page.locator(f'#runs tr[data-run="{odd.name}"]').wait_for(state="detached")
    assert rows(page) == [run.id for run in seeds]
    page.page.locator("#filter").fill("pendulum")
    page.page.locator(f'#runs tr[data-run="{other.id}"]').wait_for()
    assert rows(page) == [other.id] and page.page.locator("select[data-key=group]").input_value() == ""


def test_ticks_of_a_group_stay_while_the_table_changes_and_are_compared(page, place):
    seeds = place[2]
    page.tab("Runs")
    page.page.locator("#runs tr[data-fold] input").check()
    page.page.locator("#filter").fill("sort:-steps by:run")
    page.page.locator(f'#runs tr[data-run="{seeds[0].id}"]').wait_for()
    page.page.wait_for_function("document.querySelectorAll('#runs tr.checked input:checked').length == 2")
    assert page.page.locator("#compare-ticked").inner_text() == "Compare 2"
    page.page.locator("#compare-ticked").click()
    page.page.locator("#compared td", has_text=seeds[1].id).wait_for()


def test_compare_opens_with_the_last_group_and_its_band(page, place):
    page.tab("Compare")
    page.page.locator("#compared .band").first.wait_for()
    assert page.page.locator("#compared .thin").count() == 2
    words = page.page.locator("#compared").inner_text()
    assert "2 runs" in words and "lowest to the highest" in words and all(run.id in words for run in place[2])


def test_groups_are_compared_by_name(place):
    _, _, seeds, other, odd = place
    runs = Runs()
    assert first_choice(runs) == [f"group:{GROUPED[1]}"] and choices(runs)[0][1] == f"group:{GROUPED[1]}"
    found = chosen(runs, [f"group:{GROUPED[1]}", seeds[0].id, other.id])
    assert [each.run.id for each in found] == [seeds[0].id, seeds[1].id, other.id]
    assert "choose a group" in compare(found[:1])
    with pytest.raises(UserError, match="no run belongs to group:nothing"):
        chosen(runs, ["group:nothing"])
    page = compare(chosen(runs, [*(run.id for run in seeds), odd.name]))
    assert "3 runs" in page and "NaN" not in page and "Infinity" not in page


def chart(page, title="Episode return"):
    return page.page.locator(f"#overview .chart:has(svg[aria-label='{title}'])")


def marks(page):
    return chart(page).locator("svg text[text-anchor=middle]").all_inner_texts()


def test_a_chart_is_zoomed_smoothed_and_drawn_over_time(page, place):
    page.open_run(place[2][0].id)
    curve = chart(page).locator(".curve.c1:not(.raw)")
    before, path = marks(page), curve.get_attribute("points")
    box = chart(page).locator("svg").bounding_box()
    mouse = page.page.mouse
    mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 60)
    assert "training" in chart(page).locator(".chart-said").inner_text()
    mouse.down()
    mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 80, steps=4)
    mouse.up()
    assert marks(page) != before
    page.page.locator("#overview .tools .button").click()
    assert marks(page) == before and curve.get_attribute("points") == path
    page.page.locator("#overview .smooth input").fill("0.9")
    assert curve.get_attribute("points") != path
    assert chart(page).locator(".raw.c1").get_attribute("points") == path
    page.page.locator("#overview .smooth input").fill("0")
    page.page.locator("#overview [aria-label='y axis']").select_option("log")
    assert curve.get_attribute("points") != path
    page.page.locator("#overview [aria-label='y axis']").select_option("")
    for axis in ("time", "episodes"):
        page.page.locator("#overview [aria-label='x axis']").select_option(axis)
        assert chart(page).locator("svg").inner_html().count(axis) == 1 and curve.count() == 1
    page.page.locator("#overview [aria-label='x axis']").select_option("steps")


def test_a_chart_is_saved_as_numbers_and_as_pictures(page, place):
    page.open_run(place[2][0].id)
    files = {}
    for ending in ("csv", "svg", "png"):
        with page.page.expect_download() as caught:
            chart(page).locator(".chart-save").select_option(ending)
        assert caught.value.suggested_filename == f"Episode-return.{ending}"
        files[ending] = caught.value.path()
    with open(files["csv"], encoding="utf-8") as file:
        told = [(float(row["x"]), float(row["y"])) for row in csv.DictReader(file) if row["curve"] == "training"]
    points = [p for p in Runs().look_into(place[2][0].id).points(TRAIN) if p.y == p.y]
    assert told == [pytest.approx(tuple(point), rel=1e-5) for point in points]
    root = ElementTree.parse(files["svg"]).getroot()
    assert root.tag.endswith("svg") and "stroke: rgb" in ElementTree.tostring(root, "unicode")
    assert files["png"].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_odd_numbers_and_constants_are_drawn_or_folded_away(page, place):
    page.open_run(place[4].name)
    page.page.locator("#overview .multiples svg text").first.wait_for()
    assert not re.search(
        "NaN|Infinity", "".join(page.page.locator("#overview svg").evaluate_all("a => a.map(e => e.innerHTML)"))
    )
    assert page.page.locator("#overview .multiples .chart").count() > 5
    assert "did not change" in page.page.locator("#overview summary").first.inner_text()


def test_an_episode_waits_for_who_comes_back_and_is_a_video(page, place):
    page.open_run(place[2][1].id)
    page.tab("Episode")
    page.page.locator("#player .invitation").wait_for()
    page.tab("Videos")
    page.page.locator("#videos .note").wait_for()
    page.page.locator("#film").click()
    page.page.locator("#videos video").wait_for()
    assert "recorded here" in page.page.locator("#videos figcaption").inner_text()
    page.tab("Episode")
    page.page.locator(".stride-episode[data-ready=yes]").wait_for()
    words = page.page.locator(".stride-episode .legend").inner_text()
    assert "return to go (undiscounted)" in words and "discounted return to go" in words and "γ" in words
    page.open_run(place[3].id)
    page.tab("Episode")
    page.page.locator("#player .invitation").wait_for()
    page.open_run(place[2][1].id)
    page.tab("Episode")
    page.page.locator(".stride-episode[data-ready=yes]").wait_for()


def test_the_choice_of_a_run_stands_where_a_run_is_looked_at(page):
    for tab in TABS:
        page.tab(tab)
        assert page.page.locator("#run").is_visible() == (tab not in ("Runs", "Compare"))
