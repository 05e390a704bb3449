"""The table of runs and the line of words above it: a row is a button, ticked rows are compared (runs.js)."""

import time
from collections.abc import Sequence
from functools import lru_cache

from stride.inspector.charts import bound
from stride.inspector.markup import Markup, join, note, tag
from stride.inspector.middle import middle
from stride.inspector.runs import Page
from stride.runstore.run_brief import STATUSES, VERDICTS, Brief
from stride.runstore.run_dir import runs_root
from stride.runstore.run_query import FIELDS, WORDS, Query
from stride.utils.places import TRAIN
from stride.utils.typography import duration, score, short

HEAD = {"run": "run", "status": "status", "result": "result", "started": "started", "took": "took", "seed": "seed",
        "steps": "steps", "speed": "steps/s", "last": "last", "best": "best", "test": "test", "group": "group",
        "id": "id"}  # fmt: skip
LONGEST = 120  # characters of a cell
ROWS = 6000  # that are kept as they were made
MOST_CHOICES = 40  # groups to choose from; any other can be typed
AGES = {"age<1h": "the last hour", "age<1d": "the last day", "age<7d": "the last week", "age<30d": "the last 30 days"}
TIMES = {"took<1m": "under a minute", "took>=1m": "a minute or more", "took>=10m": "10 minutes or more",
         "took>=1h": "an hour or more", "took>=1d": "a day or more"}  # fmt: skip


def filters() -> Markup:
    """The line of words and menus that write into it (filters.js)."""
    line = tag("input", id="filter", class_="field", type="search", autocomplete="off", spellcheck="false",
               aria_label="filter", placeholder="words, seed:1-5, best>400")  # fmt: skip
    menus = [
        _menu("status", "any status", {f"status:{each}": each for each in STATUSES}),
        _menu("result", "any result", {f"result:{each.replace(' ', '-')}": each for each in VERDICTS}),
        _menu("age", "any date", AGES),
        _menu("took", "any duration", TIMES),
        _menu("seed", "any seed", {}),
        _menu("group", "any group", {}),
        _menu("by", "seeds grouped", {"by:run": "seeds apart"}),
    ]
    compare = tag("button", "Compare", id="compare-ticked", type="button", class_="button", disabled="")
    return tag("div", line, *menus, compare, class_="filters")


def _menu(key: str, rest: str, choices: dict[str, str]) -> Markup:
    options = [tag("option", rest, value=""), *(tag("option", name, value=term) for term, name in choices.items())]
    return tag("select", *options, class_="field", data_key=key, aria_label=key)


def runs_table(page: Page) -> Markup:
    """The whole room."""
    if not page.items:
        return note(f"no run under {runs_root()} that matches; {TRAIN} CartPole-v1:ppo makes one")
    head = tag("tr", tag("th", ""), *(_heading(key, page.query) for key in HEAD))
    rows = [row for members in page.items for row in _rows(tuple(members))]
    table = tag("table", tag("thead", head), tag("tbody", *rows))
    shown, matching = len(page.lines), page.matching
    count = f"{shown:,} of {matching:,} runs" if shown < matching else f"{matching:,} runs"
    foot = tag("p", count if matching != 1 else "1 run", class_="note count")
    seeds = sorted({line.seed for line in page.lines if line.seed is not None})[:MOST_CHOICES]
    groups = [*dict.fromkeys(line.group for line in page.lines if line.group and " " not in line.group)][:MOST_CHOICES]
    box = tag("div", table, class_="scroll runs", data_seeds=join(seeds, " "), data_groups=join(groups, " "))
    return join([box, foot])


def _heading(key: str, query: Query) -> Markup:
    """A press sorts by it, the next one the other way round; numbers begin with the highest."""
    words, order = {"class_": "" if key in WORDS else "number"}, ""
    if query.sort == key:
        words["aria_sort"], order = ("descending", " ↓") if query.descending else ("ascending", " ↑")
    first = key if key in WORDS else f"-{key}"
    return tag("th", tag("button", HEAD[key] + order, type="button", class_="sort", data_sort=first), **words)


def badge(status: str) -> Markup:
    return tag("span", brief(status), class_=f"badge {status}" if status in STATUSES else "badge")


def verdict_badge(words: str) -> Markup:
    """Of a verdict as people see it, whose colour the number of its test's episodes does not change."""
    result = words.partition(" (")[0]
    return tag("span", words, class_=f"verdict {result.replace(' ', '-')}") if result in VERDICTS else Markup("")


