"""Holds metrics.yaml to its rules; commands read it unchecked."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from stride.config.fields import build, hints
from stride.config.metrics import KEY, PATH, Metric, Rule
from stride.config.schema import ALGORITHMS
from stride.config.yaml_file import read_yaml
from stride.utils.user_error import UserError, nearest

STAGES = ("train", "val", "test")


def checked_metrics(path: Path = PATH) -> dict[str, Metric]:
    """Every declared metric, or a UserError that says what is wrong with one."""
    return {name: _metric(path.name, name, entry) for name, entry in read_yaml(path).items()}


def _metric(file: str, name: str, entry: object) -> Metric:
    where = f"{file}: {name}"
    if not isinstance(entry, dict):
        raise UserError(f"{where} takes a mapping of title, meaning, unit, precision, ...")
    if name.split("/")[0] not in STAGES:
        raise UserError(f"{where} starts with none of {', '.join(STAGES)}")
    missing = [key for key in ("title", "meaning", "unit", "precision") if key not in entry]
    if missing:
        raise UserError(f"{where} lacks {', '.join(missing)}")
    better = None if entry.get("better") == "none" else entry.get("better")
    rules = tuple(_rules(where, entry.get("alerts", [])))
    plain = {key: value for key, value in entry.items() if key != "alerts"}
    return replace(build(where, Metric, {**plain, "name": name, "better": better}), alerts=rules)


def _rules(where: str, entries: object) -> Iterator[Rule]:
    if not isinstance(entries, list):
        raise UserError(f"{where}: alerts takes a list of rules")
    keys = {key for algorithm in ALGORITHMS.values() for key in hints(algorithm)}
    for entry in entries:
        if not isinstance(entry, Mapping) or not entry.get("means") or not entry.get("tries"):
            raise UserError(f"{where}: a rule says what it means and what one tries")
        rule = build(f"{where}: alerts", Rule, entry)
        if (rule.above is None) == (rule.below is None):
            raise UserError(f"{where}: a rule has either above or below")
        for key in (*rule.config, *KEY.findall(" ".join(rule.tries))):
            if key not in keys:
                raise UserError(f"{where}: no algorithm has the key {key!r}{nearest(key, keys)}")
        yield rule
