"""Which runs are asked for, and in which order: one line of words, as it is typed and as the menus write it.

`cartpole status:failed result:solved seed:1-5 group:f681 age<2d took>10m steps>=1e6 best>400 sort:-best by:run`: words
must occur in a run, a list after a colon or `=` may hold any of its values, `sort:-best` is the highest first, and
`by:run` leaves the seeds of a group apart. `and` may stand between them. In the browser, what cannot be understood is
looked for as a word; `asked` refuses it, and understands keys of configs and names of metrics, too.
"""

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from stride.runstore.run_brief import Brief
from stride.runstore.run_shelf import KEY, Value
from stride.utils.user_error import UserError, nearest

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
    "test_episodes": lambda line: line.episodes,
    "group": lambda line: line.group,
    "id": lambda line: line.id,
    "env": lambda line: line.env,
    "goal": lambda line: line.goal,
    "score": lambda line: line.score,
    "tag": lambda line: " ".join(line.labels.tags),
    "note": lambda line: line.labels.note,
    "commit": lambda line: line.commit,
    "settings": lambda line: line.settings,
}
# as people see it, where programs get another word
SHOWN: dict[str, Callable[[Brief], Value]] = {"result": lambda line: line.verdict}
# what SQLite reads for a field where that is not the column of its name
TOOK = "coalesce(seconds, spent)"
IN_SQL = {
    "run": "variant", "age": "(now() - started)", "took": TOOK, "speed": f"(nullif(steps, 0) / nullif({TOOK}, 0.0))",
    "last": "(CASE typeof(last) WHEN 'real' THEN last END)", "test_episodes": "episodes", "tag": "tags",
}  # fmt: skip
# what a word is looked for in
LOOKED_IN = "folded(id || ' ' || variant || ' ' || status || ' ' || result || ' ' || [group] || ' ' || reason || "
LOOKED_IN += "' ' || tags)"
WORDS = {"run", "status", "result", "group", "id", "env", "tag", "note", "commit", "settings"}
EXACT = {"status", "result"}
EQUAL = (":", "=")
MOST_WORDS = 500  # characters of a line in the browser
MOST_TERMS = 400  # SQLite takes no more than a thousand
TERM = re.compile(r"([a-z][a-z0-9_./+-]*?)(!=|:|>=|<=|=|>|<)(.+)")
SPACED = re.compile(r"\s*(!=|>=|<=|=|>|<)\s*")
FILLERS = ("and", "&&")
NUMBER = re.compile(r"(-?\d+(?:\.\d*)?(?:e[+-]?\d+)?)([smhdwk]?)", re.IGNORECASE)
UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "k": 1000.0}
T = TypeVar("T")
Look = Callable[[Brief], Value]
Middle = Callable[[Sequence[Value]], Value]


class Condition(NamedTuple):
    """A condition in SQL, and the values of its question marks."""

    text: str
    values: tuple[object, ...] = ()


def all_of(conditions: Sequence[Condition]) -> Condition:
    """All conditions joined by AND."""
    text = " AND ".join(f"({condition.text})" for condition in conditions)
    return Condition(text or "1", tuple(value for condition in conditions for value in condition.values))


class Query(NamedTuple):
    """A parsed filter line."""

    conditions: tuple[Condition, ...] = ()
    sort: str = "started"
    descending: bool = True
    grouped: bool = True

    @property
    def newest(self) -> bool:
        """Whether it asks for nothing but the newest, which needs no look at the others."""
        return not self.conditions and self.sort == "started" and self.descending

    @property
    def where(self) -> Condition:
        return all_of(self.conditions)

    def arrange(self, lines: Sequence[Brief], middle: Middle) -> list[list[Brief]]:
        """In order, the seeds of a group together, where the middle of their values stands."""
        groups: dict[str, list[Brief]] = {}
        for line in lines:
            groups.setdefault(f"group {line.group}" if self.grouped and line.group else line.id, []).append(line)
        if self.newest:
            return [self._sorted(members) for members in groups.values()]
        keyed = [(self._value(members, middle), self._sorted(members)) for members in groups.values()]
        return in_order(keyed, self.descending)

    def _value(self, members: Sequence[Brief], middle: Middle) -> Value:
        field = FIELDS[self.sort]
        alone = field(members[0])
        return (None if alone == "" else alone) if len(members) == 1 else middle([field(line) for line in members])

    def _sorted(self, members: list[Brief]) -> list[Brief]:
        if len(members) == 1:
            return members
        return sorted(members, key=lambda line: (line.seed or 0, line.id))


def in_order(keyed: Sequence[tuple[Value, T]], descending: bool) -> list[T]:
    """By their values; those that have none at the end, as they stood."""
    there = [pair for pair in keyed if pair[0] is not None]
    text = any(isinstance(value, str) for value, _ in there)
    there.sort(key=lambda pair: str(pair[0]) if text else pair[0], reverse=descending)  # type: ignore[arg-type,return-value]
    return [what for _, what in (*there, *(pair for pair in keyed if pair[0] is None))]


