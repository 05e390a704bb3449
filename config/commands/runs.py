"""The command line of scripts/runs.py, every word of it checked. No run is looked at here, and nothing heavy loaded."""

import argparse
import re
from collections.abc import Mapping
from pathlib import Path

from stride.config.commands.one_line import OneLineParser
from stride.runstore.run_brief import check_tag
from stride.utils.user_error import UserError, nearest

EXAMPLES = """\
examples:
  {program} list --filter 'env=CartPole and test>=475' --sort -test
  {program} list --filter 'policy_lr<1e-3 age<7d' --columns run,seed,policy_lr,test --json
  {program} show @last                                everything about a run
  {program} compare @last @best --metrics train/policy/entropy --svg curves.svg
  {program} export --filter env=Acrobot --format latex --by variant
  {program} tag @last good tuned;  {program} note @last 'entropy bonus doubled'
  {program} cleanup --keep-best 3 --keep-recent 30d --dry-run
  {program} explain train/policy/approx_kl            meaning, unit, bounds, what to try
  {program} diff RUN RUN                              where two runs of one config part
a filter: words that occur in a run, and FIELD=VALUE, !=, <, <=, >, >=, all of which must hold; VALUE is 400, 20k, 10m,
  2d, 1-5 or a list. Fields: run env seed status result test best score last goal steps took speed age started group tag
  note commit settings id, any key of a config, and the last value of any metric.
a run: @last, @best[:ENV[:VARIANT]], an id or its beginning, a folder; where several are meant also group:NAME
"""
CLEANUP = """\
What goes is listed, then asked for, then decided again from the files; a run that has changed meanwhile stays. So do
runs that train or are paused, those of a search that is not over, the run of @last, those tagged `keep`, damaged ones,
and every folder that is no run: a name without date and time, no checkpoints/, no config. The last line counts what
stays, by reason.
"""
COMMANDS = {
    "list": "runs, the newest first, as many as a filter lets through",
    "show": "all that is known of a run",
    "compare": "runs side by side: numbers, configs, curves",
    "export": "the table of runs as csv, latex or json",
    "tag": "give runs tags, or take them away",
    "note": "write a line about a run, or clear it",
    "cleanup": "delete runs that are neither good nor recent; their configs and last metrics are kept",
    "explain": "what a metric means, when it is alarming, and what to try",
    "diff": "the first row and the first tensor in which two runs of one config differ",
}
FORMATS = ("csv", "latex", "json")
AGE = re.compile(r"(\d{1,6})([hdw])")
HOURS = {"h": 1, "d": 24, "w": 168}
MOST = 10_000_000


def build_runs_parser(program: str) -> OneLineParser:
    parser = OneLineParser(
        prog=program,
        description="Everything about the runs that are there.",
        epilog=EXAMPLES.format(program=program),
    )
    words = parser.add_subparsers(dest="command", metavar="WORD", required=True)
    parts = {
        name: words.add_parser(name, help=text, description=text, formatter_class=argparse.HelpFormatter)
        for name, text in COMMANDS.items()
    }  # fmt: skip
    for name in ("list", "export"):
        parts[name].add_argument("--filter", metavar="TEXT", default="", help="such as 'env=CartPole and test>=475'")
        parts[name].add_argument("--sort", metavar="FIELD", default="", help="-FIELD begins with the highest")
        parts[name].add_argument("--columns", metavar="A,B", default="", help="fields, keys of configs, metrics")
        parts[name].add_argument("--limit", type=int, metavar="N", default=0, help="so many at most; 0: all")
    for name in ("list", "show", "compare", "diff", "explain"):
        parts[name].add_argument("--json", action="store_true", help="one JSON value on standard output")
    parts["cleanup"].epilog = CLEANUP
    _of_single_words(parts)
    return parser


