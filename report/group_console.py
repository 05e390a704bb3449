"""The watcher a person looks at: a live line per seed on a terminal, calm lines in a pipe, only results when quiet.

It reads what the runs write into their own folders, twice a second; the trainings know nothing of it. When to draw is
decided here, what it looks like in group_rows.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence

from rich import console as rich_console
from rich.text import Text

from stride.report.console import standard_output
from stride.report.group import caution, read_group, seed_of, together
from stride.report.group_rows import ENDED, Row, page_of, plain_progress, table
from stride.report.in_place import InPlace
from stride.report.terminal import Page
from stride.runstore.run_dir import ID, RunDir, runs_root
from stride.runstore.run_files import exists, list_names
from stride.runstore.seed_group import Ending, SeedJob, Standing, Watcher
from stride.utils.places import PLAY, TRAIN
from stride.utils.user_error import UserError

LOOK_SECONDS = 0.5  # between two looks at the files
LINE_SECONDS = 30.0  # between two plain lines
FIRST_WORD = len("20260101-000000")  # of a run's name and of a group's: the time it was begun


class GroupConsole(Watcher):
    """Tells results in the order of seeds, whichever ends first."""

    def __init__(
        self,
        quiet: bool = False,
        terminal: rich_console.Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._quiet, self._clock = quiet, clock
        self._terminal = terminal or standard_output()
        self._in_place = InPlace(self._terminal) if self._terminal.is_interactive and not quiet else None
        self._rows: list[Row] = []
        self._told = 0  # results that are told, in the order of seeds
        self._known: set[str] = set()  # folders of runs that were looked at

    def begin(self, group: str, jobs: Sequence[SeedJob], workers: int) -> None:
        self._group, self._jobs, self._workers = group, jobs, workers
        self._rows = [Row(job.seed, job.label) for job in jobs]
        self._began = self._looked = self._clock()
        at_once = f"{workers} at a time" if workers < len(jobs) else "all at once"
        what = "run" if any(job.label for job in jobs) else "seed"
        seeds = f"{len(jobs)} {what}{'s' if len(jobs) > 1 else ''}, {at_once}" if jobs else "every run is finished"
        self._header = f"  group {group}: {seeds}"
        if not self._quiet:
            self._print("", *([] if self._in_place and jobs else [self._header, ""]))
        self._draw()

    def began(self, index: int) -> None:
        row = self._rows[index]
        row.state, row.started = "starting", self._clock()
        if run := self._jobs[index].run:
            row.follow(run, _facts(run))
            self._known.add(run.id)

    def look(self) -> None:
        now = self._clock()
        if self._quiet or now - self._looked < (LOOK_SECONDS if self._in_place else LINE_SECONDS):
            return
        self._looked = now
        self._refresh()
        self._draw()
        if not self._in_place:
            self._print(plain_progress(self._rows, self._workers, now - self._began))

    def ended(self, index: int, code: int, line: str) -> None:
        row = self._rows[index]
        if self._in_place and row.run is None:
            self._find()  # quicker than a look
        row.seconds = self._clock() - row.started
        row.state, row.line = "stopped" if code > 128 else "failed" if code else "trained", line
        if self._in_place:
            self._refresh()
            _judge(row)
            self._draw()
        else:
            self._tell_in_order()

    def end(self, group: str, ending: Ending | None) -> None:
        if self._in_place:
            self._in_place.erase()
        if ending is None:
            return
        found = read_group(group)
        if self._in_place and self._jobs:
            self._print(self._header, "")
        self._tell_all()
        if not self._quiet and self._jobs:
            self._print("")
        report = found.folder / "report.md"
        where = os.path.relpath(report) if exists(report) else ""
        parts, told = found.parts, [together(found), *filter(None, [caution(len(found.tested))])]
        if len(parts) > 1:
            self._print(*(f"  {part.label}: {together(part)}" for part in parts), whole=False)
            told = [f"{len(found.seeds)} runs of {len(parts)} variants"]
        if self._quiet:
            self._print("  ".join(filter(None, [f"group {group}: {'; '.join(told)}", where])))
        else:
            for line in told:
                self._print(f"  {line}", whole=False)
            self._print(*([f"  report    {where}"] if where else []))
        if ending.unfinished:
            why = f"stopped by {ending.stopped_by}, " if ending.stopped_by else ""
            self._print(f"  {why}{ending.unfinished} of {ending.jobs} unfinished")
            self._print(f"  continue: {TRAIN} --resume group:{group}")
        elif not self._quiet:
            self._print(f"  compare   {PLAY} --run-id group:{group}", f"  group {group}", "")

    def _tell_in_order(self) -> None:
        for row in self._rows[self._told :]:
            if not row.ended:
                break
            self._say(row)
            self._told += 1

    def _tell_all(self) -> None:
        """The table as it stands at the end, or the results that waited for a seed before them."""
        if self._in_place:
            for row in self._rows:
                row.state = "not begun" if row.state == "waiting" else row.state
            page = Page(self._terminal.size.width - 1, 1 + len(self._rows), self._terminal.options.ascii_only)
            for line in table(self._rows, page, reasons=False) if self._rows else []:
                self._terminal.print(line, no_wrap=True, overflow="crop", highlight=False)
            for row in self._rows:
                self._print(*([f"  {row.label or 'seed'} {row.seed}: {row.why}"] if row.why else []), whole=False)
            return
        for row in self._rows[self._told :]:
            if row.ended:
                self._say(row)

    def _say(self, row: Row) -> None:
        self._print(f"  {row.label or 'seed'} {row.seed:>3}  {row.line}")

    def _refresh(self) -> None:
        """What the files say by now."""
        if any(row.state == "starting" for row in self._rows):
            self._find()
        for row in self._rows:
            row.refresh()

    def _find(self) -> None:
        """The folders of runs that have begun since the last look."""
        root = runs_root()
        for name in list_names(root.resolve()):
            if name in self._known or name[:FIRST_WORD] < self._group[:FIRST_WORD] or not ID.fullmatch(name):
                continue
            run = RunDir(root / name)
            facts = _facts(run)
            if facts:
                self._known.add(name)
            for row, job in zip(self._rows, self._jobs, strict=True):
                if not row.ended and job.is_of(run, self._group, facts):
                    row.follow(run, facts)

    def _draw(self) -> None:
        if self._in_place and self._rows:
            size = self._terminal.size
            page = Page(size.width - 1, size.height - 4, self._terminal.options.ascii_only)
            lines = page_of(self._rows, self._workers, self._clock() - self._began, page)
            self._in_place.draw([Text(self._header), Text(), *lines])

    def _print(self, *lines: str, whole: bool = True) -> None:
        """`whole`: a terminal may break words, as commands are copied; else lines are broken between words."""
        plain = self._terminal.options.ascii_only or not self._terminal.is_terminal
        for line in lines:
            words = Text(line.replace("±", "+-") if plain else line)
            self._terminal.print(words, soft_wrap=whole or plain, highlight=False)


def _facts(run: RunDir) -> Mapping[str, object]:
    """config.json; {} of what is no run, or still being made: a display ends no group."""
    try:
        return run.facts()
    except UserError:
        return {}


def _judge(row: Row) -> None:
    """The row of one that ended, as its config.json tells it."""
    if row.run is None:
        row.why = row.line
        return
    seed = seed_of(Standing(row.seed, row.run, _facts(row.run)))
    row.state, row.test = seed.verdict if seed.verdict in ENDED else "failed", seed.mean
    row.episodes = seed.episodes
    if row.state == "failed":
        row.why = seed.why if seed.verdict == "failed" else row.line
