"""Stores the campaign's runs on disk, tells which are due, and lets only one process have a run.

    docs/results/runs/CartPole-v1-ppo/seed-3.json      the record: settings, scores, code, machine
    docs/results/runs/CartPole-v1-ppo/settings-HASH.json   the settings of the records that name this hash
    docs/results/runs/CartPole-v1-ppo/check.json       the last `evidence check` by a machine of the same class
    evidence/CartPole-v1-ppo/seed-3.json.gz            the curve, and the sources that the training imported

No two runs share a file, so the records of several machines merge in git. The curve is written before the record, which
names its hash: if a process is killed between the two writes, the run is due again. No torch.
"""

import fcntl
import gzip
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lab.evidence.file import Evidence, Record, configured, file_stem
from lab.evidence.rows import Row, are_present, seeds_of, settings, settings_hash, settings_only
from stride.config.loader import to_plain
from stride.runstore.run_dir import runs_root
from stride.utils.durable_file import read_json, replacing, write_json
from stride.utils.provenance import PROJECT

RESULTS = PROJECT / "docs" / "results"
DONE, TAKEN, FAILED_RUN = 0, 75, 1  # exit codes of a run: recorded; another process has it; recorded as failed
EARLIER_KEYS = ("git_hash", "settings", "status", "solved")  # kept of a record when a new run replaces it
Curve = Mapping[str, Any]  # {"val": [[env steps, return], ..], "train": [..], "sources": ["agents/ppo.py", ..]}


class Run(NamedTuple):
    """One training of the campaign."""

    row: Row
    seed: int


@dataclass(frozen=True)
class Store:
    """The two folders of the campaign: records and curves."""

    runs: Path = RESULTS / "runs"
    curves: Path = PROJECT / "evidence"

    def record_file(self, variant: str, seed: int) -> Path:
        return self.runs / file_stem(variant) / f"seed-{seed}.json"

    def curve_file(self, variant: str, seed: int) -> Path:
        return self.curves / file_stem(variant) / f"seed-{seed}.json.gz"

    def settings_file(self, variant: str, text: str) -> Path:
        return self.runs / file_stem(variant) / f"settings-{text}.json"

    def keep_settings(self, row: Row) -> None:
        """Write the row's present settings into a file, so that later `present_hash` can read what old records had."""
        path = self.settings_file(row.variant, settings(row))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, settings_only(to_plain(row.config())))

    def present_hash(self, row: Row, text: str) -> str:
        """Return the hash that settings have today if their hash was `text` when they were recorded.

        A config key that was added since changes the hash of the same settings. `text` itself if settings differ.
        """
        path = self.settings_file(row.variant, text)
        return settings(row) if path.is_file() and are_present(row, read_json(path)) else text

    def records(self, variant: str) -> dict[int, Record]:
        """Return seed -> record; a record counts only if its curve's file is there and has the hash that it names."""
        records: dict[int, Record] = {}
        for path in (self.runs / file_stem(variant)).glob("seed-*.json"):
            record = read_json(path)
            curve = self.curve_file(variant, record["seed"])
            if curve.is_file() and digest(curve.read_bytes()) == record["curve_sha256"]:
                records[record["seed"]] = record
        return dict(sorted(records.items()))

    def curve(self, variant: str, seed: int) -> dict[str, Any]:
        curve: dict[str, Any] = json.loads(gzip.decompress(self.curve_file(variant, seed).read_bytes()))
        return curve

    def check(self, variant: str) -> dict[str, Any]:
        """Return the last check of the variant (receipts.py); {} if there was none."""
        path = self.runs / file_stem(variant) / "check.json"
        last_check: dict[str, Any] = read_json(path) if path.is_file() else {}
        return last_check

    def write(self, variant: str, record: Record, curve: Curve) -> None:
        """Write a run; of a record that it replaces, a few keys stay in the new record's list "earlier"."""
        seed = int(record["seed"])
        path, curve_path = self.record_file(variant, seed), self.curve_file(variant, seed)
        earlier = [*read_json(path)["earlier"], brief(read_json(path))] if path.is_file() else []
        data = gzip.compress(json.dumps(curve, separators=(",", ":")).encode(), mtime=0)
        for folder in (path.parent, curve_path.parent):
            folder.mkdir(parents=True, exist_ok=True)
        with replacing(curve_path) as file:
            file.write(data)
        write_json(path, {**record, "curve_sha256": digest(data), "earlier": earlier})

    @contextmanager
    def claimed(self, run: Run) -> Iterator[bool]:
        """Yield whether this process owns the run inside the block; the system frees the claim of a dead process."""
        folder = runs_root() / "evidence-claims"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{file_stem(run.row.variant)}-{run.seed}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def seeds(self, row: Row) -> range:
        """Return the seeds of the row's present round."""
        tried: dict[int, set[str]] = {}  # seed -> hashes of the settings that it has a result of
        for seed, record in self.records(row.variant).items():
            hashes = {record["settings"], *(earlier["settings"] for earlier in record["earlier"])}
            tried[seed] = {self.present_hash(row, text) for text in hashes}
        for seed, text in before_the_campaign(row).items():
            tried.setdefault(seed, set()).add(text)
        return seeds_of(row, tried, settings(row) if tried else "")

    def due(self, row: Row) -> list[int]:
        """Return the seeds of the round that have no record of the present budget, or one that a check found stale."""
        current = self.current(row)
        return [seed for seed in self.seeds(row) if seed not in current or self.is_stale(row.variant, current[seed])]

    def current(self, row: Row) -> dict[int, Record]:
        """Return seed -> record of the present round and budget."""
        records = self.records(row.variant)
        if not records:
            return {}
        seeds, budget = self.seeds(row), row.config().max_timesteps
        return {seed: record for seed, record in records.items() if seed in seeds and record["budget"] == budget}

    def is_stale(self, variant: str, record: Record) -> bool:
        """Whether a check found that newer code gives other bits than this record on a machine of the same class."""
        check = self.check(variant)
        return check.get("result") == "stale" and check["measured_sources"] == record["sources"]

    def evidence(self, row: Row) -> Evidence | None:
        """Return the row's present round in the form that tables read; None if no run is recorded."""
        records = self.current(row)
        if not records:
            return None
        config = configured(row.variant)
        result = Evidence(row.variant, config.algo_id, settings(row), row.overrides, to_plain(config))
        result.goal = next((record["goal"] for record in records.values() if "goal" in record), config.spec.goal)
        for seed, record in records.items():
            result.seeds[seed] = {**record, "curve": self.curve(row.variant, seed)}
        return result


