"""TensorBoard: event files in `logs/` of a run, written by ourselves; `tensorboard --logdir runs` shows all runs."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

import yaml

from report.trackers.event_format import beginning, image, scalars, session, summary, text
from report.trackers.tracker import Facts, Tracker
from runstore import run_files
from utils.video_file import gif


class TensorBoardEvents(Tracker):
    """A file for each process that trains; one that goes on voids what later steps an earlier one wrote."""

    title = "TensorBoard"

    def begin(self, facts: Facts) -> None:
        now = time.time()
        # a name that TensorBoard looks for; those of one run are read in the order of their names
        path = Path(facts["logs"]) / f"events.out.tfevents.{time.time_ns()}"
        self._file = run_files.open_to_write(path)
        self._write(beginning(now))
        if facts["resumed_at"]:
            self._write(session(now, facts["resumed_at"] + 1))
        self._say(0, "config", f"```\n{yaml.safe_dump(facts['config'], sort_keys=False)}```")
        for name in ("notes", "group"):
            if facts[name]:
                self._say(0, name, facts[name])
        if facts["tags"]:
            self._say(0, "tags", ", ".join(facts["tags"]))
        root = Path(facts["logs"]).parent.parent
        self.where = f"tensorboard --logdir {os.path.relpath(root)}"

    def row(self, step: int, values: Mapping[str, float]) -> None:
        self._write(summary(time.time(), step, scalars(values)))

    def video(self, step: int, path: str) -> None:
        picture = gif(Path(path))
        self._write(summary(time.time(), step, [image("video", picture.height, picture.width, picture.data)]))

    def alert(self, step: int, title: str, text: str) -> None:
        self._say(step, f"alerts/{title}", text)

    def end(self, facts: Facts | None) -> None:
        if facts is not None:
            self._say(0, "verdict", facts["sentence"])
        self._file.close()

    def _say(self, step: int, tag: str, words: str) -> None:
        self._write(summary(time.time(), step, [text(tag, words)]))

    def _write(self, data: bytes) -> None:
        """A record is one write, so that a reader meanwhile finds whole ones."""
        self._file.write(data)
