"""Check an environment for faults, yours or any other: stride check-env CartPole-v1 (--help shows all flags)"""

import json
import math
import sys
from argparse import Namespace
from typing import Any

import yaml

from stride.commands.usage import OneLineParser
from stride.envs_gym.check.finding import FAULT, PARTS, CheckResult
from stride.envs_gym.check.screen import page, progress
from stride.envs_gym.check.watched import check
from stride.report.console import standard_output
from stride.report.in_place import InPlace
from stride.utils import entry
from stride.utils.typography import duration
from stride.utils.user_error import UserError, check_value

EXAMPLES = """\
examples:
  stride check-env CartPole-v1                           any id registered with Gymnasium
  stride check-env mypackage:MyWorld-v0                  imports mypackage, which registers the id
  stride check-env mypackage.world:MyWorld --kwargs size=5 mode=easy    a class, registered or not
  stride check-env MyWorld-v0 --json | jq .findings      for programs; docs/check_env.md lists the keys
exit codes:
  0 no fault (warnings and notes are possible); 1 a fault; 2 wrong arguments, nothing was checked
"""
MAX_STEPS, MAX_SECONDS = 10_000_000, 86_400.0
PIPE_WIDTH = 100  # characters of a line without a terminal
REPEAT_SECONDS = 10.0  # without a terminal, a part that takes long is reported again after this time


def build_check_parser() -> OneLineParser:
    parser = OneLineParser(
        prog="stride check-env",
        description="Check an environment: its interface, and common mistakes. Each finding says how to fix it.",
        epilog=EXAMPLES,
    )
    parser.add_argument("env", metavar="ENV", help="ID, module:ID or module:Class")
    parser.add_argument("--kwargs", nargs="+", metavar="KEY=VALUE", default=[], help="constructor arguments")
    parser.add_argument("--steps", type=int, metavar="N", default=5000, help="most steps of random play; default 5,000")
    text = "approximate time of the whole check, without imports; default 15; slow environments need more"
    parser.add_argument("--seconds", type=float, metavar="S", default=15.0, help=text)
    text = "time limit of one call to the environment; a longer call counts as hanging; default 30"
    parser.add_argument("--timeout", type=float, metavar="S", default=30.0, help=text)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def parse_check(argv: list[str]) -> Namespace:
    """Parse argv, without the program's name; `kwargs` becomes a dict. UserError if something is wrong."""
    parsed = build_check_parser().parse_all(argv)
    if not parsed.env.isprintable() or not parsed.env.strip():
        raise UserError(f"{parsed.env!r} is not an environment: give ID, module:ID or module:Class")
    if not 1 <= parsed.steps <= MAX_STEPS:
        raise UserError(f"--steps must be a whole number from 1 to {MAX_STEPS:,}, not {parsed.steps}")
    for name, value in (("seconds", parsed.seconds), ("timeout", parsed.timeout)):
        if not math.isfinite(value) or not 0 < value <= MAX_SECONDS:
            raise UserError(f"--{name} must be above 0 and at most {MAX_SECONDS:,.0f}, not {value:g}")
    parsed.kwargs = dict(_pair(word) for word in parsed.kwargs)
    return parsed


def _pair(word: str) -> tuple[str, Any]:
    """Parse `size=5`; the value is read as YAML."""
    key, equals, text = word.partition("=")
    if not equals or not key.isidentifier():
        raise UserError(f"--kwargs takes KEY=VALUE, not {word!r}; put the environment before --kwargs")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(f"--kwargs {key}: {text!r} is not a valid value: {error}") from error
    check_value(key, value)
    return key, value


def main(argv: list[str]) -> int:
    """Return the exit code: 1 if a fault was found."""
    arguments = parse_check(argv)
    result = checked(arguments)
    if arguments.json:
        print(json.dumps(result.data()), flush=True)
    else:
        terminal = standard_output()
        for line in page(result, terminal.width if terminal.is_terminal else PIPE_WIDTH):
            terminal.print(line, soft_wrap=True, highlight=False)
    return 1 if result.count(FAULT) else 0


def checked(arguments: Namespace) -> CheckResult:
    """Check the environment; meanwhile show the current part, on the terminal or as lines on stderr."""
    terminal = standard_output()
    in_place = InPlace(terminal) if terminal.is_interactive and not arguments.json else None
    last_part, last_seconds = "none yet", 0.0

    def show(part: str, seconds: float) -> None:
        nonlocal last_part, last_seconds
        if in_place is not None:
            index = PARTS.index(part) if part else 0
            ascii_only = terminal.options.ascii_only
            in_place.draw([progress(arguments.env, part, index, len(PARTS), seconds, ascii_only)])
        elif part != last_part or seconds - last_seconds >= REPEAT_SECONDS:
            done = f"{PARTS.index(part) + 1} of {len(PARTS)}, {part}" if part else "loading"
            text = f"{arguments.env}: {done} ..." + (f" {duration(seconds)}" if part == last_part else "")
            last_part, last_seconds = part, seconds
            print(text, file=sys.stderr, flush=True)

    try:
        return check(arguments.env, arguments.kwargs, arguments.steps, arguments.seconds, arguments.timeout, show)
    finally:
        if in_place is not None:
            in_place.erase()


if __name__ == "__main__":
    entry.run(main)
