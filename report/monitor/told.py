"""One screen as text, and the same as an object for programs."""

import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

from stride.report.monitor.app import SECOND_LOOK, Monitor, band_words
from stride.report.monitor.fleet import Brief, Fleet
from stride.report.monitor.judge import Judge
from stride.report.monitor.machine import Machine
from stride.report.monitor.watched import Watched
from stride.report.terminal import Page, encoded

PIPE = (100, 200)  # columns and lines where there is no terminal
VERSION = 1  # of the object; keys may be added to it, none changes its meaning


def as_text(monitor: Monitor) -> str:
    """As wide as the terminal, as long as there is anything to say."""
    is_terminal = sys.stdout.isatty()
    width = os.get_terminal_size(sys.stdout.fileno()).columns - 1 if is_terminal else PIPE[0]
    unicode = "utf" in (sys.stdout.encoding or "").casefold()
    monitor.look()
    time.sleep(SECOND_LOOK)
    monitor.look()
    lines = monitor.page(Page(width, PIPE[1], not unicode))[:-1]  # without the keys
    while lines and not lines[-1].plain.strip():
        lines.pop()
    colours = is_terminal and not os.environ.get("NO_COLOR")
    return "\n".join(text.rstrip() for text in encoded(lines, unicode, colours))


def as_json(folder: Path | None, group: str) -> str:
    """Of a run; of a group its runs."""
    if folder is None:
        fleet = Fleet(group)
        fleet.look()
        return json.dumps({"version": VERSION, "group": group, "runs": [_line(each) for each in fleet.briefs]})
    return json.dumps({"version": VERSION, **_run(folder)})


def _line(each: Brief) -> dict[str, Any]:
    return {"id": each.id, "state": each.state, "config_id": each.title, "seed": each.seed, "goal": each.goal,
            "env_steps": each.env_steps, "max_timesteps": each.budget or None, "return": _number(each.value),
            "return_of": each.kind or None}  # fmt: skip


def _run(folder: Path) -> dict[str, Any]:
    watched = Watched(folder)
    look = watched.look()
    kept = {"val": look.val, "train": look.train}
    use = Machine().look(look.pid) if look.pid else None
    scores = {name: {"last": _number(each.last), "best": _number(each.best)} for name, each in kept.items()}
    told = {
        "id": look.id, "path": str(folder), "state": look.state, "config_id": look.title, "seed": look.seed,
        "group": look.group or None, "goal": look.goal, "env_steps": look.env_steps,
        "max_timesteps": look.budget or None, "pid": look.pid or None, "doing": look.doing or None, "says": look.said,
        "seconds": _number(look.elapsed), "seconds_left": _number(look.left),
        "steps_per_second": {"now": _number(look.rate), "mean": _number(look.mean_rate)}, "phases": dict(look.phases),
        "returns": scores, "band": "".join(band_words(look)) or None, "memory": use.memory if use else None,
        "alerts": {
            alert.name: f"{alert.title} {alert.bound}  {alert.tip}" for alert in Judge().alarming(look, watched.rows)
        },
        "metrics": {name: _number(value) for name, value in look.values.items()},
    }  # fmt: skip
    watched.close()
    return told


def _number(value: float) -> float | None:
    """None for what JSON does not know."""
    return value if math.isfinite(value) else None
