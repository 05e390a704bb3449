"""The monitor (`stride monitor`): what it reads and when, and what each key does.

run_page.py and runs_page.py draw its two screens: one run, and the list of all runs.
"""

import time
from pathlib import Path

from rich.text import Text

from stride.report.monitor.band import band_text
from stride.report.monitor.machine import Machine
from stride.report.monitor.run_list import SORTS, Line, RunList, list_lines
from stride.report.monitor.run_page import SORTS as METRIC_SORTS
from stride.report.monitor.run_page import RunScreen, run_page
from stride.report.monitor.runs_page import runs_page
from stride.report.monitor.screen import Screen
from stride.report.monitor.watched_run import WatchedRun
from stride.report.terminal import Page, line_of
from stride.runstore.run_dir import runs_root

LOOK_SECONDS = 1.0  # between two readings of the files; a key is answered at once
SECOND_LOOK_SECONDS = 0.1  # after the first reading, which leaves out what is slow
LIST_SECONDS = 2.0  # between two readings of the list of all runs
KEYS = {"run": "q quit  p freeze  ←→ live runs  ↑↓ scroll  m all runs  s sort by",
        "runs": "q quit  p freeze  ↑↓ choose  enter open  m one run  s sort by"}  # fmt: skip
SHORT_KEYS = {"run": "q quit p freeze ←→ runs ↑↓ m all s by", "runs": "q quit p freeze ↑↓ enter m one s by"}
NARROW_WIDTH = 76  # columns; narrower screens show SHORT_KEYS
LIST_STEPS = {"up": -1, "down": 1}  # lines that an arrow key moves in a list


