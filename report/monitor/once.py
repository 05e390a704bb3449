"""`stride monitor --once` and `--json`: print one screen as text, or the same information as a JSON object."""

import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

from stride.report.monitor.app import SECOND_LOOK_SECONDS, Monitor
from stride.report.monitor.band import band_text
from stride.report.monitor.machine import Machine
from stride.report.monitor.run_list import RunList, shown_return, shown_state
from stride.report.monitor.watched_run import WatchedRun
from stride.report.terminal import Page, encoded
from stride.runstore.run_brief import Brief

PIPE_SIZE = (100, 200)  # columns and lines of the screen if there is no terminal
VERSION = 1  # version of the JSON object; within a version keys are only added and keep their meaning
Json = dict[str, Any]


def as_text(monitor: Monitor) -> str:
    """Return one screen as text, as wide as the terminal and as long as its content."""
    is_terminal = sys.stdout.isatty()
    width = os.get_terminal_size(sys.stdout.fileno()).columns - 1 if is_terminal else PIPE_SIZE[0]
    unicode = "utf" in (sys.stdout.encoding or "").casefold()
    monitor.look()
    time.sleep(SECOND_LOOK_SECONDS)
    monitor.look()
    screen_lines = monitor.page(Page(width, PIPE_SIZE[1], not unicode))[:-1]  # without the keys
    colours = is_terminal and not os.environ.get("NO_COLOR")
    return "\n".join(text.rstrip() for text in encoded(screen_lines, unicode, colours)).rstrip()


def as_json(folder: Path | None, group: str) -> str:
    """Return a JSON object about a run, or about the runs of a group (of all groups for "") if `folder` is None."""
    if folder is not None:
        return json.dumps({"version": VERSION, **_run_object(folder)})
    run_list = RunList(group)
    run_list.refresh()
    runs = [_listed_object(run_brief) for run_brief in run_list.briefs]
    return json.dumps({"version": VERSION, "group": group, "runs": runs})


def _listed_object(run_brief: Brief) -> Json:
    """Return the object of a run in a list."""
    kind, value = shown_return(run_brief)
    return {
        "id": run_brief.id,
        "state": shown_state(run_brief),
        "config_id": run_brief.variant,
        "seed": run_brief.seed,
        "goal": run_brief.goal,
        "env_steps": run_brief.tail.steps,
        "max_timesteps": run_brief.budget or None,
        "return": _number(value),
        "return_of": kind,
    }


def _run_object(folder: Path) -> Json:
    """Return the object of the run in this folder."""
    watched = WatchedRun(folder)
    view = watched.refresh()
    watched.close()
    machine = Machine().look(view.pid) if view.pid else None
    scores = {"val": view.val, "train": view.train}
    return {
        "id": view.id,
        "path": str(folder),
        "state": view.state,
        "config_id": view.title,
        "seed": view.seed,
        "group": view.group or None,
        "goal": view.goal,
        "env_steps": view.env_steps,
        "max_timesteps": view.budget or None,
        "pid": view.pid or None,
        "doing": view.doing or None,
        "says": view.message,
        "seconds": _number(view.elapsed),
        "seconds_left": _number(view.left),
        "steps_per_second": {"now": _number(view.rate), "mean": _number(view.mean_rate)},
        "phases": dict(view.phases),
        "returns": {kind: {"last": _number(item.last), "best": _number(item.best)} for kind, item in scores.items()},
        "band": "".join(band_text(view)) or None,
        "memory": machine.memory if machine else None,
        "alerts": {alert.name: f"{alert.title} {alert.bound}  {alert.tip}" for alert in view.alerts},
        "metrics": {score_name: _number(value) for score_name, value in view.values.items()},
    }


def _number(value: float) -> float | None:
    """Return the value, None for non-finite ones, which JSON cannot represent."""
    return value if math.isfinite(value) else None
