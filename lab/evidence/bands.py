"""Writes config/bands.json: of docs/results what the product needs, the shipped seeds' curves and what they reached.

`python -m lab.evidence.bands` takes docs/results as it stands; `python -m lab.evidence` does it at its end.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.evidence.file import OWN_FILES
from stride.commands.usage import parser_of
from stride.config.bands import FILE, Curve
from stride.runstore.run_facts import finite, mapping
from stride.utils import entry
from stride.utils.durable_file import read_json
from stride.utils.provenance import PROJECT

# with these changed it is still the variant, but for its length: what it reached is listed
BUDGETS = ("max_timesteps", "test_episodes", "early_stop_on_eval_threshold", "eval_freq_epochs", "eval_episodes")
RESULTS = PROJECT / "docs" / "results"


def main(argv: list[str]) -> int:
    parser_of(__doc__).parse_args(argv)
    FILE.write_text(text(RESULTS), encoding="utf-8")
    return 0


def text(folder: Path) -> str:
    paths = [*sorted(folder.glob("*.json")), *sorted(folder.glob("models/*.json"))]
    found = {name: band for path in paths for name, band in band_of(path).items()}
    lines = [f"{json.dumps(name)}: {json.dumps(band, separators=(',', ':'))}" for name, band in found.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def band_of(path: Path) -> dict[str, dict[str, Any]]:
    data = mapping(read_json(path))
    changed = [override.partition("=")[0] for override in data.get("overrides", ())]
    if data["variant"] in OWN_FILES or any(key not in BUDGETS for key in changed):
        return {}
    summary = mapping(data["summary"])
    # the curve of another budget is not what a run of the shipped one looks like
    seeds = () if changed else mapping(data["seeds"]).values()
    curves = [curve_of(mapping(seed.get("curve"))) for seed in seeds]
    return {
        str(data["variant"]).replace("/", "-"): {
            "reached": finite(mapping(summary.get("final")).get("iqm")),
            "solved": summary["solved"],
            "seeds": summary["finished"] + summary["failed"],
            "config": data["config"],
            "curves": [curve for curve in curves if curve],
        }
    }


def curve_of(seed: Mapping[str, Any]) -> Curve:
    """The evaluations; training's returns where there were none."""
    for name in ("val", "train"):
        points = [(finite(x), finite(y)) for x, y in seed.get(name) or ()]
        curve = [(x, y) for x, y in points if x is not None and y is not None]
        if curve:
            return sorted(curve)
    return []


if __name__ == "__main__":
    entry.run(main)
