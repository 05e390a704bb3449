"""A run in one line (Brief): what its config.json and the end of its metrics.csv say, and its tags and note (Labels).

Every list of runs shows such lines. The second half maps a line to columns of the tables in run_index and run_shelf.
"""

import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stride.runstore import run_files
from stride.runstore.checkpoint_set import whole_score
from stride.runstore.metrics_table import Tail
from stride.runstore.run_facts import (
    INTEGER_LIMIT,
    episodes_of,
    failure,
    finite,
    mapping,
    read_facts,
    text,
    verdict,
    verdict_words,
)
from stride.runstore.run_names import STAMP
from stride.utils.user_error import UserError

MAX_CONFIG_BYTES, MAX_DEPTH = 1 << 18, 20  # of config.json; depth: lists and objects inside each other
UNCOMPARED_KEYS = ("seed", "description", "project_id")  # config keys that do not make two settings different
GONE = "its process ended without a message"
VERDICTS = ("solved", "not solved", "not tested", "trained")
STATUSES = ("running", "silent", "halted", "paused", "finished", "failed", "dead", "interrupted", "damaged")
NAME = "labels.json"
TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
MAX_TAGS, MAX_NOTE_LENGTH = 32, 2000  # tags of a run, characters


class Labels(NamedTuple):
    """A run's tags, in alphabetical order, and its note, one line."""

    tags: tuple[str, ...] = ()
    note: str = ""

    @property
    def tag_text(self) -> str:
        return " ".join(self.tags)


def check_tag(tag: str) -> str:
    """Return the tag; UserError if it is not a valid one."""
    if not TAG.fullmatch(tag):
        raise UserError(f"{tag[:60]!r} is not a valid tag: use at most 40 letters, digits, '.', '_' and '-'")
    return tag


def read_labels(folder: Path) -> Labels:
    """Return the labels of the run in this folder, empty without a file; UserError if the file is damaged."""
    path = folder / NAME
    if not run_files.exists(path):
        return Labels()
    content = run_files.read_json(path)
    tags, note = (content.get("tags"), content.get("note")) if isinstance(content, dict) else (None, None)
    if not isinstance(tags, list) or not all(isinstance(tag, str) and TAG.fullmatch(tag) for tag in tags):
        raise UserError(f"{path} is damaged: tags is not a list of words")
    if not isinstance(note, str) or not text(note):
        raise UserError(f"{path} is damaged: note is not a line of text")
    return Labels(tuple(sorted({*tags})), note)


def write_labels(folder: Path, labels: Labels) -> None:
    """Replace a run's labels in one step; UserError for an invalid tag, too many tags, or a note that is too long."""
    for tag in labels.tags:
        check_tag(tag)
    if len(labels.tags) > MAX_TAGS:
        raise UserError(f"a run may have at most {MAX_TAGS} tags, not {len(labels.tags)}")
    if len(labels.note) > MAX_NOTE_LENGTH or not labels.note.isprintable():
        raise UserError(f"a note must be one printable line of at most {MAX_NOTE_LENGTH:,} characters")
    try:
        run_files.write_json(folder / NAME, {"tags": sorted({*labels.tags}), "note": labels.note})
    except OSError as error:
        raise UserError(f"cannot write in {folder}: {error.strerror}") from error


