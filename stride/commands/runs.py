"""Find, compare and manage stored runs: stride runs list (--help shows all subcommands)

Each subcommand is a function below. A module that only one of them needs is imported in it.
"""

import argparse
import json
import re
import shutil
import sys
from collections.abc import Callable, Sequence

from stride.commands.usage import OneLineParser, check_output_file
from stride.report.ledger.selection import find_runs, refreshed, select
from stride.report.ledger.table import COLUMNS, data, table
from stride.report.ledger.written import write_output
from stride.runstore.run_brief import Brief, Labels, check_tag, read_labels, write_labels
from stride.runstore.run_index import RunIndex
from stride.runstore.run_names import runs_root
from stride.utils import entry
from stride.utils.user_error import UserError, nearest, printable, shortened

EXAMPLES = """\
examples:
  stride runs list --filter 'env=CartPole and test>=475' --sort -test
  stride runs list --filter 'policy_lr<1e-3 age<7d' --columns run,seed,policy_lr,test --json
  stride runs show @last                                all facts about one run
  stride runs compare @last @best --metrics train/policy/entropy --svg curves.svg
  stride runs export --filter env=Acrobot --format latex --by variant
  stride runs tag @last good tuned;  stride runs note @last 'entropy bonus doubled'
  stride runs cleanup --keep-best 3 --keep-recent 30d --dry-run
  stride runs explain train/policy/approx_kl            meaning, unit, bounds, what to try
  stride runs diff RUN RUN                              where two runs of one config first differ
a filter: words to find in a run, and FIELD=VALUE (also !=, <, <=, >, >=). All conditions must hold. VALUE is 400, 20k,
  10m, 2d, 1-5 or a list. Fields: run env seed status result test best score last goal steps took speed age started
  group tag note commit settings id, any config key, and the last value of any metric.
a run: @last, @best[:ENV[:VARIANT]], an id or its start, a folder; commands that take several runs also take group:NAME
"""
CLEANUP = """\
The command lists what it would delete, asks, then checks the files again. It keeps a run that changed meanwhile. It
also keeps runs in training or paused, runs of an unfinished search, the run of @last, runs tagged `keep`, damaged
runs, and every folder that is not a run (a name without date and time, no checkpoints/, no config). The last line
counts what is kept, by reason.
"""
COMMANDS = {
    "list": "list runs, newest first; --filter selects",
    "show": "show all facts about a run",
    "compare": "compare runs: numbers, configs, curves",
    "export": "write the table of runs as csv, latex or json",
    "tag": "add tags to runs, or remove them",
    "note": "write a one-line note about a run, or clear it",
    "cleanup": "delete runs that are neither among the best nor recent; their configs and last metrics are kept",
    "explain": "explain a metric: meaning, bounds that raise an alert, what to try",
    "diff": "show the first row and the first tensor where two runs of one config differ",
}
FORMATS = ("csv", "latex", "json")
AGE = re.compile(r"(\d{1,6})([hdw])")
HOURS = {"h": 1, "d": 24, "w": 168}
MAX_COUNT = 10_000_000  # of --limit and --keep-best
MIN_WIDTH = 80  # characters of a line
MAX_LINES = 50  # of a list on a terminal, without --limit


def build_runs_parser() -> OneLineParser:
    parser = OneLineParser(prog="stride runs", description="Find, compare and manage stored runs.", epilog=EXAMPLES)
    subparsers = parser.add_subparsers(dest="command", metavar="WORD", required=True)
    add = {}  # subcommand -> its add_argument
    for name, text in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=text, description=text, formatter_class=argparse.HelpFormatter)
        subparser.epilog = CLEANUP if name == "cleanup" else None
        add[name] = subparser.add_argument
    for name in ("list", "export"):
        add[name]("--filter", metavar="TEXT", default="", help="for example 'env=CartPole and test>=475'")
        add[name]("--sort", metavar="FIELD", default="", help="sort by FIELD; -FIELD puts the highest first")
        add[name]("--columns", metavar="A,B", default="", help="fields, config keys, metrics")
        add[name]("--limit", type=int, metavar="N", default=0, help="show at most N; 0 shows all")
    for name in ("list", "show", "compare", "diff", "explain"):
        add[name]("--json", action="store_true", help="print one JSON value")
    add["list"]("--rebuild", action="store_true", help="read every run again and rebuild the index")
    add["show"]("run", metavar="RUN", nargs="?", default="@last")
    add["compare"]("runs", metavar="RUN", nargs="+")
    add["compare"]("--metrics", metavar="A,B", default="", help="metric names or their ends, for example entropy")
    add["compare"]("--svg", metavar="FILE", default="", help="write the curves as a picture")
    add["export"]("--format", choices=FORMATS, default="csv", help="default csv")
    add["export"](
        "--by", choices=("run", "variant"), default="run", help="one line per run, or one per variant over its seeds"
    )
    add["export"]("--out", metavar="FILE", default="", help="write to FILE instead of standard output")
    add["tag"]("run", metavar="RUN")
    add["tag"]("tags", metavar="TAG", nargs="+")
    add["tag"]("--remove", action="store_true", help="remove these tags")
    add["note"]("run", metavar="RUN")
    add["note"]("text", metavar="TEXT", help="the note; '' clears it")
    add["cleanup"](
        "--keep-best", type=int, metavar="N", help="keep the N runs of every ENV:VARIANT with the best evaluation"
    )
    add["cleanup"]("--keep-recent", metavar="AGE", help="keep runs started within AGE: 12h, 30d or 8w")
    add["cleanup"]("--filter", metavar="TEXT", default="", help="only consider these runs")
    add["cleanup"]("--dry-run", action="store_true", help="show what would be deleted; delete nothing")
    add["cleanup"]("--yes", action="store_true", help="delete without asking")
    add["explain"](
        "metric", metavar="METRIC", nargs="?", default="", help="its name or the end of it; leave out for all"
    )
    add["diff"]("runs", metavar="RUN", nargs=2)
    return parser


