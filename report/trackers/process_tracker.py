"""Run a tracker in its own process, so that imports, errors and hangs of its package cannot affect the training.

If a server is slow the process continues after the training (child.py has the limits). It prints to `logs/NAME.txt`.
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

ERROR_BYTES = 2000  # at the end of what it printed, where its error is expected
PATHS = ("WANDB_DIR", "WANDB_SWEEP_PARAM_PATH", "TRACKIO_DIR")  # variables with paths, which may be relative


class ProcessTracker(Tracker):
    """Passes messages to the process as lines of JSON on its stdin; its stdout answers with `location` and `remark`."""

    def __init__(self, name: str, title: str, logs: Path) -> None:
        self.title = title
        self._name = name
        self._output_path = logs / f"{name}.txt"

    def receive(self, message: Message) -> None:
        """Pass the message on. The first one starts the process, the last one waits for its end.

        It is called in AsyncTracker's thread, so a training that cannot wait simply leaves that thread in here.
        ChildProcessError, with the last line that it printed, if the process failed.
        """
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
                start_new_session=True,  # a Ctrl-C at the terminal must not end this process
            )
        self._listener = Thread(target=self._listen, name=f"from {self.title}", daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        """Read the answers of the process; runs in its own thread."""
        assert self._child.stdout
        for line in self._child.stdout:
            if line.endswith(b"\n"):  # an incomplete line: the process was killed while it wrote
                answer = json.loads(line)
                self.location = answer["location"]
                self.remark = answer["remark"]

    def _last_words(self) -> str:
        """Return the last line that the process printed, and the file with the others."""
        with run_files.open_file(self._output_path) as file:
            output = file.read()[-ERROR_BYTES:].decode(errors="replace").split("\n")
        output = [line.strip() for line in output if line.strip()]
        last_line = output[-1] if output else "it ended without a message"
        return f"{last_line} ({self._output_path.parent.name}/{self._output_path.name})"


def _environment() -> dict[str, str]:
    """Return a copy of the environment variables with absolute paths, and with a PYTHONPATH that finds Stride."""
    environment = dict(os.environ)
    for variable in PATHS:
        if environment.get(variable):
            environment[variable] = os.path.abspath(environment[variable])
    search_path = [str(places.ROOT), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, search_path))
    return environment
