"""How much each room of the house may weigh at most: lines of code and syntax nodes, in lab/weight.toml.

    python -m lab.weight                      every room beside its limits; exit code 1 where one is above
    python -m lab.weight --write              lower limits where rooms have become lighter
    python -m lab.weight --write --for S14    also higher limits; that row of the mission is written beside them

A room is a top-level folder, or one of ROOMS within it. Limits are rounded up to 50 lines and 500 nodes. Only lines of
code are counted: nobody shall leave out a docstring or a comment to save a line.
"""

import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from lab.house import code_lines
from lab.house_rules import House, product_files, read_house, read_source
from stride.commands.usage import parser_of
from stride.utils import entry
from stride.utils.places import ROOT

FILE = ROOT / "lab" / "weight.toml"
ROOMS: tuple[str, ...] = ("agents/engines", "agents/experience", "agents/networks", "agents/playing", "agents/trained")
ROOMS += ("envs_gym/check", "envs_gym/wrappers", "report/ledger", "report/monitor", "report/trackers", "runstore/many")
ROOMS += ("lab/bench", "lab/evidence", "lab/faults", "lab/gpu", "lab/site")
STEPS = (50, 500)  # of lines, of nodes
HEAD = """\
# What each room may weigh at most: lines of code, syntax nodes, and the row of the mission that the last raise was for.
# tests/lab/test_weight.py fails above. Written by `python -m lab.weight --write`; a raise takes `--for ROW`.

"""


class Weight(NamedTuple):
    lines: int
    nodes: int
    row: str = ""  # of the mission, for which the limits were raised

    def above(self, limit: "Weight") -> bool:
        return self.lines > limit.lines or self.nodes > limit.nodes

    def rounded(self) -> "Weight":
        lines, nodes = (-(-value // step) * step for value, step in zip(self[:2], STEPS, strict=True))
        return Weight(lines, nodes, self.row)


def weigh(root: Path) -> dict[str, Weight]:
    """Every room of a checkout by its path; files at the top are the room `.`"""
    house: House = read_house(root)
    sources = [*house.values(), *(read_source(root, path) for path in product_files(root / "tests"))]
    lines, nodes = defaultdict[str, int](int), defaultdict[str, int](int)
    for source in sources:
        room = room_of(source.path)
        lines[room] += code_lines(source)
        nodes[room] += len(source.nodes)
    return {room: Weight(lines[room], nodes[room]) for room in sorted(lines)}


def room_of(path: str) -> str:
    """`agents/engines` of agents/engines/plan/dqn.py, `agents` of agents/ppo.py, `.` of train.py."""
    folder, *_ = [room for room in ROOMS if path.startswith(f"{room}/")] or [path.partition("/")[0]]
    return "." if folder == path else folder


def read_limits(file: Path = FILE) -> dict[str, Weight]:
    table = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return {room: Weight(values["lines"], values["nodes"], values["for"]) for room, values in table.items()}


def complaints(weights: Mapping[str, Weight], limits: Mapping[str, Weight]) -> Iterator[str]:
    """A line for every room that has no limits or is above them, and for limits of a room that is not there."""
    for room, weight in weights.items():
        limit = limits.get(room)
        if limit is None:
            yield f"{room}: no limits in {FILE.name}"
        elif weight.above(limit):
            most = f"{limit.lines:,} and {limit.nodes:,}"
            yield f"{room}: {weight.lines:,} lines and {weight.nodes:,} nodes, above {most}"
    for room in limits:
        if room not in weights:
            yield f"{room}: there is no such room"


def new_limits(weights: Mapping[str, Weight], limits: Mapping[str, Weight], row: str) -> dict[str, Weight]:
    """Lower ones where rooms became lighter; with a row of the mission also higher ones."""
    result = {}
    for room, weight in weights.items():
        wanted, limit = weight.rounded(), limits.get(room)
        if limit is None or (row and weight.above(limit)):
            result[room] = wanted._replace(row=row)
        else:
            result[room] = Weight(min(limit.lines, wanted.lines), min(limit.nodes, wanted.nodes), limit.row)
    return result


def text_of(limits: Mapping[str, Weight]) -> str:
    rooms = []
    for room, limit in limits.items():
        rooms.append(f'["{room}"]\nlines = {limit.lines:_}\nnodes = {limit.nodes:_}\nfor = "{limit.row}"\n')
    return HEAD + "\n".join(rooms)


def main(argv: list[str]) -> int:
    """Exit code: 1 where a room is above its limits."""
    parser = parser_of(__doc__)
    parser.add_argument("--write", action="store_true", help="write lower limits, with --for also higher ones")
    parser.add_argument("--for", dest="row", default="", metavar="ROW", help="row of the mission that a raise is for")
    arguments = parser.parse_args(argv)
    weights, limits = weigh(ROOT), read_limits()
    if arguments.write:
        limits = new_limits(weights, limits, arguments.row)
        FILE.write_text(text_of(limits), encoding="utf-8")
    for room, weight in weights.items():
        limit = limits.get(room, Weight(0, 0))
        print(f"{room:<18} {weight.lines:>6,} of {limit.lines:>6,} lines {weight.nodes:>8,} of {limit.nodes:>8,} nodes")
    above = [*complaints(weights, limits)]
    print(*above, sep="\n", file=sys.stderr)
    return int(bool(above))


if __name__ == "__main__":
    entry.run(main)
