"""Makes parts of the learners' pages: keys of configs, lines of code, results and speed from evidence, curves."""

import ast
import json
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

from lab.bench import table as table_of_peers
from lab.bench.cases import REPLAY
from lab.evidence import report
from lab.evidence.families import all_evidence
from lab.evidence.file import Evidence, file_stem
from lab.evidence.public import bands
from lab.evidence.report import table
from lab.evidence.runs import Store
from stride.agents.algorithms import ALGORITHMS
from stride.agents.engines.choice import RECIPES
from stride.config import schema
from stride.config.listing import ListedVariant, shipped_rows
from stride.config.manual import entries, key_table
from stride.config.schema import Config
from stride.utils.provenance import PROJECT
from stride.utils.user_error import UserError

RESULTS = PROJECT / "docs" / "results"
BENCHMARKS = PROJECT / "docs" / "benchmarks"
FOLDERS = ("", "models")  # of docs/results, where a variant's file may be
BESIDE = "mujoco"  # folder of docs/results: ours beside Stable-Baselines3, with general settings
SHOWN = (100_000, 300_000, 1_000_000)  # env steps of published results in the table
NOT_MEASURED = "not measured"
HEAD = ("variant", "goal", "solved", "return, IQM [95 %]", "env steps, median (max)", "wall time, median")
COLUMNS = (0, 2, 3, 5, 10, 11)  # of a row of docs/results.md
TITLES = {"dqn": "DQN and QR-DQN", "q_learning": "Q-learning"}


def keys(class_name: str) -> str:
    """Return a table of the keys that an algorithm has beside those of every algorithm."""
    cls = vars(schema)[class_name]
    rows = {}
    for base in reversed(cls.__mro__[:-1]):
        if issubclass(base, Config) and base is not Config:
            rows.update({row.name: row for row in entries(base)})
    return key_table([*rows.values()])


def code(path: str, name: str, first: str = "", last: str = "") -> str:
    """Return a function or method `name` of a file as a code block, without its docstring.

    Only the lines from one that starts with `first` to one that starts with `last`, if these are given.
    """
    source = (PROJECT / path).read_text(encoding="utf-8")
    node: Any = ast.parse(source)
    for part in name.split("."):
        nodes = [
            child for child in node.body if isinstance(child, ast.FunctionDef | ast.ClassDef) and child.name == part
        ]
        if not nodes:
            raise UserError(f"{path} has no {part}, which <!-- generated: code --> names")
        node = nodes[0]
    lines = source.splitlines()[node.lineno - 1 : node.end_lineno]
    if ast.get_docstring(node) is not None:
        docstring = node.body[0]
        del lines[docstring.lineno - node.lineno : docstring.end_lineno - node.lineno + 1]
    lines = textwrap.dedent("\n".join(lines)).splitlines()
    if first:
        begin = _line(lines, first, 0, name)
        lines = lines[begin : _line(lines, last or first, begin, name) + 1]
    text = textwrap.dedent("\n".join(lines))
    return f'```python title="{path}"\n{text}\n```'


def _line(lines: list[str], text: str, begin: int, name: str) -> int:
    """Return the index of the first line from `begin` on that starts with the text; UserError if there is none."""
    for index in range(begin, len(lines)):
        if lines[index].lstrip().startswith(text):
            return index
    raise UserError(f"no line of {name} begins with {text!r}, which <!-- generated: code --> names")


def reached(algorithm: str) -> str:
    """Return a table with a row for each shipped variant: its results, or that it is not measured."""
    rows = [_result(listed) for listed in variants(algorithm)]
    if not rows:
        return f"No variant is shipped: {NOT_MEASURED}."
    return table([HEAD, *rows])


def variants(algorithm: str) -> list[ListedVariant]:
    return [row for row in shipped_rows() if row.algorithm == algorithm]


def _result(listed: ListedVariant) -> tuple[str, ...]:
    name = f"{listed.env}:{listed.variant}"
    evidence = _evidence().get(name)
    if evidence is None or not evidence.finished():
        return f"`{name}`", listed.goal, NOT_MEASURED, "", "", ""
    cells = report.row_of(evidence)
    budget = " (budget)" if evidence.overrides else ""  # whole budgets: nothing stopped them at the goal
    return f"`{name}`", *(cells[column] for column in COLUMNS[1:5]), cells[COLUMNS[5]] + budget


