"""Trials of a search in Compare: their settings and returns, drawn and read in the browser, on a phone, too."""

import json
import re

import pytest
from gallery import gallery_copy
from inspector_browsing import opened

from stride.inspector.compare import choices, chosen, compare_runs
from stride.inspector.runs import Runs
from stride.inspector.trials import MOST_KEYS, number_of, trials

GAMMAS = (0.9, 0.95, 0.99, 0.999)


@pytest.fixture(scope="module")
def runs(root):
    """Four trials of a search, in settings and in returns apart."""
    result = []
    for number, gamma in enumerate(GAMMAS):
        run = gallery_copy("ppo", root)
        folder = run.path.rename(root / f"2026010{number + 1}-000000-CartPole-v1-ppo-s1-tri{number}")
        facts = json.loads((folder / "config.json").read_text())
        facts |= {"group": "sweep-x", "outcome": {**facts["outcome"], "test_mean": 100.0 + number}}
        facts["config"] |= {"gamma": gamma, "activation": "relu" if number else "tanh"}
        (folder / "config.json").write_text(json.dumps(facts))
        result.append(folder.name)
        (root / "@last").unlink()
        (root / "@last").symlink_to(folder.name)
    return result


def test_settings_are_numbers_or_names_and_runs_are_trials(runs):
    found = Runs()
    assert choices(found)[0] == ("CartPole-v1:ppo, 4 trials, sweep-x", "group:sweep-x")
    assert choices(found)[1] == ("CartPole-v1-ppo-s1-tri3, 2026-01-04 00:00", runs[3])
    text = re.search(r'data-trials="([^"]*)"', compare_runs(found, ["group:sweep-x"], ["return"])[0])[1]
    data = json.loads(text.replace("&quot;", '"').replace("&#123;", "{").replace("&#125;", "}"))
    assert sorted(data["keys"]) == ["activation", "gamma"] and len(data["keys"]) <= MOST_KEYS
    place = data["keys"].index("gamma")
    assert {(run["numbers"][place], run["return"]) for run in data["runs"]} == {
        *zip(GAMMAS, (100, 101, 102, 103), strict=True)
    }
    assert [number_of(text) for text in ("0.001", "lin_3e-4", "tanh", "1e999", "[64,64]")] == [0.001, 3e-4] + [None] * 3
    assert trials(chosen(found, runs[:2])) == ""  # two settings are no picture


@pytest.mark.browser
def test_trials_are_drawn_and_read_on_a_phone(browser, served, runs):
    with opened(browser, served[1], 390) as page:
        page.tab("Compare")
        page.expect(page.all("#compared .trial-dot")).to_have_count(4)
        page.expect(page.all("#several")).to_contain_text("4 trials")
        page.expect(page.all("#compared")).not_to_contain_text("choose")
        page.all(".trials select").select_option("gamma")
        page.all("#compared .trial-dot").nth(0).hover()
        page.expect(page.all(".trial-said")).to_contain_text("gamma=0.9 ")
        page.expect(page.all("#compared .trial-line.chosen")).to_have_count(1)
        assert page.all("#compared .trials").bounding_box()["width"] <= 390
