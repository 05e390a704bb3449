"""The command line of check_env, every word of it checked. No environment is made here."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from stride.config.commands.one_line import OneLineParser
from stride.utils.user_error import UserError, check_value

EXAMPLES = """\
examples:
  {program} CartPole-v1                           any id that Gymnasium knows
  {program} mypackage:MyWorld-v0                  imports mypackage, which registers it
  {program} mypackage.world:MyWorld --kwargs size=5 mode=easy    a class, registered or not
  {program} MyWorld-v0 --json | jq .findings      for programs; docs/check_env.md says what it holds
exit codes:
  0 no fault (maybe warnings and notes); 1 a fault; 2 the words are wrong, nothing was checked
"""
MOST_STEPS, MOST_SECONDS = 10_000_000, 86_400.0


@dataclass(frozen=True)
class CheckArguments:
    """What was asked for."""

    env: str
    kwargs: Mapping[str, Any]
    steps: int
    seconds: float
    timeout: float
    json: bool


def build_check_parser(program: str) -> OneLineParser:
    parser = OneLineParser(
        prog=program,
        description="Check an environment: its form, and what costs people weeks. Each finding comes with a cure.",
        epilog=EXAMPLES.format(program=program),
    )
    parser.add_argument("env", metavar="ENV", help="ID, module:ID or module:Class")
    parser.add_argument("--kwargs", nargs="+", metavar="KEY=VALUE", default=[], help="arguments of its constructor")
    parser.add_argument("--steps", type=int, metavar="N", default=5000, help="of random play at most; 5,000 by default")
    text = "of the whole check, about; 15 by default; slow environments want more"
    parser.add_argument("--seconds", type=float, metavar="S", default=15.0, help=text)
    text = "for one call of its code: what takes longer hangs; 30 by default"
    parser.add_argument("--timeout", type=float, metavar="S", default=30.0, help=text)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return parser


def parse_check(argv: list[str], program: str) -> CheckArguments:
    """argv without the program's name; what is unknown or out of range is refused."""
    found = build_check_parser(program).parse_all(argv)
    if not found.env.isprintable() or not found.env.strip():
        raise UserError(f"{found.env!r} is no environment; ID, module:ID or module:Class are")
    if not 1 <= found.steps <= MOST_STEPS:
        raise UserError(f"--steps is a whole number from 1 to {MOST_STEPS:,}, not {found.steps}")
    for name, value in (("seconds", found.seconds), ("timeout", found.timeout)):
        if not math.isfinite(value) or not 0 < value <= MOST_SECONDS:
            raise UserError(f"--{name} lies above 0 and at most at {MOST_SECONDS:,.0f}, not at {value:g}")
    kwargs = dict(_pair(word) for word in found.kwargs)
    return CheckArguments(found.env, kwargs, found.steps, found.seconds, found.timeout, found.json)


def _pair(word: str) -> tuple[str, Any]:
    """`size=5`, the value as YAML reads it."""
    key, equals, text = word.partition("=")
    if not equals or not key.isidentifier():
        raise UserError(f"--kwargs takes KEY=VALUE, not {word!r}; the environment stands before it")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(f"--kwargs {key}: {text!r} is no value: {error}") from error
    check_value(key, value)
    return key, value
