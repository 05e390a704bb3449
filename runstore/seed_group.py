"""Groups of runs that one command started: which runs were asked for (the plan), and which run each one became.

A group is, for example, five seeds of a variant, or all combinations of two settings. plan.json lists config hashes
("keys"); the file claims/<key> has the id of the run with that config, so that a repeated command finds it.
runstore/many/group_training.py trains groups; report/group*.py shows them. No torch.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stride.runstore import run_files
from stride.runstore.run_dir import RunDir, root_of_groups, run_lines, runs_root, sound_runs
from stride.runstore.run_facts import mapping
from stride.runstore.run_files import exists, list_names, make_folder, put, read_json, write_json
from stride.runstore.run_names import CLAIM, GROUP, TIMED, check_id
from stride.runstore.select import parse_selector
from stride.utils.user_error import UserError, nearest


class SeedPart(NamedTuple):
    """Runs of a group that differ only in their seed."""

    words: tuple[str, ...]
    """the arguments of train.py that they have in common"""
    seeds: tuple[int, ...]
    keys: tuple[str, ...] = ()
    """the hash of each run's config, which names its claim; () in groups of older versions"""

    def pairs(self) -> list[tuple[int, str]]:
        """Return (seed, key) of each run; the key is "" if there are none."""
        return [*zip(self.seeds, self.keys or [""] * len(self.seeds), strict=True)]


class GroupPlan(NamedTuple):
    """The runs that a group was asked for."""

    parts: tuple[SeedPart, ...] = ()
    asked: tuple[str, ...] = ()
    """what was typed, if there are several parts"""

    @property
    def labels(self) -> list[str]:
        """For each part, the arguments that not all parts have; "" if there is only one part."""
        common_words: set[str] = set.intersection(*({*part.words} for part in self.parts)) if self.parts else set()
        return [" ".join(word for word in part.words if word not in common_words) for part in self.parts]

    @property
    def keyed(self) -> bool:
        """Whether the runs are found by their claims."""
        return any(key for part in self.parts for key in part.keys)

    def joined(self, more: "GroupPlan") -> "GroupPlan":
        """Return a plan with the runs of both plans, each once."""
        pairs = {part.words: part.pairs() for part in self.parts}
        planned_keys = {key for part in self.parts for key in part.keys}
        for part in more.parts:
            new_pairs = [pair for pair in part.pairs() if pair[1] not in planned_keys]
            pairs[part.words] = pairs.get(part.words, []) + new_pairs
        parts = [SeedPart(words, *zip(*part_pairs, strict=True)) for words, part_pairs in pairs.items() if part_pairs]
        return GroupPlan(tuple(parts), more.asked)


class SeedJob(NamedTuple):
    """A run to train: seed, arguments of train.py, its folder if it exists, its claim's key, the label of its part."""

    seed: int
    words: tuple[str, ...]
    run: RunDir | None = None
    key: str = ""
    label: str = ""

    def is_of(self, run: RunDir, group: str, facts: Mapping[str, object]) -> bool:
        """Whether `run` is the one that this job has started."""
        is_same = facts.get("group") == group and facts.get("seed") == self.seed
        return is_same and (not self.key or run_of(group, self.key) == run.id)


class Member(NamedTuple):
    """A run of a group, and its config.json."""

    run: RunDir
    facts: dict[str, Any]


class Standing(NamedTuple):
    """A run that a group was asked for, by its seed, and what it became: its folder, None if it never started."""

    seed: int
    run: RunDir | None = None
    facts: Mapping[str, Any] = {}
    label: str = ""
    key: str = ""
    words: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """finished, interrupted, failed, running; or not begun."""
        return str(self.facts.get("status", "?")) if self.run else "not begun"

    @property
    def outcome(self) -> dict[str, Any]:
        """How its last training ended; {} if none ended."""
        return mapping(self.facts.get("outcome")) if self.status != "failed" else {}


class Ending(NamedTuple):
    """How a group's command ended: how many of its jobs did not end well, and the signal that stopped it, or ""."""

    unfinished: int
    jobs: int
    stopped_by: str


class Watcher:
    """Receives events of a group in training: begin; then began, look and ended, any number of times; then end."""

    def begin(self, group: str, jobs: Sequence[SeedJob], workers: int) -> None:
        """Called before the first process is started."""

    def began(self, index: int) -> None:
        """Called when the process of this job was started."""

    def look(self) -> None:
        """Called about twenty times a second while no process ends."""

    def ended(self, index: int, code: int, line: str) -> None:
        """Called with a job's exit code, as a shell shows it, and the last line that it printed."""

    def end(self, group: str, ending: Ending | None) -> None:
        """Called last. None: an error, reported elsewhere, broke off the group."""


def find_group(selector: str) -> str:
    """Return the group named by `group:NAME`, `group:@last` or `@last-group`; UserError, with the nearest, if none."""
    name = parse_selector(selector).name
    newest_runs: dict[str, str] = {}  # group -> id of its newest run
    for line in run_lines():
        newest_runs.setdefault(line.group, line.id)
    planned = {name.removesuffix(".json") for name in list_names(root_of_groups())}
    group_names = {name for name in newest_runs.keys() | planned if GROUP.fullmatch(name)}
    if name == "@last" and group_names:  # ids of runs, and names of groups without --group, start with the time
        times = {name: name for name in group_names if TIMED.fullmatch(name)} | newest_runs
        return max(group_names, key=lambda name: (times.get(name, ""), name))
    if name not in group_names:
        raise UserError(f"no group {_short(name)!r} in {runs_root()}{nearest(_short(name), group_names)}")
    return name


def _short(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:57]}..."


def members(group: str) -> list[Member]:
    """Return the runs of a group, oldest first."""
    return [Member(run, facts) for run, facts in sound_runs(group)][::-1]