def _evidence() -> dict[str, Evidence]:
    """Return ENV:VARIANT -> evidence of the shipped variants."""
    return {evidence.variant: evidence for evidence in all_evidence(Store(), [RESULTS / folder for folder in FOLDERS])}


def speed(algorithm: str) -> str:
    """Return the rates of whole trainings beside other libraries."""
    if measured := table_of_peers.rows_of(algorithm, BENCHMARKS):
        return table_of_peers.markdown(measured)
    if algorithm == "ppo":
        data = _json(BENCHMARKS / "train.json")
        tables = {
            title: {name: times["median"] for name, times in columns.items()}
            for title, columns in data["tables"].items()
        }
    else:
        data = _json(BENCHMARKS / "offpolicy.json")
        tables = (
            {f"{REPLAY[algorithm][0]}:{algorithm}": data[algorithm]["env_steps_per_second"]}
            if algorithm in data
            else {}
        )
    if not tables:
        return f"Speed beside other libraries: {NOT_MEASURED}."
    names = [*dict.fromkeys(name for columns in tables.values() for name in columns)]
    rows = [
        (title, *(f"{columns[name]:,.0f}" if name in columns else "" for name in names))
        for title, columns in tables.items()
    ]
    machine = data["machine"].partition("\n")[0]
    head = f"Env steps per second of whole trainings, side by side in one run, on {machine}, by older code:"
    return f"{head}\n\n{table([('training', *names), *rows])}"


def curves(*names: str) -> str:
    """Return the learning curve of each variant, or that it is not measured."""
    return "\n\n".join(_curve(name) for name in names)


def _curve(name: str) -> str:
    for folder in (*FOLDERS, BESIDE):
        path = RESULTS / folder / f"{file_stem(name)}.svg"
        if path.is_file():
            what = "Stride beside Stable-Baselines3" if folder == BESIDE else "each seed and their mean"
            return f"![Learning curve of {name}: {what}](../{path.relative_to(RESULTS.parent)})"
    return f"{name}: {NOT_MEASURED}."


def public(algorithm: str) -> str:
    """Return a table of results that others have published for this algorithm with an open licence."""
    data = bands()
    rows = [row for row in data["rows"] if row["learner"] == algorithm and row["env_steps"] in SHOWN]
    if not rows:
        return "No published curve is stored here."
    head = ("environment", "env steps", "seeds", "mean", "lowest seed", "highest seed")
    lines = [
        (
            row["env"],
            f"{row['env_steps']:,}",
            str(row["seeds"]),
            *(f"{row[name]:,.0f}" for name in ("mean", "least", "most")),
        )
        for row in rows
    ]
    return f"{table([head, *lines])}\n\nSource: {data['sources'][algorithm]}."


@cache
def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def overview() -> str:
    """Return a table of all algorithms: page, number of shipped variants, and how many of them were measured."""
    measured = _evidence()
    rows = []
    for algorithm, agent in ALGORITHMS.items():
        names = [f"{row.env}:{row.variant}" for row in variants(algorithm)]
        count = sum(name in measured for name in names)
        link = f"[{TITLES.get(algorithm, agent.__name__)}]({algorithm}.md)"
        kernels = "yes" if agent in RECIPES else "no"
        rows.append((link, f"`{algorithm}`", kernels, str(len(names)), str(count) if count else NOT_MEASURED))
    return table([("learner", "name in a config", "kernels on the CPU", "shipped variants", "measured"), *rows])


def environments() -> str:
    """Return a table of the shipped environments: task, variants, goal."""
    rows: dict[str, tuple[str, ...]] = {}
    for listed in shipped_rows():
        named = f"`{listed.variant}`"
        env, description, names, goal = rows.get(
            listed.env, (f"`{listed.env}`", listed.spec.description, "", listed.goal)
        )
        rows[listed.env] = env, description, f"{names} {named}".strip(), goal
    return table([("environment", "task", "variants", "goal"), *rows.values()])
