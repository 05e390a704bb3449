"""The command line of sweep, every word of it checked. No search here."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from stride.config.commands.machines import LOCAL, check_place
from stride.config.commands.one_line import OneLineParser
from stride.utils.user_error import UserError

EXAMPLES = """\
examples:
  {program} config/sweeps/cartpole.yaml             27 trials, side by side; docs/scale.md says what the file may hold
  {program} mine.yaml --trials 54                   the same search with more of them; goes on where it was stopped
  {program} mine.yaml --on ray                      on a cluster
exit codes:
  0 searched and confirmed; 1 no trial came to an end; 2 the words or the file are wrong, nothing was begun;
  130 and 143 stopped by Ctrl-C or SIGTERM: the same command goes on
"""
MOST = 10_000
NEEDED = "a sweep needs Optuna: pip install 'stride-rl[tune]'"


@dataclass(frozen=True)
class SweepArguments:
    """What was asked for."""

    file: Path
    on: str
    trials: int | None


def build_sweep_parser(program: str) -> OneLineParser:
    parser = OneLineParser(
        prog=program,
        description="Search for hyperparameters: trials are runs that pause, the best go on, and are confirmed.",
        epilog=EXAMPLES.format(program=program),
    )
    parser.add_argument("file", metavar="FILE", help="a sweep in W&B's format, with `variant` and what else is ours")
    text = "where the trials are trained: local; ray, a cluster; or ray:local, one for this command (docs/scale.md)"
    parser.add_argument("--on", metavar="WHERE", default=LOCAL, help=text)
    parser.add_argument("--trials", metavar="N", help="how many, whatever the file's run_cap says")
    return parser


def parse_sweep(argv: list[str], program: str) -> SweepArguments:
    """argv without the program's name; what is unknown, out of range or not installed is refused."""
    found = build_sweep_parser(program).parse_all(argv)
    check_place(found.on)
    trials = None
    if found.trials is not None:
        if not (found.trials.isdecimal() and 1 <= int(found.trials) <= MOST):
            raise UserError(f"--trials is a whole number from 1 to {MOST:,}, not {found.trials}")
        trials = int(found.trials)
    if find_spec("optuna") is None:
        raise UserError(NEEDED)
    return SweepArguments(Path(found.file), found.on, trials)
