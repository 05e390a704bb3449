"""The table of runs: a row is a button, checked rows are compared (runs.js)."""

from functools import lru_cache

from inspector.charts import bound
from inspector.markup import Markup, join, note, safe, tag
from inspector.runs import Brief, Page
from report.typography import score
from utils.run_dir import runs_root

HEAD = ("", "run", "status", "variant", "steps", "best", "last", "goal")
BADGES = ("live", "silent", "died", "failed", "damaged")
LONGEST = 120  # characters of a cell
ROWS = 6000  # that are kept as they were made


def runs_table(page: Page) -> Markup:
    """The whole room."""
    if not page.lines:
        return note(f"no run under {runs_root()} that matches; python train.py CartPole-v1:ppo makes one")
    head = tag("tr", *(tag("th", cell) for cell in HEAD))
    table = tag("table", tag("thead", head), tag("tbody", *(_row(line) for line in page.lines)))
    shown, matching = len(page.lines), page.matching
    count = f"{shown:,} of {matching:,} runs, the newest first" if shown < matching else f"{matching:,} runs"
    foot = tag("p", count if matching != 1 else "1 run", class_="note count")
    return join([tag("div", table, class_="scroll runs"), foot])


def badge(status: str) -> Markup:
    return tag("span", brief(status), class_=f"badge {status}" if status in BADGES else "badge")


def brief(text: str) -> str:
    """Of a length that a cell has room for."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


@lru_cache(maxsize=ROWS)
def _row(line: Brief) -> Markup:
    steps, best, last, wrong = line.tail
    reached = "met" if line.goal is not None and best is not None and best >= line.goal else ""
    box = Markup(f'<input type="checkbox" aria-label="compare {safe(line.id)}">')
    wrong_with = line.fault or line.failure
    why = tag("div", brief(wrong_with), class_="why", title=wrong_with) if wrong_with else ""
    cells = [
        tag("td", box),
        tag("td", tag("button", line.id, class_="link", type="button"), why),
        tag("td", badge(line.status)),
        tag("td", brief(line.variant)),
        tag("td", "" if wrong else f"{steps:,}", class_="number"),
        tag("td", "" if best is None else score(best), class_=f"number {reached}"),
        tag("td", "" if last is None else score(last), class_="number"),
        tag("td", bound(line.goal), class_="number"),
    ]
    return tag("tr", *cells, data_run=line.id)
