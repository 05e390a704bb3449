"""What train.py refuses before it loads anything heavy: words it does not know, a folder it cannot write to."""

import sys

from config.commands.train import parse_arguments
from utils.durable_file import check_room
from utils.events import FAILED, line
from utils.run_dir import RunDir, runs_root
from utils.seed_group import names_group
from utils.user_error import UserError


def preflight(argv: list[str]) -> None:
    """Ends the process with one line and exit code 2 where nothing could come of it."""
    try:
        arguments = parse_arguments(argv)
        if not arguments.help and arguments.list_envs is None:
            goes_on = arguments.resume and arguments.checkpoint in ("", "last") and not names_group(arguments.resume)
            check_room(RunDir.find(arguments.resume).path if goes_on else runs_root(), 0)
    except UserError as error:
        if "--json" in argv:
            print(line("end", result=FAILED, error=str(error)), flush=True)
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
