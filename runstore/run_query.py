"""Parse a filter line for runs into SQL conditions and an order; a person types it, or the inspector's menus make it.

Example: `cartpole status:failed result:solved seed:1-5 group:f681 age<2d took>10m steps>=1e6 best>400 sort:-best
by:run`. A plain word must occur in the run. After a colon or `=`, a list gives alternatives. `sort:-best` puts the
highest first. `by:run` does not put the seeds of a group together. `and` is ignored. `parse` (the browser) treats what
it does not understand as a plain word; `asked` (commands) refuses it, and also knows config keys and metrics.
"""

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple, TypeVar

from stride.runstore.run_brief import Brief
from stride.runstore.run_shelf import KEY, Value
from stride.utils.user_error import UserError, nearest

# field in a filter -> attribute of a Brief
ATTRIBUTES = {
    "run": "variant", "status": "status", "result": "result", "started": "started", "age": "age", "took": "took",
    "seed": "seed", "steps": "tail.steps", "speed": "speed", "last": "tail.last", "best": "tail.best", "test": "test",
    "test_episodes": "episodes", "group": "group", "id": "id", "env": "env", "goal": "goal", "score": "score",
    "tag": "labels.tag_text", "note": "labels.note", "commit": "commit", "settings": "settings",
    "changes": "changes",
}  # fmt: skip
FIELDS: dict[str, Callable[[Brief], Value]] = {name: attrgetter(path) for name, path in ATTRIBUTES.items()}
# fields that people see in other words than programs get
SHOWN: dict[str, Callable[[Brief], Value]] = {"result": attrgetter("verdict")}
# SQL expressions of fields that are not simply the column of the same name
TOOK = "coalesce(seconds, spent)"
IN_SQL = {
    "run": "variant", "age": "(now() - started)", "took": TOOK, "speed": f"(nullif(steps, 0) / nullif({TOOK}, 0.0))",
    "last": "(CASE typeof(last) WHEN 'real' THEN last END)", "test_episodes": "episodes", "tag": "tags",
}  # fmt: skip
# the SQL text in which a plain word is searched
SEARCHED_TEXT = "folded(id || ' ' || variant || ' ' || status || ' ' || result || ' ' || [group] || ' ' || reason || "
SEARCHED_TEXT += "' ' || tags)"
# fields that hold text; those of EXACT_FIELDS must be equal, the others contain the value
WORDS = {"run", "status", "result", "group", "id", "env", "tag", "note", "commit", "settings", "changes"}
EXACT_FIELDS = {"status", "result"}
EQUALITY_SIGNS = (":", "=")
# what people type for a return; no field has these names
RETURN_NAMES = {"reward", "rewards", "return", "returns", "ep_rew", "mean_reward", "episode_reward"}
RETURN_HINT = "; a return is best or last (of the evaluations) or test"
MAX_LINE_LENGTH = 500  # characters, in the browser
MAX_TERMS = 400  # words and values; SQLite has a limit of a thousand
TERM = re.compile(r"([a-z][a-z0-9_./+-]*?)(!=|:|>=|<=|=|>|<)(.+)")
SPACED = re.compile(r"\s*(!=|>=|<=|=|>|<)\s*")
IGNORED_WORDS = ("and", "&&")
NUMBER = re.compile(r"(-?\d+(?:\.\d*)?(?:e[+-]?\d+)?)([smhdwk]?)", re.IGNORECASE)
UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "k": 1000.0}
T = TypeVar("T")
Look = Callable[[Brief], Value]  # returns a field of a line
Middle = Callable[[Sequence[Value]], Value]  # returns the middle value of a group, for example the median


class Condition(NamedTuple):
    """A condition in SQL, and the values for its question marks."""

    text: str
    values: tuple[object, ...] = ()


def all_of(conditions: Sequence[Condition]) -> Condition:
    """Join all conditions by AND; without any, the condition is always true."""
    text = " AND ".join(f"({condition.text})" for condition in conditions)
    return Condition(text or "1", tuple(value for condition in conditions for value in condition.values))