class Brief(NamedTuple):
    """What one line of a list of runs shows."""

    id: str
    status: str = "damaged"
    """one of STATUSES; for a run that is running by its config.json, run_state decides"""
    variant: str = "?"
    tail: Tail = Tail()
    goal: float | None = None
    group: str = ""
    fault: str = ""
    """what is wrong with its files"""
    reason: str = ""
    """why it failed"""
    result: str = ""
    """one of VERDICTS, "" until the run has ended"""
    seed: int | None = None
    started: float | None = None
    """seconds since 1970"""
    spent: float | None = None
    """seconds of training, as its outcome states them"""
    test: float | None = None
    env: str = ""
    score: float | None = None
    """that of its best checkpoint, by which @best and cleanup choose"""
    commit: str = ""
    """git commit of the program that trained it"""
    settings: str = ""
    """twelve hex digits, the same for two runs whose configs differ only in the seed"""
    changes: str = ""
    """the overrides that make its config differ from the variant's: `policy_lr=0.001 gamma=0.9`"""
    labels: Labels = Labels()
    episodes: int = 0
    """how many episodes of its test ended"""
    budget: int = 0
    """env steps; 0 if unknown"""
    standing: str = "damaged"
    """like `status`, but "damaged" only if config.json is"""

    @property
    def verdict(self) -> str:
        """The result as screens show it: `solved (5 episodes)` if its test had fewer than 100."""
        return verdict_words(self.result, self.episodes)

    @property
    def age(self) -> float | None:
        """Seconds since the run was started."""
        return None if self.started is None else time.time() - self.started

    @property
    def took(self) -> float | None:
        """Seconds of training so far."""
        return self.spent if self.tail.seconds is None else self.tail.seconds

    @property
    def speed(self) -> float | None:
        """Env steps per second, averaged over the whole run."""
        return self.tail.steps / self.took if self.took and self.tail.steps else None


def facts_of(folder: Path) -> dict[str, Any]:
    """Return config.json as read_facts does; UserError also if it is too large, too deep or has huge numbers."""
    file_status = run_files.status(folder / "config.json")
    if file_status and file_status.st_size > MAX_CONFIG_BYTES:
        raise UserError(f"{folder}/config.json has {file_status.st_size:,} bytes, more than any config")
    facts = read_facts(folder)
    level: list[Any] = [facts]
    for _ in range(MAX_DEPTH):
        level = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]
        if any(isinstance(item, int) and abs(item) > INTEGER_LIMIT for item in level):
            raise UserError(f"{folder}/config.json is damaged: a number in it is too large")
        level = [item for item in level if isinstance(item, dict | list)]
    if level:
        raise UserError(f"{folder}/config.json is nested more than {MAX_DEPTH} deep")
    return facts


def head_of(folder: Path) -> Brief:
    """Return a run's line from its config.json alone: without tail, score and labels."""
    started = started_at(folder.name)
    try:
        facts = facts_of(folder)
    except UserError as error:
        return Brief(folder.name, fault=str(error), started=started)
    outcome = mapping(facts.get("outcome"))
    return Brief(
        folder.name,
        str(facts.get("status", "?")),
        f"{facts.get('env_id', '?')}:{facts.get('variant', '?')}",
        goal=finite(facts.get("goal")),
        group=facts.get("group") or "",
        reason=failure(facts),
        result=verdict(outcome) if outcome and facts.get("status") == "finished" else "",
        seed=facts.get("seed"),
        started=started,
        spent=finite(outcome.get("seconds")),
        test=finite(outcome.get("test_mean")),
        env=str(facts.get("env_id", "")),
        commit=str(facts.get("git_hash", "")),
        settings=settings_of(facts),
        changes=" ".join(facts.get("changes", [])),
        episodes=episodes_of(outcome),
        budget=budget_of(mapping(facts.get("config"))),
        standing=str(facts.get("status", "?")),
    )


def budget_of(config: Mapping[str, Any]) -> int:
    """Return a config's budget in env steps, 0 if it has none."""
    steps = finite(config.get("max_timesteps")) or 0.0
    return int(steps) if 0 <= steps < INTEGER_LIMIT else 0


def settings_of(facts: Mapping[str, Any]) -> str:
    """Return a hash that two runs share if their configs differ only in the seed and in descriptions."""
    import hashlib  # here: not needed if all runs are in the stored table

    config = {key: value for key, value in mapping(facts.get("config")).items() if key not in UNCOMPARED_KEYS}
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:12] if config else ""


def started_at(run_id: str) -> float | None:
    """Return the time (seconds since 1970) with which a run's id starts, None if it starts with none."""
    stamp = STAMP.match(run_id)
    try:
        return time.mktime(time.strptime(stamp.group(), "%Y%m%d-%H%M%S-")) if stamp else None
    except (ValueError, OverflowError):
        return None


