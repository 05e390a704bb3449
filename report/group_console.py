"""The watcher that prints a group for a person: a live line per seed on a terminal, plain lines in a pipe.

With --quiet it prints results only. It reads the runs' files through the index, twice a second; trainings do not know
about it. group_rows.py draws the lines.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from rich import console as rich_console
from rich.text import Text

from stride.report.console import standard_output
from stride.report.group import caution, read_group, seed_of, together
from stride.report.group_rows import ENDED, SeedRow, group_page, plain_progress, table
from stride.report.in_place import InPlace
from stride.report.terminal import Page
from stride.runstore.run_dir import RunDir, runs_root
from stride.runstore.run_files import exists
from stride.runstore.run_index import RunIndex
from stride.runstore.seed_group import Ending, SeedJob, Standing, Watcher
from stride.utils.places import PLAY, TRAIN
from stride.utils.user_error import UserError

LOOK_SECONDS = 0.5  # between two looks at the files
LINE_SECONDS = 30.0  # between two plain lines
TIMESTAMP = len("20260101-000000")  # names of runs and groups begin with so many characters for the time of their start


class GroupConsole(Watcher):
    """Prints the progress of a group and its results, in the order of seeds, not of their ends."""

    def __init__(
        self,
        quiet: bool = False,
        terminal: rich_console.Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._quiet = quiet
        self._clock = clock
        self._terminal = terminal or standard_output()
        self._in_place = InPlace(self._terminal) if self._terminal.is_interactive and not quiet else None
        self._rows: list[SeedRow] = []
        self._printed = 0  # results printed so far; in the order of seeds
        self._index = RunIndex()

    def begin(self, group: str, jobs: Sequence[SeedJob], workers: int) -> None:
        self._group = group
        self._jobs = jobs
        self._workers = workers
        self._rows = [SeedRow(job.seed, job.label) for job in jobs]
        self._start_time = self._clock()
        self._look_time = self._start_time
        self._header = f"  group {group}: every run is finished"
        if jobs:
            unit = "run" if any(job.label for job in jobs) else "seed"
            at_once = f"{workers} at a time" if workers < len(jobs) else "all at once"
            self._header = f"  group {group}: {len(jobs)} {unit}{'s' * (len(jobs) > 1)}, {at_once}"
        if not self._quiet:
            self._print("")
            if not self._in_place or not jobs:
                self._print(self._header, "")
        self._draw()

    def began(self, index: int) -> None:
        seed_row = self._rows[index]
        seed_row.state = "starting"
        seed_row.started = self._clock()
        seed_row.run = self._jobs[index].run

    def look(self) -> None:
        now = self._clock()
        if self._quiet or now - self._look_time < (LOOK_SECONDS if self._in_place else LINE_SECONDS):
            return
        self._look_time = now
        self._refresh()
        self._draw()
        if not self._in_place:
            self._print(plain_progress(self._rows, self._workers, now - self._start_time))

    def ended(self, index: int, code: int, text_line: str) -> None:
        seed_row = self._rows[index]
        if self._in_place and seed_row.run is None:
            self._find_runs()  # the run ended before the first look
        seed_row.seconds = self._clock() - seed_row.started
        seed_row.line = text_line
        seed_row.state = "trained"
        if code:
            seed_row.state = "stopped" if code > 128 else "failed"
        if self._in_place:
            self._refresh()
            _judge(seed_row)
            self._draw()
            return
        while self._printed < len(self._rows) and self._rows[self._printed].ended:
            self._print_result(self._rows[self._printed])
            self._printed += 1

    def end(self, group: str, ending: Ending | None) -> None:
        if self._in_place:
            self._in_place.erase()
        if ending is None:
            return
        result = read_group(group)
        if self._in_place and self._jobs:
            self._print(self._header, "")
        if self._in_place:
            self._print_table()
        else:
            for seed_row in self._rows[self._printed :]:  # results not printed yet, as an earlier seed did not end
                if seed_row.ended:
                    self._print_result(seed_row)
        if not self._quiet and self._jobs:
            self._print("")
        parts = result.parts
        summary = [*filter(None, (together(result), caution(len(result.tested))))]
        if len(parts) > 1:
            self._print(*(f"  {part.label}: {together(part)}" for part in parts), breakable=True)
            summary = [f"{len(result.seeds)} runs of {len(parts)} variants"]
        report = result.folder / "report.md"
        report_path = os.path.relpath(report) if exists(report) else ""
        if self._quiet:
            self._print(f"group {group}: {'; '.join(summary)}  {report_path}".rstrip())
        else:
            self._print(*(f"  {text_line}" for text_line in summary), breakable=True)
            if report_path:
                self._print(f"  report    {report_path}")
        if ending.unfinished:
            why = f"stopped by {ending.stopped_by}, " if ending.stopped_by else ""
            self._print(f"  {why}{ending.unfinished} of {ending.jobs} unfinished")
            self._print(f"  continue: {TRAIN} --resume group:{group}")
        elif not self._quiet:
            self._print(f"  compare   {PLAY} --run-id group:{group}", f"  group {group}", "")

    def _print_table(self) -> None:
        """Print the final table, and below it why seeds failed."""
        for seed_row in self._rows:
            if seed_row.state == "waiting":
                seed_row.state = "not begun"
        page = Page(self._terminal.size.width - 1, 1 + len(self._rows), self._terminal.options.ascii_only)
        if self._rows:
            for text_line in table(self._rows, page, reasons=False):
                self._terminal.print(text_line, no_wrap=True, overflow="crop", highlight=False)
        for seed_row in self._rows:
            if seed_row.why:
                self._print(f"  {seed_row.label or 'seed'} {seed_row.seed}: {seed_row.why}", breakable=True)

    def _print_result(self, seed_row: SeedRow) -> None:
        self._print(f"  {seed_row.label or 'seed'} {seed_row.seed:>3}  {seed_row.line}")

    def _refresh(self) -> None:
        """Read the files that changed."""
        if any(seed_row.state == "starting" for seed_row in self._rows):
            self._find_runs()
        for seed_row in self._rows:
            if seed_row.run:
                seed_row.update(self._index.brief(seed_row.run.id))

    def _find_runs(self) -> None:
        """Find the folders of runs that started since the last look."""
        for run_id in self._index.ids():
            if run_id[:TIMESTAMP] < self._group[:TIMESTAMP]:  # older than the group
                continue
            brief = self._index.brief(run_id)
            run = RunDir(runs_root() / run_id)
            for seed_row, job in zip(self._rows, self._jobs, strict=True):
                if not seed_row.ended and job.is_of(run, self._group, {"group": brief.group, "seed": brief.seed}):
                    seed_row.run = run

    def _draw(self) -> None:
        if self._in_place and self._rows:
            size = self._terminal.size
            page = Page(size.width - 1, size.height - 4, self._terminal.options.ascii_only)
            lines = group_page(self._rows, self._workers, self._clock() - self._start_time, page)
            self._in_place.draw([Text(self._header), Text(), *lines])

    def _print(self, *lines: str, breakable: bool = False) -> None:
        """Print lines. `breakable`: wrap them between words; others stay whole, so that commands can be copied."""
        is_plain = self._terminal.options.ascii_only or not self._terminal.is_terminal
        for text_line in lines:
            text = Text(text_line.replace("±", "+-") if is_plain else text_line)
            self._terminal.print(text, soft_wrap=is_plain or not breakable, highlight=False)


def _judge(seed_row: SeedRow) -> None:
    """Set the result of a row that ended, from the config.json of its run."""
    if seed_row.run is None:
        seed_row.why = seed_row.line
        return
    facts: Mapping[str, object] = {}
    with suppress(UserError):  # a damaged run does not end the group
        facts = seed_row.run.facts()
    seed = seed_of(Standing(seed_row.seed, seed_row.run, facts))
    seed_row.state = seed.verdict if seed.verdict in ENDED else "failed"
    seed_row.test = seed.mean
    seed_row.episodes = seed.episodes
    if seed_row.state == "failed":
        seed_row.why = seed.why if seed.verdict == "failed" else seed_row.line
