"""Makes the tab Runs: the filter line, and the table of runs.

In the browser, runs.js opens the run of a clicked row, and filters.js writes the filter line and compares ticked rows.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from stride.inspector.charts import goal_text
from stride.inspector.markup import Markup, join, note, tag
from stride.inspector.runs import Page, middle
from stride.inspector.trials import count_text, is_search
from stride.runstore.run_brief import STATUSES, VERDICTS, Brief
from stride.runstore.run_dir import runs_root
from stride.runstore.run_names import STAMP
from stride.runstore.run_query import FIELDS, WORDS, Query
from stride.utils.places import TRAIN
from stride.utils.typography import duration, optional, score, short

HEADINGS = {  # key of a column -> its heading
    "run": "run", "status": "status", "result": "result", "started": "started", "took": "took", "seed": "seed",
    "steps": "steps", "speed": "steps/s", "last": "last", "best": "best", "test": "test", "group": "group", "id": "id",
}  # fmt: skip
MAX_CELL_LETTERS = 120  # characters of a cell
MAX_CHOICES = 40  # groups and seeds in a menu; any other can be typed
AGE_FILTERS = {  # term of the filter line -> its text in the menu
    "age<1h": "the last hour",
    "age<1d": "the last day",
    "age<7d": "the last week",
    "age<30d": "the last 30 days",
}
TOOK_FILTERS = {
    "took<1m": "under a minute",
    "took>=1m": "a minute or more",
    "took>=10m": "10 minutes or more",
    "took>=1h": "an hour or more",
    "took>=1d": "a day or more",
}
OF_TRAINING = "training return: there was no evaluation"


def filters() -> Markup:
    """Return the filter line and the menus that write into it (filters.js)."""
    line = tag("input", id="filter", class_="field", type="search", autocomplete="off", spellcheck="false",
               aria_label="filter", placeholder="words, seed:1-5, best>400")  # fmt: skip
    menus = [
        _menu("status", "any status", {f"status:{status}": status for status in STATUSES}),
        _menu("result", "any result", {f"result:{verdict.replace(' ', '-')}": verdict for verdict in VERDICTS}),
        _menu("age", "any date", AGE_FILTERS),
        _menu("took", "any duration", TOOK_FILTERS),
        _menu("seed", "any seed", {}),
        _menu("group", "any group", {}),
        _menu("by", "seeds grouped", {"by:run": "seeds separate"}),
    ]
    compare = tag("button", "Compare", id="compare-ticked", type="button", class_="button", disabled="")
    return tag("div", line, *menus, compare, class_="filters")


def _menu(column_key: str, default: str, choices: Mapping[str, str]) -> Markup:
    """Return a menu. `choices`: term of the filter line -> label; `default`: the label of no filter."""
    options = [tag("option", label, value=term) for term, label in {"": default, **choices}.items()]
    return tag("select", *options, class_="field", data_key=column_key, aria_label=column_key)


def runs_table(page: Page) -> Markup:
    """Return the table with its number of runs, or a note if no run matches."""
    if not page.items:
        return note(f"no runs in {runs_root()} match; start one: {TRAIN} CartPole-v1:ppo")
    head = tag("tr", tag("th", ""), *(_heading(column_key, page.query) for column_key in HEADINGS))
    body = []
    for members in page.items:
        if len(members) == 1:
            body.append(_row(members[0]))
        else:
            body += [_group_row(members), *(_row(run_brief, is_member=True) for run_brief in members)]
    table = tag("table", tag("thead", head), tag("tbody", *body))
    briefs = page.lines
    count = "1 run" if page.matching == 1 else f"{page.matching:,} runs"
    if len(briefs) < page.matching:
        count = f"{len(briefs):,} of {count}"
    seeds = sorted({run_brief.seed for run_brief in briefs if run_brief.seed is not None})[:MAX_CHOICES]
    groups = dict.fromkeys(run_brief.group for run_brief in briefs if run_brief.group and " " not in run_brief.group)
    group_names = join([*groups][:MAX_CHOICES], " ")
    box = tag("div", table, class_="scroll runs", data_seeds=join(seeds, " "), data_groups=group_names)
    return join([box, tag("p", count, class_="note count")])


def _heading(column_key: str, query: Query) -> Markup:
    """Return the heading of a column: a button that sorts by it, numbers from the highest; a second click reverses."""
    label = HEADINGS[column_key]
    attributes = {}
    if query.sort == column_key:
        label += " ↓" if query.descending else " ↑"
        attributes["aria_sort"] = "descending" if query.descending else "ascending"
    is_text = column_key in WORDS
    button = tag("button", label, type="button", class_="sort", data_sort=column_key if is_text else f"-{column_key}")
    return tag("th", button, class_="" if is_text else "number", **attributes)


def badge(status: str) -> Markup:
    """Return a run's status on the colour that inspector.css gives it."""
    return tag("span", brief_text(status), class_=f"badge {status}" if status in STATUSES else "badge")


def verdict_badge(verdict: str) -> Markup:
    """Return a verdict ("solved (20 episodes)") in the colour of its first part; nothing if it is none of VERDICTS."""
    result = verdict.partition(" (")[0]
    return tag("span", verdict, class_=f"verdict {result.replace(' ', '-')}") if result in VERDICTS else Markup("")


def run_label(run_id: str) -> tuple[str, str]:
    """Return (label, id) of a run in a menu.

    The label has what distinguishes the run first, then its date, because a narrow screen cuts the end."""
    stamp = STAMP.match(run_id)
    if not stamp:
        return run_id, run_id
    day, clock = stamp[0][:8], stamp[0][9:15]
    return f"{run_id[stamp.end() :]}, {day[:4]}-{day[4:6]}-{day[6:]} {clock[:2]}:{clock[2:4]}", run_id


