"""The sink that programs read: `train.py --json`, an event a line (utils/events.py); docs/events.md is its schema."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from stride.config.loader import to_plain
from stride.config.schema import Config
from stride.runstore.history import STEPS, Event
from stride.runstore.outcome import Header, Outcome
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.sink import Sink
from stride.utils.events import Events

STAGES = ("val", "test")
SCORES = {  # of an evaluation: its key here, and the metric's name behind the stage
    "mean": "ep_rew/mean", "std": "ep_rew/std", "min": "ep_rew/min", "max": "ep_rew/max", "best": "ep_rew/best",
    "length": "ep_len/mean", "episodes": "episodes",
}  # fmt: skip


class JsonEvents(Sink):
    """Everything but `beat`: a program that waits asks whether the process lives."""

    def __init__(self, events: Events, run: RunDir, env_steps: int = 0) -> None:
        """`env_steps`: where a resumed run goes on."""
        self._events, self._run, self._steps = events, run, env_steps

    def begin(self, header: Header, config: Config) -> None:
        facts = {name: value for name, value in dataclasses.asdict(header).items() if name != "run_path"}
        self._say("begin", env_steps=self._steps, path=str(self._run.path), **facts, config=to_plain(config))

    def row(self, row: Mapping[str, float]) -> None:
        self._steps = int(row.get(STEPS, self._steps))
        for stage in STAGES:
            if f"{stage}/roll/episodes" in row:
                found = {key: row.get(f"{stage}/roll/{name}") for key, name in SCORES.items()}
                self._say("evaluation", stage=stage, env_steps=self._steps, **found)
        self._say("row", env_steps=self._steps, metrics=dict(row))

    def alert(self, event: Event) -> None:
        alert = event.alert
        told = {"begins": event.begins, "metric": alert.name, "title": alert.title, "bound": alert.bound}
        told |= {"value": event.value, "worst": alert.worst, "rows": alert.rows, "times": alert.times}
        self._say("alert", env_steps=event.env_steps, **told, means=alert.means, tip=alert.tip)

    def checkpoint(self, path: Path, facts: Mapping[str, object]) -> None:
        told = {key: facts[key] for key in ("env_steps", "iterations", "epoch", "score", "best")}
        self._say("checkpoint", path=str(path), **told)

    def end(self, outcome: Outcome | None) -> None:
        if outcome is None:  # whoever began the events tells the error
            return
        told = {name: value for name, value in dataclasses.asdict(outcome).items() if name != "run_path"}
        told |= {"result": outcome.result, "lost": outcome.lost or None, "alerts": len(outcome.alerts), "error": None}
        self._say("end", path=str(self._run.path), **told)

    def _say(self, event: str, **facts: object) -> None:
        self._events.say(event, run=self._run.id, **facts)