def parse(text: str) -> Query:
    query, conditions = Query(), []
    for word in text[:MOST_WORDS].casefold().split():
        term = TERM.fullmatch(word)
        key, how, value = term.groups() if term else ("", "", "")
        if key == "sort" and value.lstrip("-") in FIELDS:
            query = query._replace(sort=value.lstrip("-"), descending=value.startswith("-"))
        elif word == "by:run":
            query = query._replace(grouped=False)
        elif word not in FILLERS:
            conditions.append((_condition(key, how, value) if key in FIELDS else None) or _has(word))
    return query._replace(conditions=tuple(conditions))


def terms(text: str) -> list[tuple[str, str, str, str]]:
    """(word, key, how, value) of a filter, the last three "" for a word that is looked for; `or` is refused."""
    result = []
    words = SPACED.sub(r"\1", text.casefold()).split()
    if len(words) + text.count(",") > MOST_TERMS:
        raise UserError(f"a filter has at most {MOST_TERMS} words and values")
    for word in words:
        term = TERM.fullmatch(word)
        if word in ("or", "not", "||"):
            raise UserError(f"a filter has no {word!r}; a list is any of them: seed=1,2, and != is not")
        if word not in FILLERS:
            result.append((word, term[1], term[2], term[3]) if term else (word, "", "", ""))
    return result


def names_in(text: str, sort: str = "") -> list[str]:
    """Names of the fields that a filter and an order use; "" for a word that is searched in a line."""
    return [*(key for _, key, _, _ in terms(text)), *([sort.lstrip("-")] if sort else [])]


def further(text: str, sort: str = "") -> list[str]:
    """Names in a filter and an order that are no fields of a line: keys of configs, names of metrics."""
    return [*dict.fromkeys(key for key in names_in(text, sort) if key and key not in FIELDS)]


def asked(text: str, more: Collection[str]) -> Condition:
    """Parse a filter over FIELDS and the keys in `more`; UserError for what is not understood."""
    conditions = []
    for word, key, how, value in terms(text):
        is_field = key in FIELDS or key in more
        condition = _condition(key, how, value) if is_field else _has(word) if not key else None
        if condition is None:
            wanted = "a number, such as 400, 20k, 10m or 2d" if is_field else "a field"
            raise UserError(f"{word!r} is not understood: {value if is_field else key!r} is not {wanted}")
        conditions.append(condition)
    return all_of(conditions)


def order_of(sort: str, texts: Collection[str]) -> str:
    """By a field, what has no value last; `texts` are the fields beside FIELDS some of whose values are texts."""
    key = sort.lstrip("-")
    field = in_sql(key)
    value = f"CAST({field} AS TEXT)" if key in texts else field
    return f"{field} IS NULL, {value}{' DESC' * sort.startswith('-')}"


def in_sql(key: str) -> str:
    """The SQL expression of a field; a key of a config or the name of a metric is looked up in `cells`."""
    if key in FIELDS:
        return IN_SQL.get(key, f"[{key}]")
    if not KEY.fullmatch(key):
        raise UserError(f"{key[:60]!r} is no field")
    return f"(SELECT value FROM cells WHERE cells.key = '{key}' AND cells.id = runs.id)"


def looks(
    keys: Sequence[str], values: Mapping[str, Mapping[str, Value]], known: Callable[[], Iterable[str]]
) -> dict[str, Look]:
    """Fields of these keys, of what is said of them by key and by run; UserError, with the nearest of those that are
    known, where no run says anything."""
    for key in keys:
        if not KEY.fullmatch(key) or all(value is None for value in values[key].values()):
            raise UserError(f"no run has {key[:60]!r}{nearest(key, [*FIELDS, *known()])}; --help lists the fields")
    return {key: lambda line, of=values[key]: of[line.id] for key in keys}  # type: ignore[misc]


def _has(word: str) -> Condition:
    return Condition(f"instr({LOOKED_IN}, ?) > 0", (word,))


def _condition(key: str, how: str, value: str) -> Condition | None:
    """None where it makes no sense."""
    field = in_sql(key)
    if how == "!=":
        inner = _condition(key, "=", value)
        return Condition(f"NOT ({inner.text})", inner.values) if inner else None
    if key in WORDS:
        return _one_of(field, value.split(","), key in EXACT) if how in EQUAL else None
    is_number = f"typeof({field}) IN ('integer', 'real')"  # of nothing no comparison holds
    if how not in EQUAL:
        bound = _number(value)
        return None if bound is None else Condition(f"{is_number} AND {field} {how} ?", (bound,))
    ranges = [_range(part) for part in value.split(",")]
    sound = [pair for pair in ranges if pair]
    if len(sound) < len(ranges):
        return None if key in FIELDS else _one_of(field, value.split(","), exact=True)
    within = " OR ".join([f"{field} BETWEEN ? AND ?"] * len(sound))
    return Condition(f"{is_number} AND ({within})", tuple(bound for pair in sound for bound in pair))


def _one_of(field: str, wanted: Sequence[str], exact: bool) -> Condition:
    words = f"replace(folded({field}), ' ', '-')"
    if exact:
        return Condition(f"{words} IN ({', '.join('?' * len(wanted))})", tuple(wanted))
    parts = [f"instr({words}, ?) > 0" + f" OR {words} = ''" * (word == "none") for word in wanted]
    return Condition(" OR ".join(parts), tuple(wanted))


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
    match = NUMBER.fullmatch(text)
    return float(match[1]) * UNITS[match[2].lower()] if match else _day(text)


def _day(text: str) -> float | None:
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%d"))
    except (ValueError, OverflowError):
        return None
