"""The command line of scripts/verify_run.py, every word of it checked. No training here."""

from dataclasses import dataclass

from stride.config.commands.one_line import OneLineParser
from stride.runstore.run_names import HUB_PREFIX
from stride.utils.user_error import UserError

EXAMPLES = """\
examples:
  stride verify @last                     up to its earliest checkpoint
  stride verify RUN --iterations 50       every checkpoint of its first 50 iterations
  stride verify RUN --test                and the closing test, with the weights of its last checkpoint
exit codes:
  0 identical, or the same within the tolerance; 1 different, or the run contradicts itself; 2 it cannot be repeated
"""
TOLERANCE = 1e-5


@dataclass(frozen=True)
class VerifyArguments:
    """What was asked for; `iterations` is 0 where the earliest checkpoint is compared."""

    run_id: str
    iterations: int = 0
    test: bool = False
    tolerance: float = TOLERANCE


def build_verify_parser() -> OneLineParser:
    parser = OneLineParser(
        prog="stride verify",
        description="Does a run repeat? Train its first iterations again from the stored config and seed, and compare.",
        epilog=EXAMPLES,
    )
    parser.add_argument("run_id", metavar="RUN", nargs="?", default="@last", help="@last (the default), id, path")
    parser.add_argument("--iterations", type=int, metavar="N", default=0,
                        help="compare every checkpoint of these; default: the earliest checkpoint")  # fmt: skip
    parser.add_argument("--test", action="store_true", help="play the closing test again and compare it")
    parser.add_argument("--tolerance", type=float, metavar="X", default=TOLERANCE,
                        help=f"numbers that differ by no more are the same; default {TOLERANCE:g}")  # fmt: skip
    return parser


def parse_verify(argv: list[str]) -> VerifyArguments:
    """argv without the program's name; what is unknown or out of range is refused."""
    found = build_verify_parser().parse_all(argv)
    if found.iterations < 0:
        raise UserError(f"--iterations is a whole number from 1 on, not {found.iterations}")
    if not 0 <= found.tolerance < float("inf"):
        raise UserError(f"--tolerance is a number from 0 on, not {found.tolerance}")
    if found.run_id.startswith(HUB_PREFIX):
        raise UserError(f"{found.run_id} holds one checkpoint and no rows; verify takes a run of this machine")
    return VerifyArguments(**vars(found))
