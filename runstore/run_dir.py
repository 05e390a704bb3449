"""The folder of one run: create it, find it by what a person typed, and list all runs. Used by every command.

A run is one folder below the runs root, for example runs/20260101-120000-CartPole-v1-ppo-s1-k3xa. This module knows
where its files are; the callbacks decide what is written into them, and run_files opens them. No torch.
"""

import errno
import logging
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stride.runstore import run_files, run_names
from stride.runstore.run_brief import Brief
from stride.runstore.run_facts import read_facts
from stride.runstore.run_files import write_json
from stride.runstore.run_index import Listing, RunIndex
from stride.runstore.run_names import ID as ID
from stride.runstore.run_names import STAMP as STAMP
from stride.runstore.run_names import check_id as check_id
from stride.runstore.run_names import runs_root as runs_root
from stride.runstore.select import BEST as BEST
from stride.runstore.select import GROUP_PREFIX, parse_selector
from stride.runstore.select import LAST as LAST
from stride.utils.durable_file import relink, sweep, sync_folder, temporary
from stride.utils.places import PLAY, TRAIN
from stride.utils.user_error import UserError, nearest

log = logging.getLogger("stride")
_index, _index_lock = RunIndex(), threading.Lock()  # the table of all runs; one thread uses it at a time
BASE32 = "abcdefghijklmnopqrstuvwxyz234567"
Facts = Mapping[str, object] | None  # contents of config.json; None: write none
Fill = Callable[["RunDir"], object]  # writes further files into a folder that is not visible yet


