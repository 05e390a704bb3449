"""Plants a fault many times and counts how often all was right afterwards:   python -m lab.faults kill --trials 200

    python -m lab.faults NAME --help      what it plants, and what it can be told
    python -m lab.faults NAME --record    also writes the counts into docs/reliability.md

NAME is one of these, a function of lab/faults each, which plants and judges: {names}.
Exit code 0: all was right.
"""

import random
import shutil
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from lab.faults.record import Told, record
from stride.commands.usage import parser_of
from stride.utils import entry
from stride.utils.provenance import git_hash
from stride.utils.user_error import UserError, nearest


class Scenario(NamedTuple):
    title: str  # of its section in docs/reliability.md
    counts: dict[str, int]  # how often what is planted
    place: str = ""  # module.function of lab/faults, where it is not `run` of the module of its name


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


def found(name: str) -> tuple[Callable[..., Told], str]:
    """What a name stands for, and what it says of itself."""
    module, _, function = (SCENARIOS[name].place or f"{name}.run").partition(".")
    home = import_module(f"lab.faults.{module}")
    plants: Callable[..., Told] = getattr(home, function)
    return plants, (plants.__doc__ if SCENARIOS[name].place else home.__doc__) or ""


def main(argv: list[str]) -> int:
    if not argv or argv[0].startswith("-"):
        parser = parser_of((__doc__ or "").format(names=", ".join(SCENARIOS)))
        parser.add_argument("name", metavar="NAME", help="what goes wrong; its own words follow")
        parser.parse_args(argv)
    name, *words = argv
    if name not in SCENARIOS:
        raise UserError(f"no fault {name!r}{nearest(name, SCENARIOS)}")
    scenario = SCENARIOS[name]
    plants, about = found(name)
    parser = parser_of(about)
    parser.prog = f"{parser.prog} {name}"
    for count, default in scenario.counts.items():
        parser.add_argument(f"--{count}", type=int, default=default, metavar="N", help=f"default {default:,}")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of what is drawn (default 0)")
    parser.add_argument("--record", action="store_true", help="write the figures into docs/reliability.md")
    options, commit = parser.parse_args(words), git_hash()  # before it runs: the checkout may move
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    try:
        counts = {count: getattr(options, count) for count in scenario.counts}
        lines, good = plants(counts, random.Random(options.seed), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(lines))
    if options.record:
        record(name, scenario.title, lines, commit)
    return 0 if good else 1


if __name__ == "__main__":
    entry.run(main)
