"""Which run, or group, a person means with the words after `monitor`."""

import os
from pathlib import Path

from stride.report.monitor.fleet import Fleet
from stride.runstore.metrics_layout import NAME
from stride.runstore.run_dir import LAST, RunDir, runs_root
from stride.runstore.run_state import IN_TRAINING, state_of
from stride.runstore.seed_group import find_group
from stride.runstore.select import names_group
from stride.utils.places import TRAIN
from stride.utils.user_error import UserError


def chosen(selector: str, latest: bool = False) -> tuple[Path | None, str]:
    """A run's folder, or the name of a group; UserError where there is neither."""
    if names_group(selector):
        return None, find_group(selector)
    if os.sep in selector and (folder := _of_file(Path(selector))):
        return folder, ""
    if selector:
        return RunDir.find(selector).path, ""
    return (RunDir.find(LAST).path if latest else _newest()), ""


def _of_file(path: Path) -> Path | None:
    """The folder of a metrics.mmap that a loop of somebody's own writes: it has no config.json."""
    folder = path.parent if path.name == NAME else path
    return folder.resolve() if os.path.lexists(folder / NAME) else None


def _newest() -> Path:
    """The newest in training, else the newest: the link to it is looked at first, as all others take a while."""
    last = None
    try:
        last = RunDir.find(LAST)
        if state_of(last.path, last.facts()) in IN_TRAINING:
            return last.path
    except UserError:  # a damaged one; another may be in training
        pass
    fleet = Fleet()
    fleet.look()
    names = fleet.live() or [each.id for each in fleet.briefs]
    if last is not None and not fleet.live():
        return last.path
    if not names:
        raise UserError(f"no run yet under {runs_root()}; `{TRAIN} CartPole-v1:ppo` begins one")
    return runs_root() / names[0]