@dataclass(frozen=True)
class RunDir:
    """The folder of one run; properties name the files in it, whether or not they exist yet."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def foreign(self) -> bool:
        """Whether the folder is outside the runs root, so that its contents may come from somebody else."""
        return self.path.parent.resolve() != runs_root().resolve()

    @property
    def config_json(self) -> Path:
        return self.path / "config.json"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def videos(self) -> Path:
        return self.path / "videos"

    @property
    def metrics_csv(self) -> Path:
        return self.path / "metrics.csv"

    @property
    def run_log(self) -> Path:
        return self.path / "run.log"

    @property
    def report(self) -> Path:
        return self.path / "report.md"

    @property
    def dreams(self) -> Path:
        return self.path / "dreams.json"

    @classmethod
    def create(
        cls, env_id: str, variant: str, seed: int, facts: Facts = None, run_id: str = "", fill: Fill = lambda run: None
    ) -> "RunDir":
        """Create a run folder with its subfolders, `facts` as config.json and the files that `fill` writes; return it.

        The folder appears in one step, complete, and the link `@last` then points at it. The name is unique even if
        many processes create runs at once, unless `run_id` sets it. The folder is not locked; the caller does that
        (`run_lock.locked`). UserError if the runs root cannot be written to, FileExistsError if a run `run_id` exists.
        """
        root = runs_root()
        name = _folder_name(env_id, variant, seed)
        try:
            root.mkdir(parents=True, exist_ok=True)
            sweep(root)
            run_path = _make(root, check_id(run_id), facts, fill) if run_id else _make_unique(root, name, facts, fill)
            run = cls(run_path)
            relink(root / LAST, run.path)
            sync_folder(root)
        except FileExistsError:
            raise
        except OSError as error:
            raise UserError(f"cannot make a run folder in {root}: {error.strerror}") from error
        return run

    def facts(self) -> dict[str, Any]:
        """Return the contents of config.json; UserError, one line, if it is missing, damaged or not a file."""
        return read_facts(self.path)

    def tidy(self) -> None:
        """Delete half-written files of an earlier process, create missing folders. The caller must hold the lock."""
        for name in ("", *run_names.FOLDERS):
            run_files.sweep(self.path / name)
        for folder in (self.checkpoints, self.logs, self.videos):
            run_files.make_folder(folder)

    @classmethod
    def find(cls, selector: str) -> "RunDir":
        """Return the run named by `@last`, `@best[:ENV[:VARIANT]]`, an id, the unique start of an id, or a folder.

        `@best` alone takes the environment evaluated last, because returns of two environments cannot be compared.

        Raises UserError, with the nearest ids, if no run or more than one matches. It only promises that the folder
        exists: whoever reads files in it checks them (`facts`, `checkpoint_set`), and a path may lead to a foreign run.
        """
        kind, name, detail = parse_selector(selector)
        if kind == "group":
            raise _group_error(f"{GROUP_PREFIX}{name}")
        if kind in ("path", "hub"):
            return cls(_run_by_path(selector))
        if kind == "best":
            return _best_run(name, detail)
        if kind == "last":
            return cls(_last_run())
        check_id(selector)
        run_ids = [run.id for run in list_runs()]
        matches = [selector] if selector in run_ids else [run_id for run_id in run_ids if run_id.startswith(selector)]
        if len(matches) > 1:
            raise UserError(f"{selector!r} matches {len(matches)} runs: {', '.join(matches[:4])}; give more of the id")
        if not matches and _is_group(root_of_groups() / selector):
            raise _group_error(f"group:{selector}")
        if not matches:
            raise UserError(f"no run {selector!r} in {runs_root()}{nearest(selector, [LAST, BEST, *run_ids])}")
        return cls(runs_root() / matches[0])


def root_of_groups() -> Path:
    """Return the folder of the plans and reports of all groups: groups/ in the runs root."""
    return runs_root().resolve() / "groups"


def _is_group(folder: Path) -> bool:
    is_named = run_names.GROUP.fullmatch(folder.name) is not None and os.path.isdir(folder)
    return is_named or run_names.TIMED.fullmatch(folder.name) is not None


def _group_error(selector: str) -> UserError:
    return UserError(
        f"{selector} is a group of runs, but this command needs one run. `{PLAY} --run-id {selector}` compares "
        f"the runs and shows their ids; `{TRAIN} --resume {selector}` continues them"
    )


def list_runs() -> list[RunDir]:
    """Return all runs below the root, newest first (ids start with the time); folders with other names come last."""
    root = runs_root()
    return [RunDir(root / run_id) for run_id in Listing().ids()]


def _is_run(path: Path) -> bool:
    """Whether the names in a folder are those of a run; whoever reads these files checks their contents."""
    return bool(ID.fullmatch(path.name)) and any(
        os.path.lexists(path / name) for name in ("config.json", "checkpoints")
    )


def _make_unique(root: Path, name: str, facts: Facts, fill: Fill) -> Path:
    """Create `root/<time>-<name>-<4 random letters>`; draw other letters while that name is taken."""
    while True:
        with suppress(FileExistsError):
            return _make(root, _stamped(name), facts, fill)


def _make(root: Path, run_id: str, facts: Facts, fill: Fill) -> Path:
    """Create a run folder under a hidden name, fill it, then rename it: readers see a complete run or none."""
    path = root / run_id
    hidden_path = temporary(path)
    for folder in ("checkpoints", "logs", "videos"):
        (hidden_path / folder).mkdir(parents=True)
    if facts is not None:
        write_json(hidden_path / "config.json", dict(facts))
    try:
        fill(RunDir(hidden_path))
        hidden_path.rename(path)  # fails if a run of that name exists, because its folder is never empty
    except BaseException as error:
        shutil.rmtree(hidden_path, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            raise FileExistsError(errno.EEXIST, "there is one already", str(path)) from error
        raise
    sync_folder(root)
    return path


def new_id(env_id: str, variant: str, seed: int) -> str:
    """Return an id for a run that starts now."""
    return _stamped(_folder_name(env_id, variant, seed))


def _folder_name(env_id: str, variant: str, seed: int) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", f"{env_id}-{variant}-s{seed}")[:100]


def _stamped(name: str) -> str:
    suffix = "".join(secrets.choice(BASE32) for _ in range(4))
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{name}-{suffix}"


def _run_by_path(selector: str) -> Path:
    """Return a run folder given by its path; '..' is refused, so a selector cannot leave the folder it shows."""
    if "\0" in selector or ".." in Path(selector).parts or len(selector) > 4096:
        raise UserError(f"{selector!r} is not the path of a run: '..' is not allowed, give an absolute path")
    try:
        path = Path(selector).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a link to itself, a name that is too long or not valid UTF-8
        raise UserError(f"{selector!r} is not the path of a run: there is no such folder") from error
    if not _is_run(path):
        raise UserError(f"{selector!r} is not the folder of a run: it has no config.json and no checkpoints/")
    return path


def _last_run() -> Path:
    """Return the run that the link `@last` names. The link is read once, because another process may replace it."""
    root = runs_root()
    try:
        path = root / check_id(os.readlink(root / LAST))
    except FileNotFoundError as error:
        raise UserError(f"no runs yet in {root}: {LAST} does not exist") from error
    except OSError as error:
        raise UserError(f"{root / LAST} is not a link to a run: {error.strerror}") from error
    if not path.is_dir():
        raise UserError(f"{LAST} points to {path.name}, which is no longer in {root}; give a run's id")
    return path


def run_lines() -> list[Brief]:
    """Return a line for every run whose config.json can be read, newest first; warn about each damaged one."""
    with _index_lock:
        lines = _index.all()
        _index.save()
        faulty = {line.id: _index.entry(line.id) for line in lines if line.fault}
        for run_id, entry in faulty.items():
            # a run without config.json is just being created
            if fault := (entry.head_fault if entry.config else "") or entry.best_fault:
                log.warning("skipped: %s: %s", run_id, fault)
        return [line for line in lines if line.id not in faulty or not faulty[line.id].head_fault]


def sound_runs(group: str = "") -> Iterator[tuple[RunDir, dict[str, Any]]]:
    """Yield every run (of `group`, if given) with its config.json, newest first; warn about each damaged one."""
    for line in run_lines():
        if group in ("", line.group):
            run = RunDir(runs_root() / line.id)
            try:
                yield run, run.facts()
            except UserError as error:
                log.warning("skipped: %s", error)


def _best_run(env_id: str, variant: str) -> RunDir:
    """Return the run of this environment (and variant) with the highest `score` in checkpoints/best.json.

    Without an environment, take that of the newest run with a score. If no run has a score, warn and return the newest.
    """
    lines = run_lines()  # newest first
    env_id = env_id or next(
        (line.env for line in (*(scored_line for scored_line in lines if scored_line.score is not None), *lines)), ""
    )
    if not env_id:
        raise UserError(f"no evaluated run yet in {runs_root()}")
    config_id = f"{env_id}:{variant}"
    candidates = [line for line in lines if line.env == env_id and (not variant or line.variant == config_id)]
    if not candidates:
        other_env_ids = {line.env for line in lines} - {env_id}
        raise UserError(f"no evaluated run of {config_id.rstrip(':')} in {runs_root()}{nearest(env_id, other_env_ids)}")
    scored_lines = [line for line in candidates if line.score is not None]
    if not scored_lines:
        log.warning(
            "no run of %s has an evaluation in which every episode ended: using the last run", config_id.rstrip(":")
        )
        return RunDir(runs_root() / candidates[0].id)
    return RunDir(runs_root() / max(scored_lines, key=lambda line: (line.score or 0.0, line.id)).id)
