"""Writes config/bands.json: of docs/results what the product needs, the shipped seeds' curves and what they reached.

`python -m lab.evidence.bands` takes docs/results as it stands; `python -m lab.evidence` does it at its end.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stride.commands.usage import parser_of
from stride.config.bands import FILE, Curve
from stride.runstore.run_facts import finite, mapping
from stride.utils import entry
from stride.utils.durable_file import read_json
from stride.utils.provenance import PROJECT

RESULTS = PROJECT / "docs" / "results"


def main(argv: list[str]) -> int:
    parser_of(__doc__).parse_args(argv)
    FILE.write_text(text(RESULTS), encoding="utf-8")
    return 0


def text(folder: Path) -> str:
    found = {name: band for path in sorted(folder.glob("*.json")) for name, band in band_of(path).items()}
    lines = [f"{json.dumps(name)}: {json.dumps(band, separators=(',', ':'))}" for name, band in found.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def band_of(path: Path) -> dict[str, dict[str, Any]]:
    data = mapping(read_json(path))
    if data.get("overrides"):
        return {}
    summary = mapping(data["summary"])
    curves = [curve_of(mapping(seed.get("curve"))) for seed in mapping(data["seeds"]).values()]
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
