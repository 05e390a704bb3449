"""Inspect runs and episodes in the browser: python run_inspect.py --run-id @last (--help shows all flags)

The server listens on this machine only. It reads runs and never writes into them; a run in training can be watched.
"""

from stride.utils import quick_start  # isort: skip  # before all others

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from stride.commands.run_arguments import look_for_run, parse_inspect
from stride.utils import entry

if __name__ == "__main__":
    # here, as the imports below take seconds; no run needs to exist yet, new ones appear in the page
    entry.begin(look_for_run(parse_inspect, must_exist=False), "loading ...")

from stride.inspector.app import Inspector
from stride.runstore.run_dir import runs_root
from stride.utils.user_error import UserError

quick_start.loaded()

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(argv: list[str]) -> int:
    arguments = parse_inspect(argv)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # one environment at a time; leave the other cores to trainings
    port = free_port(arguments.host, arguments.port)
    with ended_by_signals(), Inspector(arguments.run_id) as inspector:
        url = inspector.launch(arguments.host, port, arguments.share)
        print(f"runs in {runs_root()}\n{url}   (Ctrl-C stops)", flush=True)
        threading.Event().wait()
    return 0


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """End the block in order on Ctrl-C, SIGTERM or a closed terminal; ignore further signals."""

    def end(number: int, frame: FrameType | None) -> None:
        for other in END_SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        raise SystemExit(128 + number)

    previous_handlers = {number: signal.signal(number, end) for number in END_SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


def free_port(host: str, port: int) -> int:
    """Return the requested port if it is free; for 0, any free one."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            return int(probe.getsockname()[1])
    except OSError as error:
        raise UserError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; --port 0 takes a free port"
        ) from error


def command(argv: list[str]) -> int:
    """Run main and return the exit code: 2 for an error, reported in one line; 128 + number for a signal."""
    try:
        return entry.ended(main, argv)
    except SystemExit as ended:
        return int(ended.code or 0)


if __name__ == "__main__":
    quick_start.leave(command(sys.argv[1:]))
