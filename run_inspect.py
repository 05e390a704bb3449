"""Look into runs and episodes in the browser:   python run_inspect.py --run-id @last   (--help says the rest)

Serves on this machine only, reads runs and never writes into them; a run in training can be watched.
"""

import signal
import socket
import sys

import torch

from config.inspect_arguments import InspectArguments, parse_inspect
from inspector.app import Inspector
from utils.closed_pipe import outlive_readers
from utils.run_dir import runs_root
from utils.user_error import UserError


def main(argv: list[str]) -> int:
    arguments = parse_inspect(argv)
    torch.set_num_threads(1)  # one world at a time: more threads only take them from a training
    port = free_port(arguments)
    with Inspector(arguments.run_id) as inspector:
        url = inspector.launch(arguments.host, port, arguments.share)
        print(f"runs of {runs_root()}\n{url}   (Ctrl-C ends it)", flush=True)
        inspector.demo.block_thread()
    return 0


def free_port(arguments: InspectArguments) -> int:
    """The port asked for if nobody listens on it, or any free one where 0 was asked for."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((arguments.host, arguments.port))
            return int(probe.getsockname()[1])
    except OSError as error:
        where = f"{arguments.host}:{arguments.port}"
        raise UserError(f"cannot listen on {where}: {error.strerror or error}; --port 0 takes a free port") from error


def command(argv: list[str]) -> int:
    """main with its errors as one line and exit code 2."""
    try:
        return main(argv)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    outlive_readers()
    sys.exit(command(sys.argv[1:]))
