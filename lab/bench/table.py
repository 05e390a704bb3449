"""Reads the records of lab.bench.beside in docs/benchmarks and makes a Markdown table of them. No torch.

There is a file for each instruction set; each row in it names its own machine and commit.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lab.bench.ratio import Ratio
from stride.utils.places import PROJECT

FOLDER = PROJECT / "docs" / "benchmarks"
FILES = ("beside-avx-512.json", "beside-avx2.json", "beside-avx2-forced.json")  # the first that exists is shown
HEAD = (
    "work", "Stride: whole call (fit)", "best peer", "ratio: whole call", "ratio: fit", "goal",
    "wall (CPU) s: Stride", "peer", "others", "of the registers' limit",
)  # fmt: skip
LABELS = {"purejaxrl style": "PureJaxRL's way", "sbx": "SBX", "sb3": "SB3", "cleanrl style": "CleanRL's way"}
MS = "ms an update"  # a unit: time of the updates alone; other units are rates
Record = dict[str, Any]


def file_of(instruction_set: str) -> Path:
    """Return the file of an instruction set: FOLDER/beside-avx2-forced.json for "AVX2 forced"."""
    return FOLDER / f"beside-{instruction_set.lower().replace(' ', '-')}.json"


def files(folder: Path = FOLDER) -> list[Path]:
    return [folder / name for name in FILES if (folder / name).is_file()]


def rows_of(algorithm: str, folder: Path = FOLDER) -> dict[str, Record]:
    """Return the rows of an algorithm ("ppo") in all files, under "FILE ROW"."""
    rows = {}
    for file in files(folder):
        for name, record in read(file).items():
            if name.partition("-")[0] == algorithm:
                rows[f"{file.stem} {name}"] = record
    return rows


def read(file: Path) -> dict[str, Record]:
    rows: dict[str, Record] = json.loads(file.read_text(encoding="utf-8"))["rows"]
    return rows


def best_of(record: Record) -> str:
    """Return the fastest peer by the median of its turns; "" if none was installed."""
    peers = record["ratios"]
    return max(peers, key=lambda name: record["contenders"][name][record["clock"]]["median"], default="")


def summary(record: Record) -> str:
    """Return a row in a few words: Stride's rate, and its ratio to that of the best peer."""
    clock, best = record["clock"], best_of(record)
    mine = rate(record["contenders"][record["ours"]][clock]["median"], record)
    return f"{mine}, {Ratio(**record['ratios'][best][clock])} times {label(best)}" if best else mine


def label(name: str) -> str:
    """Return a contender's name for people: "SB3, 2 thread(s)" for "sb3, 2 thread(s)"."""
    first, comma, rest = name.partition(",")
    return LABELS.get(first, first) + comma + rest


def markdown(rows: Mapping[str, Record]) -> str:
    """Return a table for each machine, instruction set, number of threads and commit, below a line that names them."""
    groups: dict[str, list[Record]] = {}
    for record in rows.values():
        groups.setdefault(place_of(record), []).append(record)
    parts = [f"{place}:\n\n{_table(group)}" for place, group in groups.items()]
    return "\n\n".join(parts)


def place_of(record: Record) -> str:
    """Return what a row was measured on: processor, cores, instruction set, threads, commit, date, turns, limit."""
    machine = record["machine"].partition("\n")[0]
    commit, changes, _ = record["commit"].partition("+")
    limits = []
    for limit in record["limits"]:
        share = limit["products"] / limit["registers"]
        limits.append(
            f"{limit['registers'] / 1e9:,.0f} on {limit['threads']} thread(s), our products {share:.0%} of it"
        )
    place = f"{machine}, commit {commit[:8]}{changes and ' with changes'}, {record['date']}, {record['turns']} turns"
    return f"{place}. Registers multiply and add at so many GFLOP/s: {'; '.join(limits)}"


def _table(group: Iterable[Record]) -> str:
    lines = [HEAD, ("---",) * len(HEAD), *map(cells, group)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cells(record: Record) -> tuple[str, ...]:
    """Return a row of the table, a cell for each column of HEAD; stepping without training has no "fit"."""
    clock, contenders, best = record["clock"], record["contenders"], best_of(record)
    rates = {name: rate(figures[clock]["median"], record) for name, figures in contenders.items()}
    mine = contenders[record["ours"]]
    has_fit = clock == "whole" and record["unit"] != MS
    first = rates[record["ours"]] + (f" ({rate(mine['fit']['median'], record)})" if has_fit else "")
    share = "" if record["share"] is None else f"{record['share']:.0%}"
    if not best:
        return record["title"], first, "not installed", "", "", goal(record), seconds(mine), "", "", share
    ratios = {name: {key: Ratio(**ratio) for key, ratio in clocks.items()} for name, clocks in record["ratios"].items()}
    whole, fit = str(ratios[best][clock]), str(ratios[best]["fit"]) if has_fit else ""
    others = "; ".join(
        f"{label(name)} {rates[name]} = {ratios[name][clock].median:,.2f}x" for name in ratios if name != best
    )
    costs = seconds(mine), seconds(contenders[best])
    return record["title"], first, f"{label(best)} {rates[best]}", whole, fit, goal(record), *costs, others, share


def rate(value: float, record: Record) -> str:
    """Return a rate with its unit; for the unit MS, `value` updates per second as milliseconds an update."""
    if record["unit"] == MS:
        return f"{1e3 / value:,.1f} ms"
    return f"{value:,.0f} {record['unit']}" if value >= 100 else f"{value:.3g} {record['unit']}"


def seconds(figures: Mapping[str, Any]) -> str:
    return f"{figures['whole_seconds']['median']:,.2f} ({figures['cpu_seconds']['median']:,.2f})"


def goal(record: Record) -> str:
    """Return the row's goal, and whether it is reached: "3x SB3: reached"."""
    wanted, against = record["goal"], record["against"] or best_of(record)
    if record["unit"] == MS:
        value = 1e3 / record["contenders"][record["ours"]][record["clock"]]["median"]
        return f"{wanted:g} ms: {'reached' if value <= wanted else 'missed'}"
    if against not in record["ratios"]:
        return f"{wanted:g}x"
    reached = record["ratios"][against][record["clock"]]["median"] >= wanted
    return f"{wanted:g}x {label(against)}: {'reached' if reached else 'missed'}"