def brief_text(text: str, longest: int = MAX_CELL_LETTERS) -> str:
    """Return a text, cut with an ellipsis to the length of a cell."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _row(run_brief: Brief, is_member: bool = False) -> Markup:
    """Return the row of one run; a member of a group is hidden until its group is opened."""
    problem = run_brief.fault or run_brief.reason
    why = tag("div", brief_text(problem), class_="why", title=problem) if problem else ""
    tail = run_brief.tail
    remark = "" if tail.evaluated else OF_TRAINING
    goal = f"goal {goal_text(run_brief.goal)}" if run_brief.goal is not None else ""
    cells = [
        tag("td", tag("input", type="checkbox", aria_label=f"compare {run_brief.id}")),
        tag("td", _name(run_brief), _which(run_brief), why),
        tag("td", badge(run_brief.status)),
        tag("td", verdict_badge(run_brief.verdict), title=goal),
        _started(run_brief.started),
        _number(optional(run_brief.took, duration)),
        _number(optional(run_brief.seed, str)),
        _number("" if tail.fault else f"{tail.steps:,}"),
        _number(optional(run_brief.speed, short)),
        _number(optional(tail.last, score), remark),
        _number(optional(tail.best, score), remark),
        _number(optional(run_brief.test, score), goal),
        tag("td", _short_name(run_brief.group), title=run_brief.group),
        tag("td", _short_name(run_brief.id), class_="id", title=run_brief.id),
    ]
    attributes = {"class_": "member", "data_group": run_brief.group, "hidden": ""} if is_member else {}
    return tag("tr", *cells, data_run=run_brief.id, **attributes)


def _name(run_brief: Brief, changes: str | None = None) -> Markup:
    """Return the variant, and below it the settings that were changed for the run; `changes`: show these instead."""
    text = run_brief.changes if changes is None else changes
    shown = join(brief_text(text).split("="), "=<wbr>")  # <wbr>: a narrow screen breaks the line here, not in a number
    below = tag("div", shown, class_="changes", title=text) if text else ""
    return join([tag("button", brief_text(run_brief.variant), class_="link", type="button"), below])


def _which(run_brief: Brief) -> Markup:
    """Return a line for narrow screens, which leave out most columns: seed, end of the id, status of an open run."""
    parts = [f"seed {run_brief.seed}" if run_brief.seed is not None else "", _short_name(run_brief.id)]
    parts.append("" if run_brief.result else run_brief.status)
    return tag("div", join(filter(None, parts), " · "), class_="which")


def _group_row(members: Sequence[Brief]) -> Markup:
    """Return the row of a group, with the interquartile means of its runs' numbers."""
    first = members[0]
    count = len(members)
    title = f"interquartile mean of {count} runs"
    name = _name(first, "" if is_search(members) else first.changes)

    def middle_cell(column_key: str, style: Callable[[float], str]) -> Markup:
        value = middle([FIELDS[column_key](run_brief) for run_brief in members])
        return _number(style(value) if isinstance(value, float) else "", title)

    statuses = []
    for status, number in Counter(run_brief.status for run_brief in members).most_common():
        statuses += [badge(status), f" {number} " if number < count else " "]
    verdicts = []
    for verdict, number in Counter(run_brief.verdict for run_brief in members if run_brief.result).most_common():
        verdicts.append(tag("div", verdict_badge(verdict), " ", tag("span", f"{number} of {count}", class_="share")))
    last_start = max(run_brief.started or 0.0 for run_brief in members)
    fold = tag("button", "▸", class_="fold", type="button", aria_label="show its runs", aria_expanded="false")
    cells = [
        tag("td", tag("input", type="checkbox", aria_label=f"compare all of {first.group}")),
        tag("td", fold, name, f" {count_text(members)}"),
        tag("td", *statuses),
        tag("td", *verdicts),
        _started(last_start or None),
        middle_cell("took", duration),
        _number(_seed_range(sorted({run_brief.seed for run_brief in members if run_brief.seed is not None}))),
        middle_cell("steps", "{:,.0f}".format),
        middle_cell("speed", short),
        *(middle_cell(column_key, score) for column_key in ("last", "best", "test")),
        tag("td", _short_name(first.group), title=first.group),
        tag("td", ""),
    ]
    return tag("tr", *cells, data_fold=first.group, class_="grouped")


def _seed_range(seeds: Sequence[int]) -> str:
    """Return seeds as text: "1–5", or "1, 3, 9"."""
    if len(seeds) > 1 and max(seeds) - min(seeds) == len(seeds) - 1:
        return f"{min(seeds)}–{max(seeds)}"
    return brief_text(", ".join(map(str, seeds)), 12)


def _started(seconds: float | None) -> Markup:
    """Return the cell with the start of a run, which the browser shows as an age and updates itself."""
    if seconds is None:
        return tag("td", "")
    text = moment(seconds)
    return tag("td", tag("time", text, data_at=f"{seconds:.0f}", title=text), class_="number")


def moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _number(text: str, title: str = "") -> Markup:
    return tag("td", text, class_="number of-training" if title == OF_TRAINING else "number", title=title)


def _short_name(name: str) -> str:
    """Return the last part of a name that Stride made (it begins with a date); a user's own name completely."""
    return name.rpartition("-")[2] if name[:8].isdigit() and "-" in name else brief_text(name, 24)
