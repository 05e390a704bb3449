"""Implement `stride runs diff`: the first row of metrics.csv and the first tensor in which two runs differ.

Metrics that depend on wall time are ignored. Two runs with equal config, seed and machine should not differ.
"""

import math
from collections.abc import Mapping
from typing import Any

from stride.config.metrics import load_metrics
from stride.report.ledger.compare import differences
from stride.report.ledger.table import joined_pairs, plain
from stride.runstore.metrics_table import STEPS, read_csv
from stride.runstore.run_dir import RunDir

CIRCUMSTANCES = ("engine", "device", "env_backend", "git_hash", "versions", "host", "parent")


def configs(first: RunDir, second: RunDir) -> dict[str, list[str]]:
    """Return the config keys, seed and circumstances (versions, host, ..) that differ, with both values."""
    both_facts = (first.facts(), second.facts())
    result = {config_key: [*values] for config_key, values in differences(both_facts).items()}
    for config_key in ("seed", *CIRCUMSTANCES):
        values = [joined_pairs(facts.get(config_key)) for facts in both_facts]
        if values[0] != values[1]:
            result[config_key] = values
    return result


def first_row(first: RunDir, second: RunDir) -> dict[str, object]:
    """Return the first row that differs and its differing metrics; if none differs, the number of rows of both."""
    ignored = {metric_name for metric_name, metric in load_metrics().items() if metric.wall_time}
    first_rows = read_csv(first.metrics_csv)
    second_rows = read_csv(second.metrics_csv)
    for number, (csv_row, other_row) in enumerate(zip(first_rows, second_rows, strict=False), 1):
        metrics = {}
        for metric_name in {**csv_row, **other_row}:
            values = [csv_row.get(metric_name), other_row.get(metric_name)]
            if metric_name not in ignored and not _is_same(*values):
                metrics[metric_name] = values
        if metrics:
            return {"row": number, "env_steps": csv_row.get(STEPS, other_row.get(STEPS)), "metrics": metrics}
    counts = [len(first_rows), len(second_rows)]
    return {"rows": counts, "alike": min(counts)}


def difference_lines(first: str, second: str, result: Mapping[str, Any]) -> list[str]:
    """Return lines of text. `result`: {"configs": .., "row": .., "tensor": ..}, what `configs`, `first_row` and
    `first_tensor` returned."""
    text_lines = [f"A  {first}", f"B  {second}", ""]
    text_lines += [f"{config_key}: {value} | {other}" for config_key, (value, other) in result["configs"].items()]
    if not result["configs"]:
        text_lines.append("same config, same seed, same machine and versions")
    csv_row = result["row"]
    if "metrics" in csv_row:
        env_steps = plain(csv_row["env_steps"] or 0)
        text_lines.append(f"row {csv_row['row']}, at {env_steps} env steps, is the first that differs:")
        for metric_name, (value, other) in csv_row["metrics"].items():
            text_lines.append(f"  {metric_name}: {_number(value)} | {_number(other)}")
    else:
        count, other_count = csv_row["rows"]
        counts = "" if count == other_count else f"; {count} | {other_count} rows"
        text_lines.append(f"all {csv_row['alike']} rows are the same{counts}")
    tensor = result["tensor"]
    if "name" in tensor:
        metric_name = f"{tensor['name']}{tensor['place'] or ''}"
        most = "" if tensor["most"] is None else f", this one by at most {tensor['most']:.3g}"
        text_lines.append(f"tensor {metric_name} of {tensor['checkpoint']} is the first that differs:")
        text_lines.append(f"  {tensor['first']} | {tensor['second']}")
        text_lines.append(f"  {tensor['differing']} of {tensor['tensors']} tensors differ{most}")
    elif tensor["checkpoints"]:
        text_lines.append(f"all tensors of {', '.join(tensor['checkpoints'])} are the same")
    else:
        text_lines.append("they have no checkpoint in common")
    return text_lines


def _is_same(value: float | None, other: float | None) -> bool:
    """Return whether both are missing, both NaN, or equal."""
    if value is None or other is None:
        return value is other
    return value == other or (math.isnan(value) and math.isnan(other))


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.9g}"