def standings(group: str) -> list[Standing]:
    """Return every run that was asked for, in the plan's order; then runs of the group that are not in the plan.

    A run is found by its claim; in groups without claims, it is the newest run with the seed.
    """
    group_members = members(group)
    by_id = {member.run.id: member for member in group_members}
    by_seed = {_seed(member): member for member in group_members}
    plan = read_plan(group)
    planned: list[Standing] = []
    for part, label in zip(plan.parts, plan.labels, strict=True):
        for seed, key in part.pairs():
            run, facts = (by_id.get(run_of(group, key)) if key else by_seed.get(seed)) or (None, {})
            planned.append(Standing(seed, run, facts, label, key, part.words))
    planned_ids = {standing.run.id for standing in planned if standing.run}
    planned_seeds = set() if plan.keyed else {standing.seed for standing in planned}
    other_standings = [
        Standing(_seed(member), member.run, member.facts, f"{member.facts.get('env_id')}:{member.facts.get('variant')}")
        for member in group_members
        if member.run.id not in planned_ids and _seed(member) not in planned_seeds
    ]
    other_standings.sort(key=lambda standing: standing.seed)
    if not planned and len({standing.label for standing in other_standings}) == 1:
        other_standings = [standing._replace(label="") for standing in other_standings]
    return planned + other_standings


def _seed(member: Member) -> int:
    seed = member.facts.get("seed")
    return seed if isinstance(seed, int) else 0


def needs_of(group: str) -> tuple[int, int]:
    """Return (threads, GPUs) that one run of the group may use."""
    configs = [mapping(member.facts.get("config")) for member in members(group)]
    thread_counts = [config.get("threads") for config in configs]
    threads = max((count for count in thread_counts if isinstance(count, int)), default=1)
    return max(1, threads), int(any(str(config.get("device", "")).startswith("cuda") for config in configs))


def folder_of(group: str) -> Path:
    """Return the folder of a group's plan and report; the runs themselves are in the runs root."""
    return root_of_groups() / group


def write_plan(group: str, plan: GroupPlan) -> None:
    """Store a group's plan, so that seeds without a run are known if the group is stopped early."""
    parts = [{"words": [*part.words], "seeds": [*part.seeds], "keys": [*part.keys]} for part in plan.parts]
    try:
        make_folder(folder_of(group))
        write_json(folder_of(group) / "plan.json", {"parts": parts, "asked": [*plan.asked]})
    except OSError as error:
        raise UserError(f"cannot write in {runs_root()}: {error.strerror}") from error


def read_plan(group: str) -> GroupPlan:
    """Return a group's plan; an empty one if there is no plan.json."""
    if not GROUP.fullmatch(group):
        return GroupPlan()  # a name that another program gave
    path = folder_of(group) / "plan.json"
    if not exists(path) and TIMED.fullmatch(group):
        path = root_of_groups() / f"{group}.json"  # older versions made no folder for a group
    if not exists(path):
        return GroupPlan()
    content = read_json(path)
    parts = content.get("parts", [content]) if isinstance(content, dict) else None
    if not isinstance(parts, list) or not parts:
        raise UserError(f"{path} does not list what the group trains")
    asked = content.get("asked", [])
    return GroupPlan(
        tuple(_part(part_content, path) for part_content in parts),
        tuple(map(str, asked)) if isinstance(asked, list) else (),
    )


def _part(content: object, path: Path) -> SeedPart:
    """Check a part of plan.json; invalid seeds and keys are left out."""
    fields = content if isinstance(content, dict) else {"words": None}
    words, seeds, keys = (fields.get(name, []) for name in ("words", "seeds", "keys"))
    if not (isinstance(words, list) and isinstance(seeds, list) and isinstance(keys, list)):
        raise UserError(f"{path} does not list what the group trains")
    valid_seeds = tuple(seed for seed in seeds if type(seed) is int)
    is_keyed = len(keys) == len(valid_seeds) and all(isinstance(key, str) and CLAIM.fullmatch(key) for key in keys)
    return SeedPart(tuple(map(str, words)), valid_seeds, tuple(keys) if is_keyed else ())


def outcomes(group: str) -> list[dict[str, Any]]:
    """Return the outcome of each finished run of a group, oldest first."""
    endings = [member.facts.get("outcome") for member in members(group) if member.facts.get("status") == "finished"]
    return [outcome for outcome in endings if isinstance(outcome, dict)]


def key_of(config: Mapping[str, object]) -> str:
    """Return the hash of a config (plain data, with its seed), 32 hex digits."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:32]


def claimed(group: str, config: Mapping[str, object]) -> str:
    """Return the id of the group's run with this config, "" if there is none yet."""
    return run_of(group, key_of(config))


def run_of(group: str, key: str) -> str:
    """Return the id of the group's run whose config has this hash, "" if there is none yet."""
    path = _path(group, key)
    return _read(path) if exists(path) else ""


def claim(group: str, config: Mapping[str, object], run_id: str) -> str:
    """Record `run_id` as the group's run with this config and return it; an id recorded earlier wins."""
    path = _path(group, key_of(config))
    try:
        make_folder(path.parent)
        return run_id if put(path, f"{run_id}\n") else _read(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def check_group(name: str) -> str:
    """Return the name if it can only name a folder directly in groups/, else raise UserError."""
    if not GROUP.fullmatch(name):
        raise UserError(
            f"--group {_short(name)!r}: a group's name has at most 64 letters, digits, '.', '_' and '-', and starts "
            "with a letter or digit"
        )
    return name


def _path(group: str, key: str) -> Path:
    return root_of_groups() / check_group(group) / "claims" / key


def _read(path: Path) -> str:
    return check_id(run_files.read_bytes(path).decode(errors="replace").strip())
