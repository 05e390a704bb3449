"""What a metric means, when it is alarming, what one tries then, and which lines of the program compute it."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from config.metrics import KEY, Metric, load_metrics
from utils.places import PACKAGE, PROJECT
from utils.user_error import UserError, nearest

COMPUTING = ("agents", "trainer_callbacks", "envs_gym", "utils", "runstore/dreams.py")
STAGED = re.compile(r"(?:train|val|test|\{stage\})/")  # a file without such a word computes no metric
MOST_PLACES = 8
ANY = r"[a-z0-9_]+(?:/[a-z0-9_]+)*"  # what braces of an f-string may stand for


class Place(NamedTuple):
    """Where a name, or a pattern of names, is given to a number."""

    names: re.Pattern[str]
    exact: bool
    where: str


def explained(word: str) -> list[str]:
    """All about one metric; a line of each where none is named."""
    if not word:
        return [f"{each.name:<36} {each.meaning}" for each in load_metrics().values()]
    metric = meant(word)
    lines = [f"{metric.name}: {metric.title}", f"  meaning   {metric.meaning}", f"  unit      {metric.unit}"]
    lines.append(f"  better    {metric.better or 'neither more nor less'}")
    for rule in metric.alerts:
        lines.append(f"  alarming  {rule.words()}: {rule.means}")
        lines.append("  tip       " + "; ".join(KEY.sub(r"\1", each) for each in rule.tries))
    if not metric.alerts:
        lines.append("  alarming  never, but where it is no number")
    return lines + [f"  computed  {where}" for where in places(metric.name)]


def told(word: str) -> list[dict[str, object]]:
    """The same for programs."""
    found = [meant(word)] if word else [*load_metrics().values()]
    return [
        {
            "name": each.name, "title": each.title, "meaning": each.meaning, "unit": each.unit, "better": each.better,
            "alerts": [{"when": rule.words(), "means": rule.means, "tries": [*rule.tries]} for rule in each.alerts],
            "computed": places(each.name),
        }
        for each in found
    ]  # fmt: skip


def meant(word: str) -> Metric:
    """A metric by its name, or by an end of it that no other has; UserError with the nearest."""
    metrics = load_metrics()
    found = [name for name in metrics if name == word] or [name for name in metrics if name.endswith(f"/{word}")]
    if len(found) > 1:
        raise UserError(f"{word!r} ends {len(found)} metrics: {', '.join(found)}")
    if not found:
        ends = {name.rpartition("/")[2]: name for name in metrics}
        raise UserError(f"no metric {word[:60]!r}{nearest(word, [*metrics, *ends])}; explain without a name lists all")
    return metrics[found[0]]


def places(name: str) -> list[str]:
    """`agents/ppo.py:129 in update`: where it stands whole, else where its name is put together."""
    found = [place for place in sources() if place.names.fullmatch(name)]
    exact = [place for place in found if place.exact] or found
    return [place.where for place in exact][:MOST_PLACES]


@cache
def sources() -> tuple[Place, ...]:
    """Every name that is a key of a dictionary, or the beginning of one, in what computes."""
    paths = [path for each in COMPUTING for path in sorted((PROJECT / each).rglob("*.py")) or [PROJECT / each]]
    found: list[Place] = []
    for path in paths:
        shown = path.relative_to(PROJECT).as_posix()
        text = path.read_text(encoding="utf-8")
        if not STAGED.search(text):
            continue
        tree = ast.parse(text)
        found += _in_function(tree, shown, "", _constants(tree))
    return tuple(found)


def _constants(tree: ast.Module) -> dict[str, str]:
    """Texts that have a name at the top of a module, also those it imports: PREFIX = "train/time/"."""
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (path := _file_of(node.module or "")):
            wanted = {each.name for each in node.names if each.name.isupper()}
            found |= {name: text for name, text in (_own_constants(path) if wanted else {}).items() if name in wanted}
    return found | dict(_named(tree))


def _file_of(module: str) -> Path | None:
    path = PROJECT / f"{module.removeprefix(PACKAGE).replace('.', '/')}.py"
    return path if path.is_file() else None


@cache
def _own_constants(path: Path) -> dict[str, str]:
    return dict(_named(ast.parse(path.read_text(encoding="utf-8"))))


def _named(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from ((target.id, node.value.value) for target in node.targets if isinstance(target, ast.Name))


def _in_function(node: ast.AST, path: str, function: str, constants: Mapping[str, str]) -> Iterator[Place]:
    for child in ast.iter_child_nodes(node):
        inner = child.name if isinstance(child, ast.FunctionDef | ast.ClassDef) else function
        for name in _given(child):
            if pattern := _pattern(name, constants):
                exact = not isinstance(name, ast.JoinedStr)
                where = f"{path}:{name.lineno}" + (f" in {inner}" if inner else "")
                yield Place(re.compile(pattern), exact, where)
        yield from _in_function(child, path, inner, constants)


def _given(node: ast.AST) -> Iterator[ast.expr]:
    """Expressions that name what a number is put under."""
    if isinstance(node, ast.Dict):
        yield from (key for key in node.keys if key)
    elif isinstance(node, ast.DictComp):
        yield node.key
    elif isinstance(node, ast.Assign):
        yield from (each.slice for each in node.targets if isinstance(each, ast.Subscript))
    elif isinstance(node, ast.Call):  # zip of names and numbers
        yield from (part.elt for part in node.args if isinstance(part, ast.GeneratorExp))


def _pattern(name: ast.expr, constants: Mapping[str, str]) -> str:
    """Of a name that is written out or put together; "" for what is none."""
    if isinstance(name, ast.JoinedStr):
        whole = "".join(_part(each, constants) for each in name.values)
        return whole if "/" in whole.replace(ANY, "") else ""
    text = _text(name, constants)
    return re.escape(text) if text.count("/") > 1 else ""


def _part(each: ast.expr, constants: Mapping[str, str]) -> str:
    text = _text(each.value if isinstance(each, ast.FormattedValue) else each, constants)
    return re.escape(text) if text else ANY


def _text(each: ast.expr, constants: Mapping[str, str]) -> str:
    if isinstance(each, ast.Name):
        return constants.get(each.id, "")
    return each.value if isinstance(each, ast.Constant) and isinstance(each.value, str) else ""
