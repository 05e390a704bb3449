"""Checks whether today's code still gives a recorded result: `python -m lab.evidence check` (`make evidence-check`).

For that, a record names a hash of the code, the machine, and a hash of the metrics of the first tenth of its training.
A check trains the first tenth of one seed of every cheap row again. On a machine of the same class (instruction set,
versions) the bits must be equal; else the row is stale. Either result is written into the row's check.json with both
commits. A newer processor is made to compute as the record's did (lab/host.py). On any other machine bits prove
nothing: there the last return must be near those of the row's own seeds.
"""

import ast
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from lab.evidence.file import Record, file_stem, short_hash
from lab.evidence.rows import Row
from lab.evidence.runs import Run, Store
from lab.host import switches
from stride.runstore.history import STEPS, TRAIN, VAL
from stride.utils.durable_file import read_json, write_json
from stride.utils.provenance import PROJECT
from stride.utils.typography import score

MAX_CHECKED_PRICE = 600  # seconds of a core for a run: longer rows are not checked
TENTH = 10  # a check trains budget / TENTH env steps
NODES_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
SAME, STALE, ELSEWHERE = "same bits", "stale", "another class of machine"
UNSTABLE_COLUMNS = ("train/time/", "test/")  # prefixes: they depend on the clock, or on when a training ends


class Verdict(NamedTuple):
    """The result of checking one row."""

    result: str  # SAME, STALE or ELSEWHERE
    line: str  # for people
    is_red: bool = False  # the check fails


def loaded_sources() -> list[str]:
    """Return the paths of the project's modules in this process, "agents/ppo.py"; without lab/ and tests/."""
    paths = set()
    for module in [*sys.modules.values()]:
        name = vars(module).get("__file__") or ""
        path = Path(name).resolve()
        if name.endswith(".py") and path.is_relative_to(PROJECT):
            paths.add(path.relative_to(PROJECT).as_posix())
    return sorted(path for path in paths if not path.startswith(("lab/", "tests/", ".venv/")))


def from_disk(path: str) -> str:
    """Return the text of a file of the project; "" if there is none."""
    file = PROJECT / path
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def from_git(commit: str, path: str) -> str:
    """Return the text that a file had at a commit; "" if there was none."""
    done = subprocess.run(["git", "show", f"{commit}:{path}"], cwd=PROJECT, capture_output=True, text=True, check=False)
    return done.stdout


def sources_hash(paths: Sequence[str], read: Callable[[str], str] = from_disk) -> str:
    """Return a hash over the syntax of these files, without comments, docstrings and formatting.

    `read` returns the text of a path.
    """
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path}\0{syntax(read(path))}\0".encode())
    return digest.hexdigest()[:16]


@cache  # the sources of many records are hashed, and most files are the same in all of them
def syntax(text: str) -> str:
    """Return the syntax tree of a module as text, without docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, NODES_WITH_DOCSTRING) and ast.get_docstring(node) is not None:
            del node.body[0]
    return _shape(tree)


def _shape(node: object) -> str:
    """Return a node's type and fields as text, without empty fields: these differ between Python versions."""
    if isinstance(node, list):
        return f"[{','.join(map(_shape, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = [f"{name}={_shape(value)}" for name, value in ast.iter_fields(node) if value is not None and value != []]
    return f"{type(node).__name__}({','.join(fields)})"


def restamped(record: Record, sources: Sequence[str]) -> bool:
    """Whether the commit that a record names has other code than the training used, or does not exist."""
    commit = record["git_hash"]
    command = ["git", "diff", "--name-only", commit, "--", *sources]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    if done.returncode:
        return True  # there is no such commit
    differing = {*done.stdout.split()}

    def of_the_commit(path: str) -> str:
        return from_git(commit, path) if path in differing else from_disk(path)

    return sources_hash(sources, of_the_commit) != record["sources"]