class Query(NamedTuple):
    """A parsed filter line: conditions, sort field, order, and whether the seeds of a group stay together."""

    conditions: tuple[Condition, ...] = ()
    sort: str = "started"
    descending: bool = True
    grouped: bool = True

    @property
    def newest(self) -> bool:
        """Whether this is the plain list, newest first, for which nothing needs to be compared."""
        return not self.conditions and self.sort == "started" and self.descending

    @property
    def where(self) -> Condition:
        return all_of(self.conditions)

    def arrange(self, lines: Sequence[Brief], middle: Middle) -> list[list[Brief]]:
        """Return the sorted lines in lists, one per group or single run. A group's place is its middle value's."""
        groups: dict[str, list[Brief]] = {}
        for line in lines:
            groups.setdefault(f"group {line.group}" if self.grouped and line.group else line.id, []).append(line)
        if self.newest:
            return [self._sorted(members) for members in groups.values()]
        keyed = [(self._value(members, middle), self._sorted(members)) for members in groups.values()]
        return in_order(keyed, self.descending)

    def _value(self, members: Sequence[Brief], middle: Middle) -> Value:
        values = [FIELDS[self.sort](line) for line in members]
        if len(values) > 1:
            return middle(values)
        return None if values[0] == "" else values[0]

    def _sorted(self, members: list[Brief]) -> list[Brief]:
        return sorted(members, key=lambda line: (line.seed or 0, line.id))


def in_order(keyed: Sequence[tuple[Value, T]], descending: bool) -> list[T]:
    """Return the items sorted by their values; those whose value is None come last, in their old order."""
    with_value = [pair for pair in keyed if pair[0] is not None]
    is_text = any(isinstance(value, str) for value, _ in with_value)
    with_value.sort(key=lambda pair: str(pair[0]) if is_text else pair[0], reverse=descending)  # type: ignore[arg-type,return-value]
    without_value = [item for value, item in keyed if value is None]
    return [item for _, item in with_value] + without_value


def parse(text: str) -> Query:
    """Parse a line from the browser; a word that is not understood becomes a search for that word."""
    parsed_query = Query()
    conditions = []
    for word in text[:MAX_LINE_LENGTH].casefold().split():
        key, operator, value = _split(word)
        sort_field = value.lstrip("-")
        if key == "sort" and sort_field in FIELDS:
            parsed_query = parsed_query._replace(sort=sort_field, descending=value.startswith("-"))
        elif word == "by:run":
            parsed_query = parsed_query._replace(grouped=False)
        elif word not in IGNORED_WORDS:
            condition = _condition(key, operator, value) if key in FIELDS else None
            conditions.append(condition or _contains(word))
    return parsed_query._replace(conditions=tuple(conditions))


def _split(word: str) -> Sequence[str]:
    """Return (key, operator, value); all "" for a plain word."""
    term_match = TERM.fullmatch(word)
    return term_match.groups() if term_match else ("", "", "")


def terms(text: str) -> list[tuple[str, ...]]:
    """Return (word, key, operator, value) of each term; the last three are "" for a plain word. UserError for `or`."""
    result = []
    typed_words = SPACED.sub(r"\1", text.casefold()).split()
    if len(typed_words) + text.count(",") > MAX_TERMS:
        raise UserError(f"a filter has at most {MAX_TERMS} words and values")
    for word in typed_words:
        if word in ("or", "not", "||"):
            raise UserError(f"a filter does not support {word!r}; use a list such as seed=1,2, or !=")
        if word not in IGNORED_WORDS:
            result.append((word, *_split(word)))
    return result


def further(text: str, sort: str = "") -> list[str]:
    """Return the names in a filter and a sort order that are not FIELDS: config keys and metrics."""
    field_names = [key for _, key, _, _ in terms(text)]
    field_names.append(sort.lstrip("-"))
    return [*dict.fromkeys(name for name in field_names if name and name not in FIELDS)]


def asked(text: str, more: Collection[str]) -> Condition:
    """Parse a filter with FIELDS and the keys in `more`; UserError for a term that is not understood."""
    conditions = []
    for word, key, operator, value in terms(text):
        if key and key not in FIELDS and key not in more:
            raise UserError(f"{word!r} is not a valid filter: {key!r} is not a field")
        condition = _condition(key, operator, value) if key else _contains(word)
        if condition is None:
            expected = "a number, for example 400, 20k, 10m or 2d"
            raise UserError(f"{word!r} is not a valid filter: {value!r} is not {expected}")
        conditions.append(condition)
    return all_of(conditions)


