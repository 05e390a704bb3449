"""What is told of a run that a group has already: one that is finished, or paused where it was to pause, is not trained
again; its last line is said once more. No torch."""

import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from stride.config.commands.train import Arguments
from stride.config.loader import to_plain
from stride.config.schema import Config
from stride.report.json_events import JsonEvents
from stride.runstore import checkpoint_set, seed_group
from stride.runstore.history import Alert
from stride.runstore.outcome import Outcome
from stride.runstore.run_dir import RunDir, runs_root
from stride.runstore.run_facts import PAUSED, mapping
from stride.runstore.run_files import exists
from stride.utils.entry import GOAL_MISSED
from stride.utils.events import Events
from stride.utils.one_line import printable


def standing_run(arguments: Arguments, config: Config) -> RunDir | None:
    """The run of --group with this config, None where there is none yet, or no longer."""
    run_id = seed_group.claimed(arguments.group, to_plain(config))
    run = RunDir(runs_root() / run_id)
    return run if run_id and exists(run.config_json) else None


def is_done(arguments: Arguments, run: RunDir) -> bool:
    """Whether nothing is left to train, or nothing before --pause-at."""
    facts = run.facts()
    if facts.get("status") == "finished":
        return True
    if facts.get("status") != PAUSED or arguments.pause_at is None:
        return False
    return bool(checkpoint_set.facts_of(run.checkpoints / "last.ckpt").get("env_steps", 0) >= arguments.pause_at)


def tell_again(arguments: Arguments, run: RunDir, events: Events | None = None) -> int:
    """Say how it ended, as it was said then; its exit code."""
    outcome = recalled(mapping(run.facts().get("outcome")), run)
    if events:
        JsonEvents(events, run).end(outcome)
    elif arguments.quiet:
        print(printable(outcome.line()))
    else:
        print(f"  {run.id} is trained already: {outcome.sentence()}")
    missed = arguments.require_goal and outcome.reason != PAUSED and not outcome.solved
    return GOAL_MISSED if missed else 0


def recalled(told: Mapping[str, Any], run: RunDir) -> Outcome:
    """The outcome in a config.json, whose numbers were checked when it was read."""
    plain = dict.fromkeys(("goal", "val_best", "test_mean", "test_std")) | dict.fromkeys(
        ("test_episodes", "env_steps"), 0
    )
    plain |= {"solved": False, "reason": "", "seconds": 0.0}
    known = {each.name for each in fields(Outcome)} - {"alerts", "phases", "dreams", "lost"}
    facts = {**plain, **{name: told[name] for name in told if name in known}, "run_path": os.path.relpath(run.path)}
    names = {each.name for each in fields(Alert)}
    alerts = [each for each in told.get("alerts") or () if isinstance(each, dict) and each.keys() == names]
    return Outcome(**facts, alerts=tuple(Alert(**each) for each in alerts))
