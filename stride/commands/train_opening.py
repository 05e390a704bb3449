"""What train.py says at once: an answer, a refusal, or the first lines of a training, of what its config alone says.

They stand there while torch is loaded; the console prints the rest of the header below them when it is known.
"""

from collections.abc import Sequence

from rich.text import Text

from stride.commands.train_claimed import is_done, standing_run, tell_again
from stride.commands.train_detached import apart, train_apart
from stride.config.commands.machines import LOCAL
from stride.config.commands.train import Arguments, check_pause, parse_arguments
from stride.config.plugins import TooEarlyError, postponed
from stride.config.preflight import answered, checked, knows_all_algorithms
from stride.config.schema import Config
from stride.report.console import standard_output, told
from stride.report.dashboard import opening_block
from stride.runstore.many.nursery import is_nursery
from stride.utils.events import FAILED, line
from stride.utils.user_error import UserError


def first_words(argv: list[str]) -> int | None:
    """The exit code where that is all, None where a training is to follow."""
    if is_nursery(argv):
        return None
    if "--json" not in argv:
        return _first_words(argv)
    try:
        return _first_words(argv)
    except UserError as error:
        print(line("end", result=FAILED, error=str(error)), flush=True)
        raise


def _first_words(argv: list[str]) -> int | None:
    arguments = parse_arguments(argv)
    if not knows_all_algorithms():
        return None
    try:
        with postponed():
            code = answered(arguments)
            config = checked(arguments) if code is None else None
    except TooEarlyError:  # who has loaded torch says it all
        return None
    if code is None and apart(arguments):
        return train_apart(argv, arguments)
    if config is not None and arguments.group and not arguments.many and not arguments.json:
        run = standing_run(arguments, config)
        if run and is_done(arguments, run):
            return tell_again(arguments, run)
    if code is None and arguments.many and arguments.on != LOCAL and not arguments.require_goal:
        return start_far(arguments)  # a goal may have to be looked up in the environment
    if config is not None and not arguments.quiet and not arguments.several:
        announce(config, arguments.seeds)
    return code


def start_far(arguments: Arguments) -> int:
    """Several runs on a cluster: what they need, its nodes have and load; nothing of it is wanted here."""
    from stride.commands.train_several import start_all

    each = [(one, one.load()) for one in arguments.each()]
    for _, config in each:
        check_pause(arguments.pause_at, config.max_timesteps)
    return start_all(arguments, each)


def announce(config: Config, seeds: Sequence[int] = ()) -> None:
    """Print them, and have the console know that they stand there; several seeds are runs with headers of their own."""
    lines, labels = opening_block(config, seeds)
    standard_output().print(Text("\n").append_text(lines), soft_wrap=True, highlight=False)
    if len(seeds) < 2:
        told.update(labels)
