"""How much do results change with three config keys? Trains the ten cheapest variants, each key at four values.

    python -m lab.evidence.sensitivity                 trains what is missing, writes docs/results/sensitivity.json
    python -m lab.evidence.sensitivity --seeds 0       what is measured, nothing is trained

One key is changed at a time; budgets are whole. The three seeds are from those for tuning (100, 101, 102), so no seed
of evidence is spent. Trainings are kept in build/sensitivity and used again until the code changes.
"""

import os
from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

from lab.evidence.file import Evidence, configured, file_stem
from lab.evidence.report import score_text, table
from lab.evidence.rows import GENERAL, ROWS, Row
from lab.evidence.runs import RESULTS
from lab.evidence.trainings import train
from stride.commands.usage import parser_of
from stride.config.schema import Config
from stride.utils import entry
from stride.utils.durable_file import read_json, write_json
from stride.utils.provenance import PROJECT, git_hash, source_hash

FILE = RESULTS / "sensitivity.json"
TRAININGS = PROJECT / "build" / "sensitivity"
SEEDS, VARIANTS = (100, 101, 102), 10
FACTORS = {
    "policy_lr": (0.1, 0.3, 3, 10),
    "n_steps": (0.25, 0.5, 2, 4),
    "n_envs": (0.25, 0.5, 2, 4),
}  # of the shipped value
VALUES = {"gamma": (0.9, 0.97, 0.99, 0.999), "n_epochs": (1, 4, 10, 20), "epsilon": (0.02, 0.1, 0.3, 0.6)}
KEYS = {"ppo": ("policy_lr", "gamma", "n_epochs"), "q_learning": ("gamma", "epsilon", "n_envs")}
OTHER_KEYS = ("policy_lr", "gamma", "n_steps")
SHIPPED = "shipped"


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=len(SEEDS), metavar="N", help="how many (default 3)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="trainings side by side")
    arguments = parser.parse_args(argv)
    if arguments.seeds:
        result = {row.variant: measured(row, arguments.seeds, arguments.workers) for row in cheapest()}
        write_json(FILE, {"git_hash": git_hash(), "seeds": SEEDS[: arguments.seeds], "variants": result})
    print("\n\n".join(section()) or "nothing is measured yet")
    return 0


def cheapest() -> list[Row]:
    """Return the rows of the shipped variants whose runs take the fewest seconds, VARIANTS of them."""
    return sorted((row for row in ROWS if row.family != GENERAL), key=lambda row: row.seconds)[:VARIANTS]


def changes(config: Config) -> Iterator[tuple[str, str, str]]:
    """Yield (key, value for the page, override) of each change, for example ("policy_lr", "0.1 x", "policy_lr=3e-05").

    A learning rate with a linear schedule keeps one: "lin_3e-05".
    """
    for key in KEYS.get(config.algo_id, OTHER_KEYS):
        for factor in FACTORS.get(key, ()):
            start = getattr(vars(config)[key], "start_value", vars(config)[key])
            text = f"{start * factor:.3g}" if isinstance(start, float) else f"{round(start * factor)}"
            falls = "lin_" if start is not vars(config)[key] else ""
            yield key, f"{factor:g} x", f"{key}={falls}{text}"
        for value in VALUES.get(key, ()):
            yield key, f"{value:g}", f"{key}={value}"


def measured(row: Row, seeds: int, workers: int) -> dict[str, dict[str, list[float]]]:
    """Train a row with each change; return key -> value -> the finished seeds' scores. Shipped settings come first."""
    result = {SHIPPED: {"": scores(row, [], seeds, workers)}}
    for key, value, override in changes(row.config()):
        result.setdefault(key, {})[value] = scores(row, [override], seeds, workers)
    return result


def scores(row: Row, overrides: list[str], seeds: int, workers: int) -> list[float]:
    """Train what is missing of a row with `overrides`; return each finished seed's score.

    A score is the exact value if it is known, else the mean of 100 fresh episodes with the final weights.
    """
    folder = TRAININGS / source_hash()[:10] / (file_stem("-".join(overrides)) or SHIPPED)
    all_overrides = [*row.overrides, *overrides]
    path = folder / f"{file_stem(row.variant)}.json"
    evidence = Evidence.begin(path, row.variant, configured(row.variant, all_overrides), all_overrides)
    train({row.variant: evidence}, folder, SEEDS[:seeds], workers)
    return [record["final"].get("exact", record["final"]["mean"]) for record in evidence.finished()]


def page_part(data: Mapping[str, Any]) -> list[str]:
    """Return the section "Sensitivity" of docs/results.md, with a row for each variant and key."""
    rows = [("variant", "shipped", "key", "mean at each value")]
    for variant, keys in data["variants"].items():
        shipped = score_text(fmean(keys[SHIPPED][""]))
        for key, values in keys.items():
            if key != SHIPPED:
                means = ", ".join(
                    f"{value}: {score_text(fmean(scores))}" if scores else f"{value}: failed"
                    for value, scores in values.items()
                )
                rows.append((variant, shipped, f"`{key}`", means))
    text = f"One key changed at a time, whole budgets, seeds {data['seeds'][0]} to {data['seeds'][-1]} of tuning, "
    return ["## Sensitivity", f"{text}measured at {data['git_hash'][:10]}.", table(rows)]


def section() -> list[str]:
    """Return the section from the recorded file; [] if nothing was measured."""
    return page_part(read_json(FILE)) if FILE.is_file() else []


if __name__ == "__main__":
    entry.run(main)
