"""Look on while runs train, from any terminal:   python scripts/monitor.py   (--help says the rest)"""

import sys

from config.commands.monitor import parse_monitor
from report.monitor.app import Monitor, run
from report.monitor.chosen import chosen
from report.monitor.told import as_json, as_text
from utils import entry
from utils.user_error import UserError


def main(argv: list[str]) -> int:
    arguments = parse_monitor(argv, program())
    if not (arguments.once or arguments.json) and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("this is no terminal; --once prints one screen as text, --json one object for programs")
    folder, group = chosen(arguments.run, arguments.latest)
    if arguments.json:
        print(as_json(folder, group), flush=True)
        return 0
    monitor = Monitor(folder, group)
    if arguments.once:
        print(as_text(monitor), flush=True)
        return 0
    return run(monitor)


def program() -> str:
    """As it was called; scripts.usage loads every schema for this, and the first screen has 0.3 s."""
    if sys.argv[0].startswith("stride "):
        return sys.argv[0]
    spec = sys.modules["__main__"].__spec__
    return f"python -m {spec.name}" if spec else "python scripts/monitor.py"


if __name__ == "__main__":
    entry.run(main)
