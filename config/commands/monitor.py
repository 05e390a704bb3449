"""The command line of monitor.py, every word of it checked. Nothing is looked at here."""

from dataclasses import dataclass

from stride.config.commands.one_line import OneLineParser
from stride.utils.user_error import UserError

EXAMPLES = """\
examples:
  {program}                     the newest run in training; where there is none the newest of all
  {program} --latest            the newest run, whatever became of it
  {program} 20260101-120000-Ca  a run by the beginning of its id, @last, @best:ENV, or a folder's path
  {program} group:@last         a group of seeds, and all other runs
  {program} --once              one screen as text; in a pipe without colours
  {program} --json | jq .state  for programs
keys:
  q quits, the training goes on; p freezes the display; left and right go to other runs in training, up and down
  scroll; m shows all runs, enter opens a group or goes into a run; s sorts otherwise
states:
  live, silent (its process lives, and says nothing), paused (Ctrl-Z), interrupted (saved, to be continued), failed,
  dead (its process ended without a word), finished
exit codes:
  0; 2 there is no such run, or the words are wrong
"""


@dataclass(frozen=True)
class MonitorArguments:
    """What was asked for."""

    run: str
    latest: bool
    once: bool
    json: bool


def build_monitor_parser(program: str) -> OneLineParser:
    parser = OneLineParser(
        prog=program,
        description="Look on while runs train, or at what they came to; as many monitors as one likes.",
        epilog=EXAMPLES.format(program=program),
    )
    parser.add_argument("run", nargs="?", metavar="RUN", default="", help="which run; group:NAME begins with all runs")
    parser.add_argument("--latest", action="store_true", help="the newest run, in training or not")
    parser.add_argument("--once", action="store_true", help="print one screen and end")
    parser.add_argument("--json", action="store_true", help="print one JSON object and end")
    return parser


def parse_monitor(argv: list[str], program: str) -> MonitorArguments:
    """argv without the program's name; what is unknown or said twice is refused."""
    found = build_monitor_parser(program).parse_all(argv)
    if found.latest and found.run:
        raise UserError(f"--latest and {found.run} name a run each; give one of them")
    if found.once and found.json:
        raise UserError("--once is for people and --json for programs; give one of them")
    return MonitorArguments(**vars(found))
