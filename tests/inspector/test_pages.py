"""Tables and charts in a real browser: sorting, filtering, comparing, zooming, saving; and an episode that stays."""

import csv
import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from functools import partial

import pytest
from gallery import gallery_copies, gallery_copy

from stride.inspector.app import TABS
from stride.inspector.compare import RETURN, choices, chosen, compare, compare_runs, first_choice
from stride.inspector.runs import Runs
from stride.runstore.history import RATE, TRAIN, VAL
from stride.runstore.run_dir import RunDir
from stride.utils.user_error import UserError

pytestmark = pytest.mark.browser
GROUP, KL = "group:seeds", "train/policy/approx_kl"
ODD = ("1e300", "nan", "5e-324", "-1e90", "inf")


@pytest.fixture(scope="module")
def runs(root):
    """A run of another environment, one with numbers that nobody can draw, and two seeds of a group."""
    other, seeds = gallery_copy("pendulum", root), gallery_copies("seeds", root)
    odd = RunDir(shutil.copytree(seeds[0].path, root / "20200101-000000-odd"))
    facts = odd.facts()
    odd.config_json.write_text(json.dumps({**facts, "group": "", "seed": 77}))
    with open(odd.metrics_csv, newline="") as file:
        rows = list(csv.DictReader(file))
    for row, returns, evaluated in zip(rows, ODD, ODD[::-1], strict=False):
        row.update({TRAIN: returns, VAL: evaluated})
    with open(odd.metrics_csv, "w", newline="") as file:
        table = csv.DictWriter(file, rows[0], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    return seeds, other, odd


def rows(page):
    """Ids as they are shown."""
    return page.all("#runs tr[data-run]:visible").evaluate_all("all => all.map(row => row.dataset.run)")


def test_the_table_is_sorted_by_a_press_and_filtered_by_menus_and_words(page, runs):
    seeds, other, odd = runs
    ids = [run.id for run in seeds]
    page.tab("Runs")
    group, press = page.all("#runs tr[data-fold]"), page.all("#runs .sort", has_text="seed")
    page.expect(group).to_contain_text("2 seeds")
    page.becomes(lambda: {*rows(page)}, {other.id, odd.id})
    group.locator(".fold").click()
    page.becomes(lambda: {*rows(page)}, {other.id, odd.id, *ids})
    page.all("select[data-key=by]").select_option("by:run")
    group.wait_for(state="detached")
    press.click()
    page.all("#runs th[aria-sort=descending]", has_text="seed").wait_for()
    page.becomes(lambda: rows(page)[:2], [odd.id, ids[1]])
    press.click()
    page.all("#runs th[aria-sort=ascending]", has_text="seed").wait_for()
    page.becomes(lambda: rows(page)[-2:], [ids[1], odd.id])
    page.expect(page.all("#filter")).to_have_value("by:run sort:seed")
    page.all("select[data-key=group]").select_option(GROUP)
    page.becomes(lambda: rows(page), ids)
    page.all("#filter").fill("pendulum")
    page.becomes(lambda: rows(page), [other.id])
    page.expect(page.all("select[data-key=group]")).to_have_value("")


def test_ticks_of_a_group_stay_while_the_table_changes_and_are_compared(page, runs):
    seeds = runs[0]
    page.tab("Runs")
    page.expect(page.all("#compare-ticked")).to_be_disabled()
    page.all("#runs tr[data-fold] input").check()
    page.all("#filter").fill("sort:-steps by:run")
    page.all(f'#runs tr[data-run="{seeds[0].id}"]').wait_for()
    page.expect(page.all("#runs tr.checked input:checked")).to_have_count(2)
    page.expect(page.all("#compare-ticked")).to_have_text("Compare 2")
    page.all("#compare-ticked").click()
    page.all("#compared td", has_text=seeds[1].id).wait_for()


def test_compare_opens_with_the_last_group_and_its_band(page, runs):
    page.tab("Compare")
    page.all("#compared .band").first.wait_for()
    page.expect(page.all("#compared .thin")).to_have_count(2)
    for words in ("2 runs", "lowest to highest", *(run.id for run in runs[0])):
        page.expect(page.all("#compared")).to_contain_text(words)
    page.all("#metrics input").fill("approx_kl")
    page.all("#metrics input").press("Enter")
    page.expect(page.all("#compared .chart-name")).to_have_text(["Return", "KL, nats"])
    page.expect(page.all("#compared .chart:has-text('KL, nats') .thin")).to_have_count(2)


def test_groups_are_compared_by_name(runs):
    seeds, other, odd = runs
    found = Runs()
    assert first_choice(found) == [GROUP] and choices(found)[0][1] == GROUP
    briefs = chosen(found, [GROUP, seeds[0].id, other.id])
    assert [each.id for each in briefs] == [seeds[0].id, seeds[1].id, other.id]
    assert "choose another" in compare_runs(found, [other.id], [])[0] and "choose a group" in compare([])
    with pytest.raises(UserError, match="no runs have group:nothing"):
        chosen(found, ["group:nothing"])
    page, options = compare_runs(found, [*(run.id for run in seeds), odd.id], [RETURN, KL, "train/nothing"])
    assert {VAL, TRAIN, KL, RATE} <= {name for _, name in options} and page.count("data-chart") == 2
    assert "KL, nats" in page and "no values yet" in page
    assert "3 runs" in page and "NaN" not in page and "Infinity" not in page


def chart(page):
    return page.all("#overview .chart:has(svg[aria-label='Return'])")


def test_a_chart_is_zoomed_smoothed_and_drawn_over_time(page, runs):
    page.open_run(runs[0][0].id)
    curve, marks = chart(page).locator(".curve.c1:not(.raw)"), chart(page).locator("svg text[text-anchor=middle]")
    before, path = marks.all_text_contents(), curve.get_attribute("points")
    axis_x, axis_y = page.all("#overview [aria-label='x axis']"), page.all("#overview [aria-label='y axis']")
    smooth, mouse = page.all("#overview .smooth input"), page.page.mouse
    box = chart(page).locator("svg").bounding_box()
    mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 60)
    page.expect(chart(page).locator(".chart-said")).to_contain_text("return")
    mouse.down()
    mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 80, steps=4)
    mouse.up()
    page.expect(marks).not_to_have_text(before)
    page.all("#overview .tools .button").click()
    page.expect(marks).to_have_text(before)
    page.expect(curve).to_have_attribute("points", path)
    smooth.fill("0.9")
    page.expect(curve).not_to_have_attribute("points", path)
    page.expect(chart(page).locator(".raw.c1")).to_have_attribute("points", path)
    smooth.fill("0")
    page.expect(curve).to_have_attribute("points", path)
    axis_y.select_option("log")
    page.expect(curve).not_to_have_attribute("points", path)
    axis_y.select_option("")
    for axis in ("time", "episodes"):
        axis_x.select_option(axis)
        page.expect(chart(page).locator("svg text", has_text=axis)).to_have_count(1)
        page.expect(curve).to_have_count(1)