def _of_single_words(parts: Mapping[str, OneLineParser]) -> None:
    parts["list"].add_argument("--rebuild", action="store_true", help="read every run anew, whatever the index says")
    parts["show"].add_argument("run", metavar="RUN", nargs="?", default="@last")
    parts["compare"].add_argument("runs", metavar="RUN", nargs="+")
    parts["compare"].add_argument("--metrics", metavar="A,B", default="", help="names or their ends, such as entropy")
    parts["compare"].add_argument("--svg", metavar="FILE", default="", help="the curves as a picture")
    parts["export"].add_argument("--format", choices=FORMATS, default="csv", help="csv by default")
    parts["export"].add_argument(
        "--by", choices=("run", "variant"), default="run", help="a line a run, or of its seeds"
    )
    parts["export"].add_argument("--out", metavar="FILE", default="", help="instead of standard output")
    parts["tag"].add_argument("run", metavar="RUN")
    parts["tag"].add_argument("tags", metavar="TAG", nargs="+")
    parts["tag"].add_argument("--remove", action="store_true", help="take these tags away")
    parts["note"].add_argument("run", metavar="RUN")
    parts["note"].add_argument("text", metavar="TEXT", help="'' clears it")
    parts["cleanup"].add_argument("--keep-best", type=int, metavar="N", help="of every ENV:VARIANT, by best evaluation")
    parts["cleanup"].add_argument("--keep-recent", metavar="AGE", help="begun within 12h, 30d or 8w")
    parts["cleanup"].add_argument("--filter", metavar="TEXT", default="", help="only of these runs")
    parts["cleanup"].add_argument("--dry-run", action="store_true", help="say what would go, and delete nothing")
    parts["cleanup"].add_argument("--yes", action="store_true", help="do not ask")
    parts["explain"].add_argument("metric", metavar="METRIC", nargs="?", default="", help="its name or end; none: all")
    parts["diff"].add_argument("runs", metavar="RUN", nargs=2)


def parse_runs(argv: list[str], program: str) -> argparse.Namespace:
    """argv without the program's name; what is unknown or out of range is refused."""
    parser = build_runs_parser(program)
    if argv and not argv[0].startswith("-") and argv[0] not in COMMANDS:
        raise UserError(f"no word {argv[0]!r}{nearest(argv[0], COMMANDS)}; words: {', '.join(COMMANDS)}")
    found, unknown = parser.parse_known_args(joined(argv))
    if unknown:
        raise UserError(f"unknown argument {unknown[0]!r}{nearest(unknown[0], flags_of(parser, found.command))}")
    if not 0 <= getattr(found, "limit", 0) <= MOST:
        raise UserError(f"--limit is a whole number from 0 (all) to {MOST:,}, not {found.limit}")
    if found.command == "tag":
        found.tags = [check_tag(tag) for tag in found.tags]
    if found.command == "export" and found.out:
        _check_out(found.out)
    if found.command == "compare" and found.svg:
        _check_out(found.svg)
    if found.command == "cleanup":
        _check_cleanup(found)
    return found


def joined(argv: list[str]) -> list[str]:
    """`--sort -test` as one word: argparse takes the second for a flag."""
    words: list[str] = []
    for word in argv:
        if words and words[-1] == "--sort" and re.fullmatch(r"-[^-].*", word):
            words[-1] = f"--sort={word}"
        else:
            words.append(word)
    return words


def flags_of(parser: argparse.ArgumentParser, command: str) -> list[str]:
    """The flags that a word takes."""
    [words] = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return [flag for action in words.choices[command]._actions for flag in action.option_strings]


def _check_out(name: str) -> None:
    path = Path(name)
    if "\0" in name or not path.absolute().parent.is_dir():
        raise UserError(f"{name!r}: there is no folder {path.absolute().parent}")
    if path.is_dir():
        raise UserError(f"{name} is a folder; name a file in it")


def _check_cleanup(found: argparse.Namespace) -> None:
    """`recent` in seconds; one of the two must be said, or all would go."""
    if found.keep_best is None and found.keep_recent is None:
        raise UserError("what is to be kept? --keep-best 3, --keep-recent 30d, or both")
    if found.keep_best is not None and not 0 <= found.keep_best <= MOST:
        raise UserError(f"--keep-best is a whole number from 0 to {MOST:,}, not {found.keep_best}")
    age = AGE.fullmatch(found.keep_recent or "0h")
    if not age:
        raise UserError(f"--keep-recent is hours, days or weeks: 12h, 30d, 8w; not {found.keep_recent!r}")
    found.recent = int(age[1]) * HOURS[age[2]] * 3600.0