class Monitor:
    """The state of the monitor: call `look` to read files, `page` to draw, `press` for each key."""

    def __init__(self, folder: Path | None, group: str = "") -> None:
        """`folder`: the run to show first, None for the list of runs. `group`: the group that is open in the list."""
        self.mode = "run" if folder else "runs"
        self.frozen = False
        self.sorts = {"run": [*METRIC_SORTS], "runs": [*SORTS]}  # orders of lines; the first one is the present one
        self._list = RunList()
        self._list_time = -LIST_SECONDS
        self._watched = WatchedRun(folder) if folder else None
        self._machine = Machine()
        self._screen: RunScreen | None = None
        self._first_metric = 0  # index of the metric in the table's first line
        self._selected = 0  # index of the selected line of the list
        self._open_groups = {group} if group else set[str]()
        self._group_to_select = group
        self._looks = 0

    @property
    def is_new(self) -> bool:
        """Whether the next look adds what the first left out because it is slow."""
        return self._looks < 2 and not self.frozen

    def look(self) -> None:
        """Read everything that the next screen shows, unless it is frozen; the first time only what is quick."""
        if self.frozen:
            return
        if self.mode == "runs" or self._looks:
            self._look_at_all()
        if self.mode == "run":
            self._look_at_one()
        self._looks += 1

    def _look_at_one(self) -> None:
        if self._watched is None:
            return
        is_first = self._looks == 0
        view = self._watched.refresh(with_alerts=not is_first)
        use = self._machine.look(view.pid) if view.pid else None
        gpus = [] if is_first or view.is_over else self._machine.gpus()
        self._screen = RunScreen(view, self._watched.points, band_text(view), use, gpus)

    def _look_at_all(self) -> None:
        now = time.monotonic()
        if now - self._list_time >= LIST_SECONDS:
            self._list.refresh()
            self._list_time = now
        if self._group_to_select:  # the group given at the start
            self._select(self._group_to_select)
            self._group_to_select = ""

    @property
    def _lines(self) -> list[Line]:
        return list_lines(self._list.rows(self.sorts["runs"][0]), self._open_groups)

    def _select(self, name: str) -> None:
        """Select the line of this group or run, if it is in the list."""
        for index, (list_row, run) in enumerate(self._lines):
            if name == (run.id if run else list_row.name):
                self._selected = index
                break

    def page(self, page: Page) -> list[Text]:
        """Draw the present screen in exactly `page.height` lines, the last one with the keys."""
        keys = f" {(KEYS if page.width >= NARROW_WIDTH else SHORT_KEYS)[self.mode]} {self.sorts[self.mode][0]}"
        if page.ascii_only:
            keys = keys.replace("←→", "<>").replace("↑↓", "^v")
        height = page.height - 1
        screen_lines = self._content(page._replace(height=height))[:height]
        screen_lines += [line_of() for _ in range(height - len(screen_lines))]
        screen_lines.append(line_of(keys, "dim"))
        for line in screen_lines:
            line.truncate(page.width)
        return screen_lines

    def _content(self, page: Page) -> list[Text]:
        """Draw everything but the line of keys."""
        if self.mode == "runs":
            screen_lines = self._lines
            self._selected = max(0, min(self._selected, len(screen_lines) - 1))
            return runs_page(screen_lines, self._selected, self._open_groups, page)
        assert self._screen is not None
        view = self._screen.view
        training = self._list.training_ids()
        position = ""
        if view.id in training and len(training) > 1:
            position = f"{training.index(view.id) + 1} of {len(training)} live"
        sort = self.sorts["run"][0]
        screen = self._screen._replace(sort=sort, first=self._first_metric, position=position, frozen=self.frozen)
        self._first_metric = min(self._first_metric, max(0, len(view.values) - 1))
        return run_page(screen, page)

    def press(self, pressed_key: str) -> bool:
        """React to a key; return False if the monitor is to end. "" is no key."""
        if pressed_key == "q":
            return False
        if pressed_key == "p":
            self.frozen = not self.frozen
        elif pressed_key == "s":
            sorts = self.sorts[self.mode]
            sorts.append(sorts.pop(0))
        elif pressed_key == "m":
            self._change_mode()
        elif self.mode == "runs":
            self._selected = max(0, min(self._selected + LIST_STEPS.get(pressed_key, 0), len(self._lines) - 1))
            if pressed_key in ("enter", "right", "left"):
                self._enter(pressed_key)
        elif pressed_key in LIST_STEPS:
            self._first_metric = max(0, self._first_metric + LIST_STEPS[pressed_key])
        elif pressed_key in ("left", "right"):
            self._switch(1 if pressed_key == "right" else -1)
        return True

    def _change_mode(self) -> None:
        """Switch between the screen of a run and the list of runs."""
        if self.mode == "run":
            self.mode = "runs"
            self._list_time = -LIST_SECONDS
            self._look_at_all()
            if self._watched:
                self._select(self._watched.run.id)
        elif self._watched:
            self.mode = "run"
            self._look_at_one()
        else:
            self._enter("enter")

    def _switch(self, step: int) -> None:
        """Show the next run in training (or the previous one, for step -1); from a run that ended, the newest."""
        self._look_at_all()
        training = self._list.training_ids()
        run_id = self._watched.run.id if self._watched else ""
        if training and training != [run_id]:
            index = (training.index(run_id) + step) % len(training) if run_id in training else 0
            self._watch(runs_root() / training[index])

    def _enter(self, pressed_key: str) -> None:
        """React to enter, right or left in the list: open or close the selected group, or show the selected run."""
        screen_lines = self._lines
        if not screen_lines:
            return
        list_row, run = screen_lines[self._selected]
        if run is None or (pressed_key == "left" and list_row.is_group):
            is_open = list_row.name in self._open_groups
            if pressed_key == "right" or (pressed_key == "enter" and not is_open):
                self._open_groups.add(list_row.name)
            else:
                self._open_groups.discard(list_row.name)
                self._select(list_row.name)
        elif pressed_key != "left":
            self._watch(runs_root() / run.id)
            self.mode = "run"

    def _watch(self, folder: Path) -> None:
        """Show another run, even while the display is frozen."""
        if self._watched:
            self._watched.close()
        self._watched = WatchedRun(folder)
        self._first_metric = 0
        self._look_at_one()


def run(monitor: Monitor, interval: float = LOOK_SECONDS) -> int:
    """Draw and react to keys until q is pressed."""
    with Screen() as screen:
        next_look = 0.0
        while True:
            now = time.monotonic()
            if now >= next_look:
                monitor.look()
                next_look = now + interval
            screen.draw(monitor.page(screen.page))
            if monitor.is_new:
                next_look = now + SECOND_LOOK_SECONDS
            pressed_key = screen.key(next_look - time.monotonic())
            if not monitor.press(pressed_key):
                return 0
