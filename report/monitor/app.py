"""The monitor: what is looked at and when, and what each key does. What it looks like is in run_page and runs_page."""

import math
import time
from pathlib import Path

from rich.text import Text

from stride.report.monitor.band import differing, shipped, standing
from stride.report.monitor.fleet import SORTS, Brief, Fleet, Row, opened
from stride.report.monitor.judge import Judge
from stride.report.monitor.machine import Machine
from stride.report.monitor.run_page import SORTS as METRIC_SORTS
from stride.report.monitor.run_page import Shown, run_page
from stride.report.monitor.runs_page import runs_page
from stride.report.monitor.screen import Screen
from stride.report.monitor.watched import Look, Watched
from stride.report.run_view import newest_return
from stride.report.terminal import Page, line_of
from stride.runstore.run_dir import runs_root

EVERY = 1.0  # seconds between two looks; a key is answered at once
SECOND_LOOK = 0.1  # after the first
FLEET_EVERY = 2.0
KEYS = {"run": "q quit  p freeze  ←→ live runs  ↑↓ scroll  m all runs  s sort by",
        "runs": "q quit  p freeze  ↑↓ choose  enter open  m one run  s sort by"}  # fmt: skip
SHORT_KEYS = {"run": "q quit p freeze ←→ runs ↑↓ m all s by", "runs": "q quit p freeze ↑↓ enter m one s by"}
NARROW = 76


