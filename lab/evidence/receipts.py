"""What a record can be held against later: the code that it is of, the machine, and the bits of its first tenth.

`python -m lab.evidence check` (`make evidence-check`) trains the first tenth of one seed of every cheap row again. On a
machine of the same class (instruction set, versions) the bits are equal, which renews the row's stamp and keeps both
commits, or the row is stale. A newer processor computes as the record's did (lab/host.py). On any other machine bits
prove nothing: the tenth must be near the row's own seeds.
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

CHEAP = 600  # seconds of a core: rows that are checked
SHARE = 10  # of the budget
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
SAME, STALE, ELSEWHERE = "same bits", "stale", "another class of machine"
LOOSE = ("train/time/", "test/")  # columns that depend on the clock, or on when a training ends


class Verdict(NamedTuple):
    result: str
    line: str
    is_red: bool = False


def loaded_sources() -> list[str]:
    """The project's modules in this process, but for the laboratory and the tests."""
    paths = set()
    for module in [*sys.modules.values()]:
        name = vars(module).get("__file__") or ""
        path = Path(name).resolve()
        if name.endswith(".py") and path.is_relative_to(PROJECT):
            paths.add(path.relative_to(PROJECT).as_posix())
    return sorted(path for path in paths if not path.startswith(("lab/", "tests/", ".venv/")))


def from_disk(path: str) -> str:
    file = PROJECT / path
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def from_git(commit: str, path: str) -> str:
    done = subprocess.run(["git", "show", f"{commit}:{path}"], cwd=PROJECT, capture_output=True, text=True, check=False)
    return done.stdout


def sources_hash(paths: Sequence[str], read: Callable[[str], str] = from_disk) -> str:
    """A hash over the syntax of these files: comments, docstrings and formatting are not in it."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path}\0{syntax(read(path))}\0".encode())
    return digest.hexdigest()[:16]


@cache  # a record is compared with its commit, of which most files are the same
def syntax(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            del node.body[0]
    return _shape(tree)


def _shape(node: object) -> str:
    """Its type and fields; empty ones are left out, as Python versions have different ones."""
    if isinstance(node, list):
        return f"[{','.join(map(_shape, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = [f"{name}={_shape(value)}" for name, value in ast.iter_fields(node) if value is not None and value != []]
    return f"{type(node).__name__}({','.join(fields)})"


def restamped(record: Record, sources: Sequence[str]) -> bool:
    """Whether the commit that a record names has another code than the one that it was trained with."""
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
    """A hash over all metrics of the first tenth of a training: returns, losses, norms; no times."""
    tenth = [row for row in rows if row.get(STEPS, budget) < budget / SHARE]
    kept = [{name: value for name, value in row.items() if not name.startswith(LOOSE)} for row in tenth]
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def last_return(rows: Sequence[Mapping[str, float]], budget: int) -> dict[str, Any]:
    """The last evaluation of the first tenth, else the last return of training: {"curve": "val", "step", "value"}."""
    for curve, name in (("val", VAL), ("train", TRAIN)):
        points = [(row[STEPS], row[name]) for row in rows if name in row and row.get(STEPS, budget) < budget / SHARE]
        if points:
            return {"curve": curve, "step": points[-1][0], "value": points[-1][1]}
    return {}


def check(rows: Sequence[Row], store: Store) -> int:
    """Trains the tenths, prints a line for each row, renews stamps; 1 where a row is stale or has left its range."""
    code = 0
    for row in rows:
        current = store.current(row)
        if not current or row.seconds >= CHEAP:
            continue
        seed = next(iter(current))
        verdict = judged(row, store, current[seed], tenth_again(Run(row, seed), current[seed]["processor"]))
        print(f"  {row.variant} seed {seed}: {verdict.line}", flush=True)
        code |= verdict.is_red
    return code


def tenth_again(run: Run, processor: str) -> dict[str, Any]:
    """The tenth of a new training: its hash, sources, commit, class of machine and last return.

    It computes as the processor of the record, where this machine can.
    """
    with tempfile.TemporaryDirectory(prefix="stride-check-") as folder:
        file = Path(folder) / "tenth.json"
        words = [run.row.variant, str(run.seed), "--tenth", str(file)]
        environment = {**os.environ, **switches(processor)}
        subprocess.run([sys.executable, "-m", "lab.evidence.run", *words], cwd=PROJECT, env=environment, check=True)
        tenth: dict[str, Any] = read_json(file)
        return tenth


def judged(row: Row, store: Store, record: Record, tenth: Mapping[str, Any]) -> Verdict:
    """Compares a tenth with its record; a machine of the same class renews the stamp."""
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
    """By another processor or other versions: in the range of the row's seeds, widened by its width to each side."""
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
    place = f"{score(last['value'])} at {last['step']:,.0f} steps, seeds {score(low)} to {score(high)}"
    return Verdict(ELSEWHERE, f"{line}; {place}: {'near' if is_near else 'NOT near'}", not is_near)
