"""Where two runs of one config part: the first row of metrics.csv that is not the same, whatever a clock measured."""

import math
from collections.abc import Mapping
from typing import Any

from stride.config.metrics import load_metrics
from stride.report.ledger.compare import differences
from stride.report.ledger.table import plain
from stride.runstore.metrics_table import STEPS, read_csv
from stride.runstore.run_dir import RunDir

CIRCUMSTANCES = ("engine", "device", "env_backend", "git_hash", "versions", "host", "parent")


def configs(first: RunDir, second: RunDir) -> dict[str, list[str]]:
    """Keys of the configs and facts about the circumstances that are not the same; also the seed."""
    both = [run.facts() for run in (first, second)]
    found = {key: [*values] for key, values in differences((first, second)).items()}
    seeds = [str(facts.get("seed")) for facts in both]
    found |= {"seed": seeds} if len({*seeds}) > 1 else {}
    told = {key: [_said(facts.get(key)) for facts in both] for key in CIRCUMSTANCES}
    return found | {key: values for key, values in told.items() if len({*values}) > 1}


def first_row(first: RunDir, second: RunDir) -> dict[str, object]:
    """The first row that differs and what of it does; {} where there is none, but for what one has more."""
    timed = {name for name, metric in load_metrics().items() if metric.wall_time}
    left, right = (
        [{name: value for name, value in row.items() if name not in timed} for row in read_csv(run.metrics_csv)]
        for run in (first, second)
    )
    for place, (mine, theirs) in enumerate(zip(left, right, strict=False), 1):
        apart = [name for name in {**mine, **theirs} if not _same(mine.get(name), theirs.get(name))]
        if apart:
            return {
                "row": place, "env_steps": mine.get(STEPS, theirs.get(STEPS)),
                "metrics": {name: [mine.get(name), theirs.get(name)] for name in apart},
            }  # fmt: skip
    return {"rows": [len(left), len(right)], "alike": min(len(left), len(right))}


def in_words(first: str, second: str, found: Mapping[str, Any]) -> list[str]:
    """What `configs`, `first_row` and `first_tensor` found."""
    lines = [f"A  {first}", f"B  {second}", ""]
    lines += [f"{key}: {mine} | {theirs}" for key, (mine, theirs) in found["configs"].items()]
    lines += [] if found["configs"] else ["one config, one seed, the same circumstances"]
    row, tensor = found["row"], found["tensor"]
    if "metrics" in row:
        lines.append(f"row {row['row']}, at {plain(row['env_steps'] or 0)} env steps, is the first that differs:")
        lines += [f"  {name}: {_shown(mine)} | {_shown(theirs)}" for name, (mine, theirs) in row["metrics"].items()]
    else:
        mine, theirs = row["rows"]
        lines.append(f"all {row['alike']} rows are the same" + ("" if mine == theirs else f"; {mine} | {theirs} rows"))
    if "name" in tensor:
        where = f"{tensor['name']}{tensor['place']}" if tensor["place"] else tensor["name"]
        most = "" if tensor["most"] is None else f", this one by {tensor['most']:.3g} at most"
        lines.append(f"tensor {where} of {tensor['checkpoint']} is the first that differs:")
        lines.append(f"  {tensor['first']} | {tensor['second']}")
        lines.append(f"  {tensor['differing']} of {tensor['tensors']} tensors differ{most}")
    elif tensor["checkpoints"]:
        lines.append(f"all tensors of {', '.join(tensor['checkpoints'])} are the same")
    else:
        lines.append("they have no checkpoint in common")
    return lines


def _same(mine: float | None, theirs: float | None) -> bool:
    return mine == theirs or (mine is not None and theirs is not None and math.isnan(mine) and math.isnan(theirs))


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.9g}"


def _said(value: object) -> str:
    return ", ".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, dict) else str(value)