def brief(text: str, longest: int = LONGEST) -> str:
    """Of a length that a cell has room for."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


@lru_cache(maxsize=ROWS)
def _rows(members: tuple[Brief, ...]) -> tuple[Markup, ...]:
    if len(members) == 1:
        return (_row(members[0]),)
    return _group_row(members), *(_row(line, member=True) for line in members)


def _row(line: Brief, member: bool = False) -> Markup:
    box = tag("input", type="checkbox", aria_label=f"compare {line.id}")
    told = line.fault or line.reason
    why = tag("div", brief(told), class_="why", title=told) if told else ""
    tail = line.tail
    own = "" if tail.evaluated else "of training: nothing was evaluated"
    goal = f"goal {bound(line.goal)}" if line.goal is not None else ""
    cells = [
        tag("td", box),
        tag("td", tag("button", brief(line.variant), class_="link", type="button"), why),
        tag("td", badge(line.status)),
        tag("td", verdict_badge(line.verdict), title=goal),
        _started(line.started),
        _number("" if line.took is None else duration(line.took)),
        _number("" if line.seed is None else str(line.seed)),
        _number("" if tail.fault else f"{tail.steps:,}"),
        _number("" if line.speed is None else short(line.speed)),
        _number(_score(tail.last), own),
        _number(_score(tail.best), own),
        _number(_score(line.test), goal),
        tag("td", _tail_of(line.group), title=line.group),
        tag("td", _tail_of(line.id), class_="id", title=line.id),
    ]
    apart = {"class_": "member", "data_group": line.group, "hidden": ""} if member else {}
    return tag("tr", *cells, data_run=line.id, **apart)


def _group_row(members: Sequence[Brief]) -> Markup:
    """Seeds of a command as one: what most of them have in common, and the middle of their numbers."""
    first, about = members[0], f"interquartile mean of {len(members)} runs"
    box = tag("input", type="checkbox", aria_label=f"compare all of {first.group}")
    states = _counted([line.status for line in members])
    results = _counted([line.verdict for line in members if line.result])
    started = max((line.started for line in members if line.started is not None), default=None)
    shown = {key: middle([FIELDS[key](line) for line in members]) for key in ("took", "steps", "speed", *SCORES)}
    texts = {key: value if isinstance(value, float) else None for key, value in shown.items()}
    took, steps, speed = texts["took"], texts["steps"], texts["speed"]
    name = tag("button", "▸", class_="fold", type="button", aria_label="show its runs", aria_expanded="false")
    cells = [
        tag("td", box),
        tag("td", name, tag("button", brief(first.variant), class_="link", type="button"), f" {len(members)} seeds"),
        tag("td", *(join([badge(state), f" {n} " if n < len(members) else " "]) for state, n in states.items())),
        tag("td", *(join([verdict_badge(each), f" {n} of {len(members)} "]) for each, n in results.items())),
        _started(started),
        _number("" if took is None else duration(took), about),
        _number(_seeds([line.seed for line in members if line.seed is not None])),
        _number("" if steps is None else f"{steps:,.0f}", about),
        _number("" if speed is None else short(speed), about),
        *(_number(_score(texts[key]), about) for key in SCORES),
        tag("td", _tail_of(first.group), title=first.group),
        tag("td", ""),
    ]
    return tag("tr", *cells, data_fold=first.group, class_="grouped")


SCORES = ("last", "best", "test")


def _counted(words: Sequence[str]) -> dict[str, int]:
    return {word: words.count(word) for word in sorted(set(words), key=lambda word: -words.count(word))}


def _seeds(seeds: Sequence[int]) -> str:
    low, high = min(seeds, default=0), max(seeds, default=0)
    return f"{low}–{high}" if high - low == len(seeds) - 1 and len(seeds) > 1 else brief(", ".join(map(str, seeds)), 12)


def _started(at: float | None) -> Markup:
    """The page makes an age of it, which goes on without us."""
    if at is None:
        return tag("td", "")
    return tag("td", tag("time", moment(at), data_at=f"{at:.0f}", title=moment(at)), class_="number")


def moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def _number(text: str, title: str = "") -> Markup:
    kind = "number of-training" if title.startswith("of training") else "number"
    return tag("td", text, class_=kind, **({"title": title} if title else {}))


def _score(value: float | None) -> str:
    return "" if value is None else score(value)


def _tail_of(name: str) -> str:
    """The letters that tell one from another; a name by hand is told whole."""
    return name.rpartition("-")[2] if name[:8].isdigit() and "-" in name else brief(name, 24)