def is_in_git(commit: str) -> bool:
    command = ["git", "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, check=False).returncode == 0


def first_tenth(rows: Sequence[Mapping[str, float]], budget: int) -> str:
    """Return a hash over all metrics of the first tenth of a training (returns, losses, norms), without times.

    `rows` are those of metrics.csv.
    """
    tenth = [row for row in rows if row.get(STEPS, budget) < budget / TENTH]
    kept = [{name: value for name, value in row.items() if not name.startswith(UNSTABLE_COLUMNS)} for row in tenth]
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def last_return(rows: Sequence[Mapping[str, float]], budget: int) -> dict[str, Any]:
    """Return the last evaluation of the first tenth; if there was none, the last return of training episodes.

    {"curve": "val" or "train", "step": env steps, "value": return}, or {} if there is neither.
    """
    for curve, name in (("val", VAL), ("train", TRAIN)):
        points = [(row[STEPS], row[name]) for row in rows if name in row and row.get(STEPS, budget) < budget / TENTH]
        if points:
            return {"curve": curve, "step": points[-1][0], "value": points[-1][1]}
    return {}


def check(rows: Sequence[Row], store: Store) -> int:
    """Check every cheap row that has records and print a line for each; return 1 if one is stale or out of range."""
    code = 0
    for row in rows:
        current = store.current(row)
        if not current or row.seconds >= MAX_CHECKED_PRICE:
            continue
        seed = next(iter(current))
        verdict = judged(row, store, current[seed], tenth_again(Run(row, seed), current[seed]["processor"]))
        print(f"  {row.variant} seed {seed}: {verdict.line}", flush=True)
        code |= verdict.is_red
    return code


def tenth_again(run: Run, processor: str) -> dict[str, Any]:
    """Train the first tenth of a run in a new process and return its receipt (`tenth` in run.py).

    The process computes as `processor`, the record's, if this machine can.
    """
    with tempfile.TemporaryDirectory(prefix="stride-check-") as folder:
        file = Path(folder) / "tenth.json"
        arguments = [run.row.variant, str(run.seed), "--tenth", str(file)]
        environment = {**os.environ, **switches(processor)}
        subprocess.run([sys.executable, "-m", "lab.evidence.run", *arguments], cwd=PROJECT, env=environment, check=True)
        tenth: dict[str, Any] = read_json(file)
        return tenth


def judged(row: Row, store: Store, record: Record, tenth: Mapping[str, Any]) -> Verdict:
    """Compare a tenth with the record of its seed; on a machine of the same class, write the row's check.json."""
    if (tenth["processor"], tenth["versions"]) != (record["processor"], record["versions"]):
        return near(row, store, tenth)
    result = SAME if tenth["tenth"] == record["tenth"] else STALE
    stamp = {
        "result": result, "seed": record["seed"], "measured": record["git_hash"],
        "measured_sources": record["sources"], "checked": tenth["git_hash"], "sources": tenth["sources"],
    }  # fmt: skip
    write_json(store.runs / file_stem(row.variant) / "check.json", stamp)
    commits = f"measured at {short_hash(record['git_hash'])}, checked at {short_hash(tenth['git_hash'])}"
    return Verdict(result, f"{result}; {commits}", result == STALE)


def near(row: Row, store: Store, tenth: Mapping[str, Any]) -> Verdict:
    """Judge a tenth from another processor or other versions by its last return.

    It must be in the range of the row's seeds at the same env steps, after that range is widened by its own width on
    each side.
    """
    line = f"{ELSEWHERE}, not comparable to the bit"
    last = tenth["last"]
    values = []
    for seed in store.current(row) if last else ():
        points = dict(store.curve(row.variant, seed)[last["curve"]])
        values += [points[last["step"]]] if last["step"] in points else []
    if len(values) < 2:
        return Verdict(ELSEWHERE, f"{line}; too few seeds for a range")
    low, high = min(values), max(values)
    width = high - low
    is_near = low - width <= last["value"] <= high + width
    position = f"{score(last['value'])} at {last['step']:,.0f} steps, seeds {score(low)} to {score(high)}"
    return Verdict(ELSEWHERE, f"{line}; {position}: {'near' if is_near else 'NOT near'}", not is_near)