def parse_runs(argv: list[str]) -> argparse.Namespace:
    """Parse argv, without the program's name; UserError if something is unknown or out of range."""
    parser = build_runs_parser()
    if argv and not argv[0].startswith("-") and argv[0] not in COMMANDS:
        raise UserError(
            f"stride runs has no command {argv[0]!r}{nearest(argv[0], COMMANDS)}; commands: {', '.join(COMMANDS)}"
        )
    arguments, unknown = parser.parse_known_args(joined(argv))
    if unknown:
        flags = flags_of(parser, arguments.command)
        raise UserError(f"unknown argument {unknown[0]!r}{nearest(unknown[0], flags)}")
    if not 0 <= getattr(arguments, "limit", 0) <= MAX_COUNT:
        raise UserError(f"--limit must be a whole number from 0 (all) to {MAX_COUNT:,}, not {arguments.limit}")
    if arguments.command == "tag":
        arguments.tags = [check_tag(tag) for tag in arguments.tags]
    for flag in ("out", "svg"):
        check_output_file(f"--{flag}", getattr(arguments, flag, ""))
    if arguments.command == "cleanup":
        _check_cleanup(arguments)
    return arguments


def joined(argv: list[str]) -> list[str]:
    """Join `--sort -test` to one word, because argparse would take -test for a flag."""
    arguments: list[str] = []
    for argument in argv:
        if arguments and arguments[-1] == "--sort" and re.fullmatch(r"-[^-].*", argument):
            arguments[-1] = f"--sort={argument}"
        else:
            arguments.append(argument)
    return arguments


def flags_of(parser: argparse.ArgumentParser, command: str) -> list[str]:
    """Return the flags of a subcommand."""
    [subparsers] = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return [flag for action in subparsers.choices[command]._actions for flag in action.option_strings]


def _check_cleanup(arguments: argparse.Namespace) -> None:
    """Set `recent`, in seconds. One of the two flags is required: without them all runs would be deleted."""
    keep_best, keep_recent = arguments.keep_best, arguments.keep_recent
    if keep_best is None and keep_recent is None:
        raise UserError("say what to keep: --keep-best 3, --keep-recent 30d, or both")
    if keep_best is not None and not 0 <= keep_best <= MAX_COUNT:
        raise UserError(f"--keep-best must be a whole number from 0 to {MAX_COUNT:,}, not {keep_best}")
    age = AGE.fullmatch(keep_recent or "0h")
    if not age:
        raise UserError(f"--keep-recent must be hours, days or weeks (12h, 30d, 8w), not {keep_recent!r}")
    arguments.recent = int(age[1]) * HOURS[age[2]] * 3600.0


def main(argv: list[str]) -> int:
    arguments = parse_runs(argv)
    if lines := SUBCOMMANDS[arguments.command](arguments):
        print("\n".join(map(printable, lines)))  # files of a run may contain control characters
    return 0


def list_runs(arguments: argparse.Namespace) -> list[str]:
    columns = _names(arguments.columns)
    if arguments.rebuild:
        refreshed(RunIndex(), rebuild=True)
    lines, fields = select(arguments.filter, arguments.sort, columns, arguments.limit)
    if arguments.json:
        return [json.dumps([data(line, fields) for line in lines])]
    if not lines:
        return [f"no runs{' that match the filter' if arguments.filter else ''} in {runs_root()}"]
    width = _width()
    shown_lines = lines[:MAX_LINES] if width and not arguments.limit else lines
    output = table(shown_lines, columns or COLUMNS, fields, width)
    output += reasons(shown_lines, width or 2 * MIN_WIDTH)
    if len(shown_lines) < len(lines):
        output.append(f"{len(shown_lines):,} of {len(lines):,} runs; --limit N shows more")
    return output


