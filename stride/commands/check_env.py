"""Check an environment, yours or anybody's:   stride check-env CartPole-v1   (--help says the rest)"""

import json
import sys

from stride.commands.usage import spelled
from stride.config.commands.check_env import CheckArguments, parse_check
from stride.envs_gym.check.finding import FAULT, PARTS, CheckResult
from stride.envs_gym.check.screen import page, progress
from stride.envs_gym.check.watched import check
from stride.report.console import standard_output
from stride.report.in_place import InPlace
from stride.utils import entry

PIPE_WIDTH = 100  # columns where there is no terminal


def main(argv: list[str]) -> int:
    """Exit code: 1 where a fault was found."""
    arguments = parse_check(argv, spelled())
    result = checked(arguments)
    if arguments.json:
        print(json.dumps(result.data()), flush=True)
    else:
        terminal = standard_output()
        for line in page(result, terminal.width if terminal.is_terminal else PIPE_WIDTH):
            terminal.print(line, soft_wrap=True, highlight=False)
    return 1 if result.count(FAULT) else 0


def checked(arguments: CheckArguments) -> CheckResult:
    """Waited for: a line on a terminal that says what is looked at, lines on stderr where there is none."""
    terminal = standard_output()
    in_place = InPlace(terminal) if terminal.is_interactive and not arguments.json else None
    before = ""

    def show(part: str, seconds: float) -> None:
        nonlocal before
        if in_place is not None:
            place = PARTS.index(part) if part else 0
            ascii_only = terminal.options.ascii_only
            in_place.draw([progress(arguments.env, part, place, len(PARTS), seconds, ascii_only)])
        elif part != before:
            before = part
            print(f"{arguments.env}: {part} ...", file=sys.stderr, flush=True)

    try:
        rest = arguments.steps, arguments.seconds, arguments.timeout, show
        return check(arguments.env, arguments.kwargs, *rest)
    finally:
        if in_place is not None:
            in_place.erase()


if __name__ == "__main__":
    entry.run(main)