def keep(store: Store, run: Run, train: Callable[[], tuple[Record, Curve] | int]) -> int:
    """Train a run and record it, unless it is not due or another process has it; return the exit code.

    `train` returns the record and the curve, or an exit code if nothing is to be recorded.
    """
    with store.claimed(run) as is_ours:
        if not is_ours:
            return TAKEN
        if run.seed not in store.due(run.row):
            return DONE
        result = train()
        if isinstance(result, int):
            return result
        record, curve = result
        store.keep_settings(run.row)
        store.write(run.row.variant, record, curve)
        return DONE if record["status"] == "finished" else FAILED_RUN


def before_the_campaign(row: Row, folder: Path = RESULTS) -> dict[int, str]:
    """Return seed -> hash of its settings, from results files that are older than the campaign.

    Config keys that were added since had their defaults then.
    """
    tried: dict[int, str] = {}
    for path in (folder / f"{file_stem(row.variant)}.json", folder / "models" / f"{file_stem(row.variant)}.json"):
        evidence = Evidence.read(path) if path.is_file() else None
        if evidence and evidence.config:
            now = to_plain(row.config())
            text = settings_hash({key: evidence.config.get(key, value) for key, value in now.items()})
            tried |= dict.fromkeys(evidence.seeds, text)
    return tried


def brief(record: Record) -> dict[str, Any]:
    """Return the part of a replaced record that stays in its successor."""
    return {key: record[key] for key in EARLIER_KEYS} | {"mean": record.get("final", {}).get("mean")}


def digest(data: bytes) -> str:
    """Return 16 hex digits of the SHA-256."""
    return hashlib.sha256(data).hexdigest()[:16]


def size(folders: Sequence[Path]) -> int:
    """Return the bytes of all files in these folders together."""
    return sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())
