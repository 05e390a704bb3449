"""The campaign's runs on disk, one small record and one compressed curve for each, and the claim on a run. No torch.

    docs/results/runs/CartPole-v1-ppo/seed-3.json      the record: settings, scores, code, machine
    docs/results/runs/CartPole-v1-ppo/settings-HASH.json   the settings that records with this hash are of
    docs/results/runs/CartPole-v1-ppo/check.json       the last `evidence check` by a machine of the same class
    evidence/CartPole-v1-ppo/seed-3.json.gz            the curve, and the sources that the training imported

No two runs share a file, so the records of several machines merge in git. The curve is written first and the record
names its hash: a process that is killed between both leaves a run that is due again, never half of one.
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
from lab.evidence.rows import Row, are_present, kept_of, seeds_of, settings, settings_hash
from stride.config.loader import to_plain
from stride.runstore.run_dir import runs_root
from stride.utils.durable_file import read_json, replacing, write_json
from stride.utils.provenance import PROJECT

RESULTS = PROJECT / "docs" / "results"
DONE, TAKEN, FAILED_RUN = 0, 75, 1  # exit codes of a run: recorded; another process has it; recorded as failed
KEPT = ("git_hash", "settings", "status", "solved")  # of a record that a new run of the same seed replaces
Curve = Mapping[str, Any]


class Run(NamedTuple):
    row: Row
    seed: int


@dataclass(frozen=True)
class Store:
    runs: Path = RESULTS / "runs"
    curves: Path = PROJECT / "evidence"

    def record_file(self, variant: str, seed: int) -> Path:
        return self.runs / file_stem(variant) / f"seed-{seed}.json"

    def curve_file(self, variant: str, seed: int) -> Path:
        return self.curves / file_stem(variant) / f"seed-{seed}.json.gz"

    def settings_file(self, variant: str, text: str) -> Path:
        return self.runs / file_stem(variant) / f"settings-{text}.json"

    def keep_settings(self, row: Row) -> None:
        """Store the row's present settings, so that a key that comes later changes no hash of old records."""
        path = self.settings_file(row.variant, settings(row))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, kept_of(to_plain(row.config())))

    def now_called(self, row: Row, text: str) -> str:
        """The hash that settings have now which had this one when they were recorded."""
        path = self.settings_file(row.variant, text)
        return settings(row) if path.is_file() and are_present(row, read_json(path)) else text

    def records(self, variant: str) -> dict[int, Record]:
        """Seed -> record, of runs whose curve is there and their own."""
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
        """The last check of the row; {} where there was none."""
        path = self.runs / file_stem(variant) / "check.json"
        found: dict[str, Any] = read_json(path) if path.is_file() else {}
        return found

    def write(self, variant: str, record: Record, curve: Curve) -> None:
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
        """Whether this process has the run for the length of the block; a dead process has nothing."""
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
        """Those of the row's present round."""
        looked_at: dict[int, set[str]] = {}  # seed -> settings that it has a result of
        for seed, record in self.records(row.variant).items():
            hashes = {record["settings"], *(earlier["settings"] for earlier in record["earlier"])}
            looked_at[seed] = {self.now_called(row, text) for text in hashes}
        for seed, text in before_the_campaign(row).items():
            looked_at.setdefault(seed, set()).add(text)
        return seeds_of(row, looked_at, settings(row) if looked_at else "")

    def due(self, row: Row) -> list[int]:
        """Seeds of the round without a record of the present budget, and all that a check has found stale."""
        current = self.current(row)
        return [seed for seed in self.seeds(row) if seed not in current or self.is_stale(row.variant, current[seed])]

    def current(self, row: Row) -> dict[int, Record]:
        """Records of the present round and budget."""
        records = self.records(row.variant)
        if not records:
            return {}
        seeds, budget = self.seeds(row), row.config().max_timesteps
        return {seed: record for seed, record in records.items() if seed in seeds and record["budget"] == budget}

    def is_stale(self, variant: str, record: Record) -> bool:
        """Whether a check of the code that this record is of gave other bits on a machine of the same class."""
        check = self.check(variant)
        return check.get("result") == "stale" and check["measured_sources"] == record["sources"]

    def evidence(self, row: Row) -> Evidence | None:
        """The row's present round, as the tables read it; None where no run is recorded."""
        records = self.current(row)
        if not records:
            return None
        config = configured(row.variant)
        found = Evidence(row.variant, config.algo_id, settings(row), row.overrides, to_plain(config))
        found.goal = next((record["goal"] for record in records.values() if "goal" in record), config.spec.goal)
        for seed, record in records.items():
            found.seeds[seed] = {**record, "curve": self.curve(row.variant, seed)}
        return found


def keep(store: Store, run: Run, train: Callable[[], tuple[Record, Curve] | int]) -> int:
    """Trains and records a due run unless another process does; the exit code. An int of `train` records nothing."""
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
    """Seed -> settings, of the seeds in files of before the campaign; keys that came later were at their defaults."""
    looked_at: dict[int, str] = {}
    for path in (folder / f"{file_stem(row.variant)}.json", folder / "models" / f"{file_stem(row.variant)}.json"):
        evidence = Evidence.read(path) if path.is_file() else None
        if evidence and evidence.config:
            now = to_plain(row.config())
            text = settings_hash({key: evidence.config.get(key, value) for key, value in now.items()})
            looked_at |= dict.fromkeys(evidence.seeds, text)
    return looked_at


def brief(record: Record) -> dict[str, Any]:
    """What stays of a record that is replaced."""
    return {key: record[key] for key in KEPT} | {"mean": record.get("final", {}).get("mean")}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def size(folders: Sequence[Path]) -> int:
    """Bytes of all files in these folders."""
    return sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())