def best_of(folder: Path) -> tuple[float | None, str]:
    """Return the score in best.json (None: no score, or not of all episodes), and what is wrong with that file."""
    path = folder / "checkpoints" / "best.json"
    try:
        if not run_files.exists(path):
            return None, ""
        best = run_files.read_json(path)
    except UserError as error:
        return None, str(error)
    best_score = best.get("score") if isinstance(best, dict) else math.nan
    if best_score is not None and finite(best_score) is None:
        return None, "checkpoints/best.json is damaged: it has no score"
    return whole_score(best, folder), ""


TEXT, INTEGER, INTEGER_OR_NULL, NUMBER = "TEXT NOT NULL", "INTEGER NOT NULL", "INTEGER", "REAL"
NAN = "nan"  # stored as text, because SQLite has no NaN; only the column `last` may contain it
# columns of IndexEntry that are not of its line: stamps of the files, and what is wrong with each file
ENTRY_COLUMNS = {
    "seen": INTEGER, "folder": TEXT, "config": TEXT, "metrics": TEXT, "checkpoints": TEXT, "own": TEXT,
    "head_fault": TEXT, "best_fault": TEXT, "labels_fault": TEXT, "rest": INTEGER, "kept": INTEGER,
}  # fmt: skip
# columns of a line, in the order of the fields of Brief, with those of Tail and Labels in place of `tail` and `labels`
LINE_COLUMNS = {
    "status": TEXT, "variant": TEXT, "steps": INTEGER, "best": NUMBER,
    "last": f"ANY CHECK (typeof(last) IN ('real', 'null') OR last = '{NAN}')", "tail_fault": TEXT, "seconds": NUMBER,
    "evaluated": INTEGER, "rate": NUMBER, "goal": NUMBER, "group": TEXT, "fault": TEXT, "reason": TEXT, "result": TEXT,
    "seed": INTEGER_OR_NULL, "started": NUMBER, "spent": NUMBER, "test": NUMBER, "env": TEXT, "score": NUMBER,
    "commit": TEXT, "settings": TEXT, "changes": TEXT, "tags": TEXT, "note": TEXT, "episodes": INTEGER,
    "budget": INTEGER, "standing": TEXT,
}  # fmt: skip
COLUMNS = {"id": f"{TEXT} PRIMARY KEY", **ENTRY_COLUMNS, **LINE_COLUMNS}
COLUMN_NAMES = ", ".join(f"[{name}]" for name in COLUMNS)
LINE_NAMES = ", ".join(f"[{name}]" for name in ("id", *LINE_COLUMNS))
RUNS_TABLE = f"runs ({', '.join(f'[{name}] {kind}' for name, kind in COLUMNS.items())}) STRICT, WITHOUT ROWID"
LINE_TEXTS = [name for name, kind in LINE_COLUMNS.items() if kind == TEXT]
TEXT_COLUMNS = ("own", "head_fault", "best_fault", "labels_fault", *LINE_TEXTS)
ALL_TEXTS = " || ".join(f"[{name}]" for name in ("id", *TEXT_COLUMNS))  # SQL: all texts of a row that screens show
NO_LABELS = Labels()


def cells_of(line: Brief) -> list[Any]:
    """Return a line's values for the columns of LINE_COLUMNS."""
    steps, best, last, fault, seconds, evaluated, rate = line.tail
    last_cell = NAN if last is not None and math.isnan(last) else last
    of_tail = (steps, best, last_cell, fault, seconds, int(evaluated), rate)
    labels = line.labels.tag_text, line.labels.note
    # line[4:-4]: the fields after `tail` and before `labels`
    return [line.status, line.variant, *of_tail, *line[4:-4], *labels, line.episodes, line.budget, line.standing]


def line_of(row: Sequence[Any]) -> Brief:
    """Return the line in a row with the columns LINE_NAMES."""
    steps, best, last, fault, seconds, evaluated, rate = row[3:10]
    tail = Tail(steps, best, math.nan if last == NAN else last, fault, seconds, bool(evaluated), rate)
    tags, note = row[-5:-3]
    labels = Labels(tuple(tags.split()), note) if tags or note else NO_LABELS
    return Brief._make((*row[:3], tail, *row[10:-5], labels, *row[-3:]))