class Monitor:
    """One run, or all of them; `folder`: the run to begin with, `group`: the group that stands open at first."""

    def __init__(self, folder: Path | None, group: str = "") -> None:
        self.mode = "run" if folder else "runs"
        self.frozen = False
        self.sort = {"run": METRIC_SORTS[0], "runs": next(iter(SORTS))}
        self._fleet = Fleet()
        self._fleet_at = -FLEET_EVERY
        self._watched = Watched(folder) if folder else None
        self._judge, self._machine = Judge(), Machine()
        self._shown: Shown | None = None
        self._first, self._chosen = 0, 0
        self._open = {group} if group else set[str]()
        self._wanted = group
        self._looks = 0

    @property
    def is_new(self) -> bool:
        """Whether the next look adds what took too long for the first."""
        return self._looks < 2 and not self.frozen

    def look(self) -> None:
        """All that the next screen shows, unless it is frozen; the first time what is quick."""
        if self.frozen:
            return
        if self.mode == "runs" or self._looks:
            self._look_at_all()
        if self.mode == "run" and self._watched:
            self._shown = self._look_at_one(self._watched)
        self._looks += 1

    def _look_at_one(self, watched: Watched) -> Shown:
        look = watched.look()
        later = self._looks > 0
        return Shown(
            look,
            watched.points,
            self._judge.alarming(look, watched.rows) if later else (),
            *band_words(look),
            self._machine.look(look.pid) if look.pid else None,
            self._machine.gpus() if later and look.trains else (),
        )

    def _look_at_all(self) -> None:
        now = time.monotonic()
        if now - self._fleet_at >= FLEET_EVERY:
            self._fleet.look()
            self._fleet_at = now
        if self._wanted:  # the group that was asked for is the chosen line
            names = [row.name for row, each in self._lines if each is None]
            if self._wanted in names:
                self._chosen = next(n for n, (row, _) in enumerate(self._lines) if row.name == self._wanted)
            self._wanted = ""

    @property
    def _lines(self) -> list[tuple[Row, Brief | None]]:
        return opened(self._fleet.rows(self.sort["runs"]), self._open)

    def page(self, page: Page) -> list[Text]:
        """The screen as it is now, its last line the keys; no line wider than it."""
        keys = f" {(KEYS if page.width >= NARROW else SHORT_KEYS)[self.mode]} {self.sort[self.mode]}"
        if page.ascii_only:
            keys = keys.replace("←→", "<>").replace("↑↓", "^v")
        above = self._above(page._replace(height=page.height - 1))[: page.height - 1]
        blank = [line_of() for _ in range(page.height - 1 - len(above))]
        lines = [*above, *blank, line_of(keys, "dim")]
        for line in lines:
            line.truncate(page.width)
        return lines

    def _above(self, page: Page) -> list[Text]:
        """All but the line of keys."""
        if self.mode == "runs":
            lines = self._lines
            self._chosen = max(0, min(self._chosen, len(lines) - 1))
            return runs_page(lines, self._chosen, self._open, page)
        assert self._shown is not None
        shown = self._shown._replace(sort=self.sort["run"], first=self._first, place=self._place(), frozen=self.frozen)
        most = max(0, len(shown.look.values) - 1)
        self._first = min(self._first, most)
        return run_page(shown, page)

    def _place(self) -> str:
        live = self._fleet.live()
        here = self._shown.look.id if self._shown else ""
        return f"{live.index(here) + 1} of {len(live)} live" if here in live and len(live) > 1 else ""

    def press(self, key: str) -> bool:
        """Whether it goes on."""
        if key == "q":
            return False
        if key == "p":
            self.frozen = not self.frozen
        elif key == "s":
            words = list(METRIC_SORTS if self.mode == "run" else SORTS)
            self.sort[self.mode] = words[(words.index(self.sort[self.mode]) + 1) % len(words)]
        elif key == "m":
            self._change_mode()
        elif key in ("up", "down"):
            self._move(1 if key == "down" else -1)
        elif key in ("left", "right") and self.mode == "run":
            self._switch(1 if key == "right" else -1)
        elif key in ("enter", "right", "left") and self.mode == "runs":
            self._enter(key)
        return True

    def _change_mode(self) -> None:
        if self.mode == "run":
            self.mode = "runs"
            self._fleet_at = -FLEET_EVERY
            self._look_at_all()
            names = [each.id if each else "" for _, each in self._lines]
            here = self._watched.run.id if self._watched else ""
            self._chosen = names.index(here) if here in names else self._chosen
        elif self._watched:
            self.mode = "run"
            self._renew()
        else:
            self._enter("enter")

    def _move(self, step: int) -> None:
        if self.mode == "run":
            self._first = max(0, self._first + step)
        else:
            self._chosen = max(0, min(self._chosen + step, len(self._lines) - 1))

    def _switch(self, step: int) -> None:
        """To the next run in training; from one that ended to the newest of them."""
        self._look_at_all()
        live = self._fleet.live()
        here = self._watched.run.id if self._watched else ""
        if live and live != [here]:
            place = (live.index(here) + step) % len(live) if here in live else 0
            self._watch(runs_root() / live[place])

    def _enter(self, key: str) -> None:
        """Open or close a group; go into a run."""
        lines = self._lines
        if not lines:
            return
        row, each = lines[self._chosen]
        if each is None or (key == "left" and row.grouped):
            is_open = row.name in self._open
            wanted = {"left": False, "right": True}.get(key, not is_open)
            self._open = self._open | {row.name} if wanted else self._open - {row.name}
            if not wanted:
                self._chosen = next(n for n, (line, _) in enumerate(self._lines) if line.name == row.name)
        elif key != "left":
            self._watch(runs_root() / each.id)
            self.mode = "run"

    def _watch(self, folder: Path) -> None:
        if self._watched:
            self._watched.close()
        self._watched, self._judge, self._first = Watched(folder), Judge(), 0
        self._renew()

    def _renew(self) -> None:
        """What is shown is another run: looked at even while the display is frozen."""
        assert self._watched is not None
        self._shown = self._look_at_one(self._watched)


def band_words(look: Look) -> tuple[str, str]:
    """Against the shipped seeds of its variant, and which of its settings are others than theirs; "" for none."""
    found = shipped(look.title)
    value = newest_return(look.val, look.train)[1].last
    words = standing(found, look.env_steps, value) if found and math.isfinite(value) else ""
    other = differing(found, look.config) if found and words else []
    more = f" and {len(other) - 2} more" if len(other) > 2 else ""
    return words, f"; other {', '.join(other[:2])}{more}" if other else ""


def run(monitor: Monitor, every: float = EVERY) -> int:
    """Until q."""
    with Screen() as screen:
        due = 0.0
        while True:
            now = time.monotonic()
            if now >= due:
                monitor.look()
                due = now + every
            screen.draw(monitor.page(screen.page))
            if monitor.is_new:
                due = now + SECOND_LOOK
            key = screen.key(due - time.monotonic())
            if not monitor.press(key):
                return 0
