"""Look on while runs train, from any terminal:   stride monitor   (--help says the rest)"""

import sys

from stride.config.commands.monitor import parse_monitor
from stride.report.monitor.app import Monitor, run
from stride.report.monitor.once import as_json, as_text
from stride.report.monitor.run_list import find_target
from stride.utils import entry
from stride.utils.user_error import UserError


def main(argv: list[str]) -> int:
    arguments = parse_monitor(argv, "stride monitor")
    if not (arguments.once or arguments.json) and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("this is no terminal; --once prints one screen as text, --json one object for programs")
    folder, group = find_target(arguments.run, arguments.latest)
    if arguments.json:
        print(as_json(folder, group), flush=True)
        return 0
    monitor = Monitor(folder, group)
    if arguments.once:
        print(as_text(monitor), flush=True)
        return 0
    return run(monitor)


if __name__ == "__main__":
    entry.run(main)
