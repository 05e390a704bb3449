"""The command line of run_inspect.py, every word of it checked. No serving here."""

import re
from dataclasses import dataclass

from stride.config.commands.one_line import OneLineParser, add_project
from stride.utils.user_error import UserError

ADDRESS = re.compile(r"[A-Za-z0-9_.:%-]{0,63}")


@dataclass(frozen=True)
class InspectArguments:
    """What was asked for."""

    run_id: str
    host: str
    port: int
    share: bool


def build_inspect_parser() -> OneLineParser:
    parser = OneLineParser(prog="python run_inspect.py", description="Look into runs and episodes in the browser.")
    text = "the run to begin with: @last (the default), @best[:ENV[:VARIANT]], id"
    parser.add_argument("--run-id", "--run_id", metavar="RUN", default="@last", help=text)
    parser.add_argument("--port", type=int, metavar="N", default=7860, help="7860 by default; 0 takes any free one")
    text = "who may connect: 127.0.0.1 (the default) is this machine only"
    parser.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help=text)
    text = "a public address through Gradio's servers: whoever knows it sees every run"
    parser.add_argument("--share", action="store_true", help=text)
    add_project(parser)
    return parser


def parse_inspect(argv: list[str]) -> InspectArguments:
    """argv without the program's name; what is unknown or out of range is refused."""
    found = build_inspect_parser().parse_all(argv)
    if not 0 <= found.port <= 65535:
        raise UserError(f"--port lies between 0 and 65535, not at {found.port}")
    if not ADDRESS.fullmatch(found.host):  # its form alone: whether this machine has it, the server finds out
        raise UserError(f"--host takes an address such as 127.0.0.1, not {found.host!r}")
    return InspectArguments(**vars(found))