def reasons(lines: Sequence[Brief], width: int) -> list[str]:
    """Return why runs failed or cannot be read, each reason once; if one is cut, also how to see all of it."""
    ids: dict[str, list[str]] = {}
    for line in lines:
        if line.fault or line.reason:
            ids.setdefault(line.fault or line.reason, []).append(line.id)
    output = []
    is_cut = False
    for reason, run_ids in ids.items():
        others = f" and {len(run_ids) - 1} more" if len(run_ids) > 1 else ""
        text = f"{run_ids[0]}{others}: {printable(reason)}"
        is_cut = is_cut or len(text) > width
        output.append(shortened(text, width))
    return [*output, "stride runs show ID shows everything"] if is_cut else output


def show(arguments: argparse.Namespace) -> list[str]:
    from stride.report.ledger.show import run_data, run_lines

    [run] = find_runs([arguments.run])
    return [json.dumps(run_data(run))] if arguments.json else run_lines(run, _width() or 2 * MIN_WIDTH)


def compare(arguments: argparse.Namespace) -> list[str]:
    from stride.report.ledger.compare import comparison, comparison_data, write_picture

    runs = find_runs(arguments.runs, least=2)
    metrics = _names(arguments.metrics)
    if arguments.svg:
        write_picture(runs, metrics, arguments.svg)
    return (
        [json.dumps(comparison_data(runs, metrics))]
        if arguments.json
        else comparison(runs, metrics, _width() or MIN_WIDTH)
    )


def export(arguments: argparse.Namespace) -> list[str]:
    from stride.report.ledger.export import exported

    columns = _names(arguments.columns)
    lines, fields = select(arguments.filter, arguments.sort, columns, arguments.limit)
    text = exported(lines, columns, fields, arguments.format, arguments.by)
    if not arguments.out:
        sys.stdout.write(text)  # its cells are printable
        return []
    write_output(arguments.out, text)
    return [f"{len(lines):,} runs -> {arguments.out}"]


def tag(arguments: argparse.Namespace) -> list[str]:
    lines = []
    for run in find_runs([arguments.run]):
        labels = read_labels(run.path)
        tags = {*labels.tags} - {*arguments.tags} if arguments.remove else {*labels.tags, *arguments.tags}
        write_labels(run.path, labels._replace(tags=tuple(sorted(tags))))
        lines.append(f"{run.id}: {' '.join(sorted(tags)) or 'no tags'}")
    return lines


def note(arguments: argparse.Namespace) -> list[str]:
    [run] = find_runs([arguments.run])
    write_labels(run.path, Labels(read_labels(run.path).tags, arguments.text))
    return [f"{run.id}: {arguments.text or 'no note'}"]


def cleanup(arguments: argparse.Namespace) -> list[str]:
    from stride.report.ledger.cleanup import clean

    def read() -> Sequence[Brief]:
        return select(arguments.filter, index=RunIndex(kept=False)).lines

    return clean(read, arguments.keep_best, arguments.recent, arguments.dry_run, arguments.yes)


def explain(arguments: argparse.Namespace) -> list[str]:
    from stride.report.ledger.explain import explained, explained_data

    return [json.dumps(explained_data(arguments.metric))] if arguments.json else explained(arguments.metric)


def diff(arguments: argparse.Namespace) -> list[str]:
    from stride.agents.trained.tensors import first_tensor  # imports torch
    from stride.report.ledger.diff import configs, difference_lines, first_row

    first, second = find_runs(arguments.runs, least=2)
    differences = {
        "configs": configs(first, second),
        "row": first_row(first, second),
        "tensor": first_tensor(first, second),
    }
    return [json.dumps(differences)] if arguments.json else difference_lines(first.id, second.id, differences)


SUBCOMMANDS: dict[str, Callable[[argparse.Namespace], Sequence[str]]] = {
    "list": list_runs, "show": show, "compare": compare, "export": export, "tag": tag, "note": note,
    "cleanup": cleanup, "explain": explain, "diff": diff,
}  # fmt: skip


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _width() -> int | None:
    """Return the terminal's columns, None in a pipe, where programs need complete lines."""
    return max(MIN_WIDTH, shutil.get_terminal_size((MIN_WIDTH, 24)).columns) if sys.stdout.isatty() else None


if __name__ == "__main__":
    entry.run_and_leave(main)