def order_of(sort: str, texts: Collection[str]) -> str:
    """Return the SQL order for a field (`-best`: highest first), missing values last. `texts`: more text fields."""
    key = sort.lstrip("-")
    field = in_sql(key)
    value = f"CAST({field} AS TEXT)" if key in texts else field
    return f"{field} IS NULL, {value}{' DESC' * sort.startswith('-')}"


def in_sql(key: str) -> str:
    """Return the SQL expression of a field; a config key or metric is looked up in the table `cells`."""
    if key in FIELDS:
        return IN_SQL.get(key, f"[{key}]")
    if not KEY.fullmatch(key):
        raise UserError(f"{key[:60]!r} is not a field")
    return f"(SELECT value FROM cells WHERE cells.key = '{key}' AND cells.id = runs.id)"


def looks(
    keys: Sequence[str], values: Mapping[str, Mapping[str, Value]], known_keys: Callable[[], Iterable[str]]
) -> dict[str, Look]:
    """Return {key: function from a line to its value} for `values`, which are by key and run id.

    UserError, with the nearest known key, if no run has a value for a key.
    """
    for key in keys:
        if not KEY.fullmatch(key) or all(value is None for value in values[key].values()):
            hint = RETURN_HINT if key in RETURN_NAMES else nearest(key, [*FIELDS, *known_keys()])
            raise UserError(f"no run has {key[:60]!r}{hint}; --help lists the fields")
    return {key: lambda line, by_run=values[key]: by_run[line.id] for key in keys}  # type: ignore[misc]


def _contains(word: str) -> Condition:
    return Condition(f"instr({SEARCHED_TEXT}, ?) > 0", (word,))


def _condition(key: str, operator: str, value: str) -> Condition | None:
    """Return the condition for a term; None if it makes no sense, for example a text for a number."""
    field = in_sql(key)
    if operator == "!=":
        equality = _condition(key, "=", value)
        return Condition(f"NOT ({equality.text})", equality.values) if equality else None
    if key in WORDS:
        return _one_of(field, value.split(","), key in EXACT_FIELDS) if operator in EQUALITY_SIGNS else None
    is_number = f"typeof({field}) IN ('integer', 'real')"  # a missing value fulfils no comparison
    if operator not in EQUALITY_SIGNS:
        bound = _number(value)
        return None if bound is None else Condition(f"{is_number} AND {field} {operator} ?", (bound,))
    bounds: list[float] = []
    choices = value.split(",")
    for choice in choices:
        if not (limits := _range(choice)):
            return None if key in FIELDS else _one_of(field, choices, exact=True)
        bounds.extend(limits)
    range_condition = " OR ".join([f"{field} BETWEEN ? AND ?"] * len(choices))
    return Condition(f"{is_number} AND ({range_condition})", tuple(bounds))


def _one_of(field: str, choices: Sequence[str], exact: bool) -> Condition:
    """Return the condition that a text field equals, or contains, one of the choices; `none` means an empty text."""
    expression = f"replace(folded({field}), ' ', '-')"
    if exact:
        return Condition(f"{expression} IN ({', '.join('?' * len(choices))})", tuple(choices))
    tests = [f"instr({expression}, ?) > 0" + f" OR {expression} = ''" * (choice == "none") for choice in choices]
    return Condition(" OR ".join(tests), tuple(choices))


def _range(text: str) -> tuple[float, float] | None:
    """Return the limits of `3` (3, 3), `1-5` (1, 5) or a date (seconds since 1970); None for anything else."""
    day_start = _day(text)
    if day_start is not None:
        return day_start, day_start + 86399.0
    low_text, _, high_text = text.partition("-")
    minimum = _number(low_text)
    maximum = _number(high_text or low_text)
    return None if minimum is None or maximum is None else (minimum, maximum)


def _number(text: str) -> float | None:
    """Return the number in `400`, `1e6`, `20k`, `10m` (minutes, as seconds), `2d` or `2026-11-22`, else None."""
    number_match = NUMBER.fullmatch(text)
    return float(number_match[1]) * UNITS[number_match[2].lower()] if number_match else _day(text)


def _day(text: str) -> float | None:
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%d"))
    except (ValueError, OverflowError):
        return None
