"""The sink of `stride train --json`: one JSON event a line, for programs. docs/events.md describes the events."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from stride.config.loader import to_plain
from stride.config.schema import Config
from stride.runstore.history import STEPS, Event
from stride.runstore.outcome import Header, Outcome
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.sink import Sink
from stride.utils.streams import Events

STAGES = ("val", "test")
SCORES = {  # the key of an evaluation: the name of its metric after the stage
    "mean": "ep_rew/mean", "std": "ep_rew/std", "min": "ep_rew/min", "max": "ep_rew/max", "best": "ep_rew/best",
    "length": "ep_len/mean", "episodes": "episodes",
}  # fmt: skip


class JsonEvents(Sink):
    """Emits an event for each call but `beat`: a program that waits can check whether the process is alive."""

    def __init__(self, events: Events, run: RunDir, env_steps: int = 0) -> None:
        """`env_steps`: env steps at which a resumed run continues."""
        self._events = events
        self._run = run
        self._steps = env_steps

    def begin(self, header: Header, config: Config) -> None:
        fields = dataclasses.asdict(header)
        del fields["run_path"]
        self._emit("begin", env_steps=self._steps, path=str(self._run.path), **fields, config=to_plain(config))

    def row(self, row: Mapping[str, float]) -> None:
        self._steps = int(row.get(STEPS, self._steps))
        for stage in STAGES:
            if f"{stage}/roll/episodes" in row:
                scores = {
                    field_name: row.get(f"{stage}/roll/{metric_name}") for field_name, metric_name in SCORES.items()
                }
                self._emit("evaluation", stage=stage, env_steps=self._steps, **scores)
        self._emit("row", env_steps=self._steps, metrics=dict(row))

    def alert(self, event: Event) -> None:
        alert = event.alert
        fields = {
            field_name: getattr(alert, field_name)
            for field_name in ("title", "bound", "worst", "rows", "times", "means", "tip")
        }
        fields |= {"begins": event.begins, "value": event.value, "metric": alert.name}
        self._emit("alert", env_steps=event.env_steps, **fields)

    def checkpoint(self, path: Path, facts: Mapping[str, object]) -> None:
        fields = {field_name: facts[field_name] for field_name in ("env_steps", "iterations", "epoch", "score", "best")}
        self._emit("checkpoint", path=str(path), **fields)

    def end(self, outcome: Outcome | None) -> None:
        if outcome is None:  # an error: the command that opened the events reports it
            return
        fields = dataclasses.asdict(outcome)
        del fields["run_path"]
        fields |= {"result": outcome.result, "lost": outcome.lost or None, "alerts": len(outcome.alerts), "error": None}
        self._emit("end", path=str(self._run.path), **fields)

    def _emit(self, event: str, **fields: object) -> None:
        self._events.emit(event, run=self._run.id, **fields)
