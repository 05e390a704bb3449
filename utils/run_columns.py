"""Lines about runs as texts that anybody may have written: checksums, and the types and printable texts of each field.

A column is what all lines say of one field; it is decoded when it is asked for. No torch.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any
from zlib import crc32

from utils.metrics_table import Tail
from utils.run_brief import Brief
from utils.run_facts import LARGEST
from utils.run_labels import Labels

Keys = dict[str, tuple[int, int]]
NOTHING = Labels()
TAIL, LABELS = Brief._fields.index("tail") - 1, Brief._fields.index("labels") - 1  # behind the id
TAILS = tuple(f"tail.{name}" for name in Tail._fields)
FIELDS = frozenset((*Brief._fields, *TAILS)) - {"tail"}


def is_text(value: object) -> bool:
    return type(value) is str and value.isprintable()


def _is_number(value: object) -> bool:
    return value is None or type(value) is float or _is_whole(value)


def _is_whole(value: object) -> bool:
    return type(value) is int and abs(value) < LARGEST


def _are_labels(value: object) -> bool:
    """None, or tags and a note."""
    if not isinstance(value, list) or len(value) != 2:
        return value is None
    tags, note = value
    return isinstance(tags, list) and all(map(is_text, tags)) and is_text(note)


# what a field holds; all others are numbers, or None
KINDS: dict[str, Callable[[object], bool]] = {
    "labels": _are_labels, "tail.steps": _is_whole, "tail.evaluated": lambda value: type(value) is bool,
    "number": _is_whole, "seen": _is_whole,
}  # fmt: skip
KINDS |= dict.fromkeys(
    ("id", "status", "variant", "group", "fault", "reason", "result", "env", "commit", "settings", "tail.fault"),
    is_text,
)
NAMES = ("number", "seen", *sorted(FIELDS))  # of the columns that there are


def _check(name: str, values: Iterable[object]) -> None:
    """ValueError where one of them is not what this field holds."""
    if not all(map(KINDS.get(name, _is_number), values)):
        raise ValueError(f"{name} is not what we write")


class Columns:
    """All that is kept, as it was at one instant; nothing where it is not what we write."""

    def __init__(self, told: Mapping[str, tuple[str, int]]) -> None:
        self._told, self._lists = told, dict[str, list[Any]]()

    def marks(self) -> dict[str, tuple[int, str]]:
        """By id: by what it is seen that a run has changed, and its status."""
        try:
            return dict(zip(self._of("id"), zip(self._of("seen"), self._of("status"), strict=True), strict=True))
        except (ValueError, TypeError, RecursionError):
            return {}

    def lines(self, fields: Collection[str]) -> dict[str, Brief]:
        """By id, the FIELDS that are asked for; None for all others."""
        try:
            ids = self._of("id")
            nothing = [None] * len(ids)
            told = {name: self._of(name) if name in fields else nothing for name in FIELDS} | {"id": ids}
            told["tail"] = [*map(Tail._make, zip(*(told[name] for name in TAILS), strict=True))]
            told["labels"] = [Labels(tuple(each[0]), each[1]) if each else NOTHING for each in told["labels"]]
            lines = map(Brief._make, zip(*(told[name] for name in Brief._fields), strict=True))
            return dict(zip(ids, lines, strict=True))
        except (ValueError, TypeError, LookupError, RecursionError):
            return {}

    def numbers(self) -> dict[int, str]:
        """The ids, by the number under which their values are found."""
        return dict(zip(self._of("number"), self._of("id"), strict=True))

    def keys(self) -> Keys:
        """Of each key of a config and name of a metric the number of its values, and the checksum of them all."""
        decoded = self._decoded("keys")
        if not isinstance(decoded, dict):
            raise ValueError("keys are not what we write")
        found = {key: (number, checksum) for key, (number, checksum) in decoded.items()}
        _check("number", chain.from_iterable(found.values()))
        return found

    def _of(self, name: str) -> list[Any]:
        if name not in self._lists:
            values = self._decoded(name)
            _check(name, values)
            self._lists[name] = values
        return self._lists[name]

    def _decoded(self, name: str) -> Any:
        text, checksum = self._told.get(name, ("", 0))
        if checksum != checksum_of(text):
            raise ValueError(f"{name} is damaged")
        return json.loads(text)


def checksum_of(*parts: object) -> int:
    return crc32("\n".join(map(str, parts)).encode())


def check_rows(rows: Iterable[Sequence[object]]) -> None:
    """ValueError where one does not have the checksum at its end."""
    if any(row[-1] != checksum_of(*row[:-1]) for row in rows):
        raise ValueError("a line is damaged")


def text_of(line: Brief) -> str:
    """All but the id, as a list."""
    told: list[object] = [*line[1:]]
    told[LABELS] = None if line.labels == NOTHING else line.labels
    return json.dumps(told)


def line_of_text(run_id: str, told: list[Any]) -> Brief:
    values = dict(zip(Brief._fields[1:], told, strict=True))
    values |= zip(TAILS, values.pop("tail"), strict=True)
    for name, value in values.items():
        _check(name, [value])
    told[TAIL], labels = Tail._make(told[TAIL]), told[LABELS]
    told[LABELS] = Labels(tuple(labels[0]), labels[1]) if labels else NOTHING
    return Brief(run_id, *told)
