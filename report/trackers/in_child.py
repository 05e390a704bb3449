"""A tracker in a process of its own: what packages of others import, raise, hang in or leave behind is not ours.

It outlives the training where a server is slow (child.py says how long). What it prints is in `logs/NAME.txt`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from threading import Thread

from stride.report.trackers.tracker import BEGIN, END, News, Tracker
from stride.runstore import run_files
from stride.utils import places

LAST = 2000  # bytes of what it printed in which its error is looked for
PATHS = ("WANDB_DIR", "WANDB_SWEEP_PARAM_PATH", "TRACKIO_DIR")  # may be relative to where one stands


class InChild(Tracker):
    """News are lines of JSON on its stdin; on its stdout it says `where` and `remark`, likewise."""

    def __init__(self, name: str, title: str, logs: Path) -> None:
        self.title = title
        self._name, self._printed = name, logs / f"{name}.txt"

    def _start(self) -> None:
        with run_files.open_to_write(self._printed, append=True) as printed:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", places.module_of("report/trackers/child.py"), self._name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=printed,
                env=_environment(),
                start_new_session=True,  # a Ctrl-C at the terminal is for the training
            )
        self._listener = Thread(target=self._listen, name=f"from {self.title}", daemon=True)
        self._listener.start()

    def tell(self, news: News) -> None:
        """Pass it on. The first news starts the process, the last waits for its end: whoever cannot wait leaves the
        thread in here, and the process at its work."""
        if news["call"] == BEGIN:
            self._start()
        assert self._child.stdin
        try:
            self._child.stdin.write(json.dumps(news).encode() + b"\n")
            self._child.stdin.flush()
        except BrokenPipeError as error:
            raise ChildProcessError(self._why()) from error
        if news["call"] == END:
            self._child.stdin.close()
            self._listener.join()
            if self._child.wait():
                raise ChildProcessError(self._why())

    def _listen(self) -> None:
        assert self._child.stdout
        for line in self._child.stdout:
            if line.endswith(b"\n"):  # else it was killed while it wrote
                said = json.loads(line)
                self.where, self.remark = said["where"], said["remark"]

    def _why(self) -> str:
        """The last line that it printed, and where the others are."""
        with run_files.open_file(self._printed) as file:
            lines = file.read()[-LAST:].decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it ended without a word")
        return f"{last} ({self._printed.parent.name}/{self._printed.name})"


def _environment() -> dict[str, str]:
    """Ours, with the program to be found from anywhere; never from where one stands."""
    given = {name: os.path.abspath(os.environ[name]) for name in PATHS if os.environ.get(name)}
    found = os.pathsep.join(filter(None, (str(places.ROOT), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, **given, "PYTHONPATH": found}
