"""Which runs are asked for, and in which order: one line of words, as it is typed and as the menus write it.

`cartpole status:failed result:solved seed:1-5 group:f681 age<2d took>10m steps>=1e6 best>400 sort:-best by:run`: words
must occur in a run, a list after a colon may hold any of its values, `sort:-best` is the highest first, and `by:run`
leaves the seeds of a group apart. What cannot be understood is looked for as a word.
"""

import operator
import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from utils.run_brief import Brief
from utils.statistics import iqm

Value = float | str | None
FIELDS: dict[str, Callable[[Brief], Value]] = {
    "run": lambda line: line.variant,
    "status": lambda line: line.status,
    "result": lambda line: line.result,
    "started": lambda line: line.started,
    "age": lambda line: None if line.started is None else time.time() - line.started,
    "took": lambda line: line.took,
    "seed": lambda line: line.seed,
    "steps": lambda line: line.tail.steps,
    "speed": lambda line: line.speed,
    "last": lambda line: line.tail.last,
    "best": lambda line: line.tail.best,
    "test": lambda line: line.test,
    "group": lambda line: line.group,
    "id": lambda line: line.id,
}
WORDS = {"run", "status", "result", "group", "id"}
EXACT = {"status", "result"}
LARGEST = 1e100  # what is beyond has no mean
MOST_WORDS = 500  # characters of a line
TERM = re.compile(r"([a-z]+)(:|>=|<=|>|<)(.+)")
NUMBER = re.compile(r"(-?\d+(?:\.\d*)?(?:e[+-]?\d+)?)([smhdwk]?)", re.IGNORECASE)
UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "k": 1000.0}
COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le,
}  # fmt: skip
Test = Callable[[Brief], bool]


class Query(NamedTuple):
    """What was understood of a line."""

    tests: tuple[Test, ...] = ()
    sort: str = "started"
    descending: bool = True
    grouped: bool = True

    @property
    def newest(self) -> bool:
        """Whether it asks for nothing but the newest, which needs no look at the others."""
        return not self.tests and self.sort == "started" and self.descending

    def select(self, lines: Iterable[Brief]) -> list[Brief]:
        return [line for line in lines if all(test(line) for test in self.tests)]

    def arrange(self, lines: Sequence[Brief]) -> list[list[Brief]]:
        """In order, the seeds of a group together where its value (of a number: the interquartile mean) stands."""
        groups: dict[str, list[Brief]] = {}
        for line in lines:
            groups.setdefault(f"group {line.group}" if self.grouped and line.group else line.id, []).append(line)
        if self.newest:
            return [self._sorted(members) for members in groups.values()]
        keyed = [(self._value(members), self._sorted(members)) for members in groups.values()]
        there = [pair for pair in keyed if pair[0] is not None]
        there.sort(key=lambda pair: pair[0], reverse=self.descending)  # type: ignore[arg-type,return-value]
        return [members for _, members in (*there, *(pair for pair in keyed if pair[0] is None))]

    def _value(self, members: Sequence[Brief]) -> Value:
        field = FIELDS[self.sort]
        alone = field(members[0])
        return (None if alone == "" else alone) if len(members) == 1 else middle([field(line) for line in members])

    def _sorted(self, members: list[Brief]) -> list[Brief]:
        if len(members) == 1:
            return members
        return sorted(members, key=lambda line: (line.seed or 0, line.id))


def middle(values: Sequence[Value]) -> Value:
    """Of a group: the interquartile mean of its numbers, the first of its words; None where there is nothing."""
    there = [value for value in values if value is not None and value != ""]
    numbers = [float(value) for value in there if not isinstance(value, str) and abs(value) < LARGEST]
    return iqm(numbers) if numbers else min((str(value) for value in there), default=None)


def parse(text: str) -> Query:
    query, tests = Query(), []
    for word in text[:MOST_WORDS].casefold().split():
        found = TERM.fullmatch(word)
        key, how, value = found.groups() if found else ("", "", "")
        if key == "sort" and value.lstrip("-") in FIELDS:
            query = query._replace(sort=value.lstrip("-"), descending=value.startswith("-"))
        elif word == "by:run":
            query = query._replace(grouped=False)
        else:
            tests.append(_test(key, how, value) or _has(word))
    return query._replace(tests=tuple(tests))


def _has(word: str) -> Test:
    return lambda line: word in line.words


def _test(key: str, how: str, value: str) -> Test | None:
    """None where it makes no sense."""
    if key not in FIELDS:
        return None
    if key in WORDS:
        return _one_of(key, value.split(",")) if how == ":" else None
    if how != ":":
        return _compared(key, how, value)
    ranges = [_range(part) for part in value.split(",")]
    sound = [pair for pair in ranges if pair]
    return _within(key, sound) if len(sound) == len(ranges) else None


def _one_of(key: str, wanted: Sequence[str]) -> Test:
    def test(line: Brief) -> bool:
        found = str(FIELDS[key](line)).casefold().replace(" ", "-")
        if key in EXACT:
            return found in wanted
        return any(each in found or (each == "none" and not found) for each in wanted)

    return test


def _compared(key: str, how: str, value: str) -> Test | None:
    bound = _number(value)
    if bound is None:
        return None

    def test(line: Brief) -> bool:
        found = FIELDS[key](line)
        return isinstance(found, float | int) and COMPARE[how](found, bound)

    return test


def _within(key: str, ranges: Sequence[tuple[float, float]]) -> Test:
    def test(line: Brief) -> bool:
        found = FIELDS[key](line)
        return isinstance(found, float | int) and any(low <= found <= high for low, high in ranges)

    return test


def _range(part: str) -> tuple[float, float] | None:
    """`3`, `1-5`, or a day."""
    day = _day(part)
    if day is not None:
        return day, day + 86399.0
    low, _, high = part.partition("-")
    first, last = _number(low), _number(high or low)
    return None if first is None or last is None else (first, last)


def _number(text: str) -> float | None:
    """`400`, `1e6`, `20k`, `10m` (minutes), `2d`, `2026-11-22`."""
    found = NUMBER.fullmatch(text)
    return float(found[1]) * UNITS[found[2].lower()] if found else _day(text)


def _day(text: str) -> float | None:
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%d"))
    except (ValueError, OverflowError):
        return None
