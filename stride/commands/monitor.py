"""Watch runs while they train, from any terminal: stride monitor (--help shows all flags)"""

import argparse
import sys

from stride.commands.usage import OneLineParser
from stride.report.monitor.app import Monitor, run
from stride.report.monitor.once import as_json, as_text
from stride.report.monitor.run_list import find_target
from stride.utils import entry
from stride.utils.user_error import UserError

EXAMPLES = """\
examples:
  stride monitor                     the newest run in training; if none trains, the newest run
  stride monitor --latest            the newest run, in training or not
  stride monitor 20260101-120000-Ca  a run: the start of its id, @last, @best:ENV, or the path of its folder
  stride monitor group:@last         a group of seeds, and all other runs
  stride monitor --once              one screen as text; without colours in a pipe
  stride monitor --json | jq .state  for programs
keys:
  q quits, the training continues; p freezes the display; left and right switch between runs in training, up and
  down scroll; m shows all runs, enter opens a group or a run; s changes the sort order
states:
  live, silent (its process runs but writes nothing), halted (Ctrl-Z), paused (by --pause-at), interrupted (saved, can
  be resumed), failed, dead (its process ended without a message), finished
exit codes:
  0 success; 2 no such run, or wrong arguments
"""


def build_monitor_parser() -> OneLineParser:
    parser = OneLineParser(
        prog="stride monitor",
        description="Watch runs while they train, or look at their results. Any number of monitors can run at once.",
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "run", nargs="?", metavar="RUN", default="", help="which run; group:NAME starts at the list of all runs"
    )
    parser.add_argument("--latest", action="store_true", help="the newest run, in training or not")
    parser.add_argument("--once", action="store_true", help="print one screen and exit")
    parser.add_argument("--json", action="store_true", help="print one JSON object and exit")
    return parser


def parse_monitor(argv: list[str]) -> argparse.Namespace:
    """Parse argv, without the program's name; UserError if something is unknown or contradictory."""
    arguments = build_monitor_parser().parse_all(argv)
    if arguments.latest and arguments.run:
        raise UserError(f"--latest and {arguments.run} both name a run; give one of them")
    if arguments.once and arguments.json:
        raise UserError("--once is for people and --json for programs; give one of them")
    return arguments


def main(argv: list[str]) -> int:
    arguments = parse_monitor(argv)
    if not (arguments.once or arguments.json) and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("this is not a terminal; --once prints one screen as text, --json one object for programs")
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
