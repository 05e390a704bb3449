"""A tracker in a process of its own, so that no import, error or hang of a foreign package reaches the training.

It outlives the training where a server is slow (child.py has the limits). What it prints is in `logs/NAME.txt`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from threading import Thread

from stride.report.trackers.tracker import BEGIN, END, Message, Tracker
from stride.runstore import run_files
from stride.utils import places

LAST_BYTES = 2000  # of what it printed, in which its error is looked for
PATHS = ("WANDB_DIR", "WANDB_SWEEP_PARAM_PATH", "TRACKIO_DIR")  # may be relative to the working directory


class ProcessTracker(Tracker):
    """Messages are lines of JSON on its stdin; on its stdout it sends back `location` and `remark`, likewise."""

    def __init__(self, name: str, title: str, logs: Path) -> None:
        self.title = title
        self._name = name
        self._output_path = logs / f"{name}.txt"

    def receive(self, message: Message) -> None:
        """Pass it on. The first message starts the process, the last waits for its end; a caller that cannot wait
        leaves the thread in here, and the process at its work."""
        if message["call"] == BEGIN:
            self._start()
        assert self._child.stdin
        try:
            self._child.stdin.write(json.dumps(message).encode() + b"\n")
            self._child.stdin.flush()
        except BrokenPipeError as error:
            raise ChildProcessError(self._last_words()) from error
        if message["call"] == END:
            self._child.stdin.close()
            self._listener.join()
            if self._child.wait():
                raise ChildProcessError(self._last_words())

    def _start(self) -> None:
        with run_files.open_to_write(self._output_path, append=True) as output:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", places.module_of("report/trackers/child.py"), self._name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=_environment(),
                start_new_session=True,  # a Ctrl-C at the terminal is for the training
            )
        self._listener = Thread(target=self._listen, name=f"from {self.title}", daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._child.stdout
        for line in self._child.stdout:
            if line.endswith(b"\n"):  # else it was killed while it wrote
                answer = json.loads(line)
                self.location = answer["location"]
                self.remark = answer["remark"]

    def _last_words(self) -> str:
        """The last line that it printed, and where the others are."""
        with run_files.open_file(self._output_path) as file:
            output = file.read()[-LAST_BYTES:].decode(errors="replace").split("\n")
        output = [line.strip() for line in output if line.strip()]
        last_line = output[-1] if output else "it ended without a message"
        return f"{last_line} ({self._output_path.parent.name}/{self._output_path.name})"


def _environment() -> dict[str, str]:
    """A copy of this environment in which the program and its folders are found from any working directory."""
    environment = dict(os.environ)
    for variable in PATHS:
        if environment.get(variable):
            environment[variable] = os.path.abspath(environment[variable])
    search_path = [str(places.ROOT), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, search_path))
    return environment
