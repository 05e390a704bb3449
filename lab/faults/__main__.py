"""Plants a fault many times and counts how often all was right afterwards:   python -m lab.faults kill --trials 200

    python -m lab.faults NAME --help      which fault it plants, and its options
    python -m lab.faults NAME --record    also writes the counts into docs/reliability.md

NAME is one of these; each is a function in lab/faults that plants a fault and judges the result: {names}.
Exit code 0: all was right.
"""

import random
import shutil
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from lab.faults.record import Report, record
from stride.commands.usage import parser_of
from stride.utils import entry
from stride.utils.provenance import git_hash
from stride.utils.user_error import UserError, nearest


class Scenario(NamedTuple):
    """A kind of fault: `run(counts, random generator, empty folder)` plants it and returns a Report."""

    title: str  # of its section in docs/reliability.md
    counts: dict[str, int]  # option -> default, for example {"trials": 200, "groups": 10}
    place: str = ""  # module.function in lab/faults; "": the function `run` of the module with this name


SCENARIOS = {
    "audience": Scenario("A training with monitors", {"windows": 12, "limit": 1}, "monitor.audience"),
    "circumstances": Scenario(
        "Other circumstances",
        {"references": 16, "environments": 15, "limits": 15, "stops": 6, "resumes": 6, "cases": 45},
    ),
    "damage": Scenario("Damaged files", {"flips": 500, "cuts": 200}, "hostile.damage"),
    "disk": Scenario("Full and read-only disks", {"levels": 20}),
    "door": Scenario("Requests to the inspector", {}),
    "endurance": Scenario("A long training", {"seconds": 180}, "monitor.endurance"),
    "environments": Scenario("Environments that fail", {"faults": 58}),
    "folder": Scenario("Hostile run folders", {"cases": 1000, "each": 7}),
    "fuzz": Scenario("Wrong configs, hostile run ids", {"commands": 200, "ids": 60, "words": 20_000}),
    "hostile": Scenario("Hostile checkpoints", {"files": 100}),
    "hosts": Scenario("Two machines, one folder", {"races": 100, "stale": 20}, "races.hosts"),
    "inspector": Scenario("Damaged runs in the inspector", {"runs": 10_000}, "folder.inspector"),
    "kill": Scenario("Killed and resumed", {"trials": 200, "groups": 10}),
    "leaks": Scenario("Secrets in what is published", {"fills": 20}),
    "monitor": Scenario(
        "metrics.mmap, read while it is written",
        {"reads": 1_000_000, "kills": 200, "replacements": 100, "steps": 1_000_000},
    ),
    "nan": Scenario("Non-finite numbers", {"runs": 333}),
    "nodes": Scenario("Nodes of a cluster", {"kills": 20}, "pauses.nodes"),
    "pauses": Scenario("Pauses", {"trials": 200}),
    "races": Scenario("Many processes at once", {"processes": 100, "lookups": 100_000, "trainings": 6}),
    "signals": Scenario("SIGTERM, Ctrl-C and SIGHUP", {"trials": 50, "groups": 24}, "kill.signals"),
    "trackers": Scenario("Trackers", {"pairs": 5, "steps": 400_000}),
}


def scenario_function(name: str) -> tuple[Callable[..., Report], str]:
    """Return the function that a name stands for, and its description for --help."""
    module, _, attribute = (SCENARIOS[name].place or f"{name}.run").partition(".")
    source = import_module(f"lab.faults.{module}")
    function: Callable[..., Report] = getattr(source, attribute)
    return function, (function.__doc__ if SCENARIOS[name].place else source.__doc__) or ""


def main(argv: list[str]) -> int:
    if not argv or argv[0].startswith("-"):
        parser = parser_of((__doc__ or "").format(names=", ".join(SCENARIOS)))
        parser.add_argument("name", metavar="NAME", help="what goes wrong; its own words follow")
        parser.parse_args(argv)
    name, *options = argv
    if name not in SCENARIOS:
        raise UserError(f"no fault {name!r}{nearest(name, SCENARIOS)}")
    scenario = SCENARIOS[name]
    function, about = scenario_function(name)
    parser = parser_of(about)
    parser.prog = f"{parser.prog} {name}"
    for option, default in scenario.counts.items():
        parser.add_argument(f"--{option}", type=int, default=default, metavar="N", help=f"default {default:,}")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of what is drawn (default 0)")
    parser.add_argument("--record", action="store_true", help="write the figures into docs/reliability.md")
    parsed, commit = parser.parse_args(options), git_hash()  # before it runs: the checkout may move
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    try:
        counts = {option: getattr(parsed, option) for option in scenario.counts}
        lines, good = function(counts, random.Random(parsed.seed), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(lines))
    if parsed.record:
        record(name, scenario.title, lines, commit)
    return 0 if good else 1


if __name__ == "__main__":
    entry.run(main)