def test_a_chart_is_saved_as_numbers_and_as_pictures(page, runs):
    run, files, choice = runs[0][0], {}, chart(page).locator(".chart-save")
    page.open_run(run.id)
    for ending in ("csv", "svg", "png"):
        name, files[ending] = page.download(partial(choice.select_option, ending))
        assert name == f"Return.{ending}"
    table = csv.DictReader(files["csv"].read_text(encoding="utf-8").splitlines())
    saved = [(float(row["x"]), float(row["y"])) for row in table if row["curve"] == "return"]
    points = [point for point in Runs().look_into(run.id).points(TRAIN) if point.y == point.y]
    assert saved == [pytest.approx(tuple(point), rel=1e-5) for point in points]
    picture = ElementTree.parse(files["svg"]).getroot()
    assert picture.tag.endswith("svg") and "stroke: rgb" in ElementTree.tostring(picture, "unicode")
    assert files["png"].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_odd_numbers_and_constants_are_drawn_or_folded_away(page, runs):
    page.open_run(runs[2].id)
    page.all("#overview .multiples svg text").first.wait_for()
    drawings = "".join(page.all("#overview svg").evaluate_all("all => all.map(each => each.innerHTML)"))
    assert not re.search("NaN|Infinity", drawings)
    page.becomes(lambda: page.all("#overview .multiples .chart").count() > 5, True)
    page.expect(page.all("#overview summary").first).to_contain_text("did not change")


def test_an_episode_waits_for_who_comes_back_and_is_a_video(page, runs):
    run = runs[0][1]
    page.open_run(run.id)
    page.tab("Episode")
    page.all("#player .invitation").wait_for()
    page.tab("Videos")
    page.all("#videos .note").wait_for()
    page.all("#film").click()
    page.all("#videos video").wait_for()
    page.expect(page.all("#videos figcaption")).to_contain_text("recorded here")
    page.tab("Episode")
    page.all(".stride-episode[data-ready=yes]").wait_for()
    for words in ("return to go (undiscounted)", "discounted return to go", "γ"):
        page.expect(page.episode.locator(".legend")).to_contain_text(words)
    page.open_run(runs[1].id)
    page.tab("Episode")
    page.all("#player .invitation").wait_for()
    page.open_run(run.id)
    page.tab("Episode")
    page.all(".stride-episode[data-ready=yes]").wait_for()


def test_the_choice_of_a_run_stands_where_a_run_is_looked_at(page):
    for tab in TABS:
        page.tab(tab)
        page.becomes(page.all("#run").is_visible, tab not in ("Runs", "Compare"))
