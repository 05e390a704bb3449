"""The run folder of a training: find and lock the one to resume, or create a new one, also as a fork of another run."""

from contextlib import ExitStack
from typing import Any

from stride.agents.base import Agent
from stride.commands.train_arguments import Arguments
from stride.commands.train_values import ignored_sweep
from stride.config.general import KEEP_ADVICE, is_general_config, to_keep
from stride.config.loader import to_plain
from stride.config.schema import Config
from stride.envs_gym.make import is_given
from stride.envs_gym.own_code import import_code_of
from stride.runstore import checkpoint_set
from stride.runstore.run_dir import RunDir, new_id
from stride.runstore.run_facts import mapping
from stride.runstore.run_fate import fate
from stride.runstore.run_files import write_json
from stride.runstore.run_lock import RunInTrainingError, locked
from stride.runstore.seed_group import claim
from stride.trainer_callbacks.failures import interruption_reported
from stride.trainer_callbacks.resume import (
    Resumption,
    adopt,
    continued_facts,
    find_resumption,
    fork_facts,
    provenance_once,
    settings_hash,
)
from stride.trainer_callbacks.session import TrainingStart, bits_rest_on, training_info


def find_and_lock(arguments: Arguments, stack: ExitStack) -> tuple[Resumption | None, str]:
    """Find and lock the run of --resume; return it (None without --resume) and how it failed or died, or ""."""
    if not arguments.resume:
        return None, ""
    run = RunDir.find(arguments.resume)
    failure = fate(run, run.facts())
    if arguments.checkpoint in ("", "last") and not arguments.fork:
        stack.enter_context(locked(run.path))
    if not run.foreign:
        import_code_of(run)
    return resumption_of(arguments, arguments.fork), failure


def resumption_of(arguments: Arguments, fork: bool, spent: bool = False) -> Resumption:
    """Return the run and checkpoint of --resume and --checkpoint. `spent`: allow a run with nothing left to train."""
    changes, trust = arguments.overrides, arguments.trust
    return find_resumption(
        arguments.resume, arguments.checkpoint, changes, arguments.accept_changes, trust, fork=fork, spent=spent
    )


def facts_of(config: Config, agent: Agent, goal: float | None, arguments: Arguments) -> dict[str, Any]:
    """Return config.json for a run that starts now."""
    info: dict[str, Any] = {"env_id": config.env_id, "variant": config.variant, "seed": config.seed}
    info |= {"group": arguments.group, "goal": goal, "changes": arguments.changes(config)}
    info["shipped"] = arguments.shipped(config)
    info |= {**training_info(config, agent), **provenance_once(), "status": "running", "config": to_plain(config)}
    return {**info, "settings_sha256": settings_hash(info)}


def open_run(
    config: Config, resumption: Resumption | None, info: dict[str, Any], stack: ExitStack
) -> tuple[RunDir, TrainingStart]:
    """Return the folder to train in, locked, and the state from which the training starts there."""
    if resumption and not resumption.fork:
        run = resumption.source
        run.tidy()
        checkpoint_set.sweep_orphans(run.checkpoints)
        write_json(run.config_json, {**continued_facts(resumption, info), "failure": ""})
    else:
        run = _new_run(config, resumption, info)
        with interruption_reported(run):
            stack.enter_context(locked(run.path))
    changes = " ".join(run.facts()["changes"])
    if not resumption or not resumption.checkpoint:
        return run, TrainingStart(changes=changes)
    return run, TrainingStart(
        changes=changes,
        checkpoint=run.checkpoints / resumption.checkpoint.name,
        env_steps=resumption.env_steps,
        exported=resumption.sidecar["exported"],
        closing=resumption.closing,
        tests=0 if resumption.fork else mapping(resumption.facts.get("outcome")).get("tests", 0),
    )


def _new_run(config: Config, resumption: Resumption | None, info: dict[str, Any]) -> RunDir:
    """Create a run folder, for a fork with the files it starts from; a kill at any time leaves all of it or none."""
    env_id, variant, seed = config.env_id, config.variant, config.seed
    info = fork_facts(resumption, info) if resumption else info
    run_id = claim(info["group"], info["config"], new_id(env_id, variant, seed)) if info["group"] else ""
    try:
        return RunDir.create(
            env_id, variant, seed, info, run_id, lambda run: adopt(run, resumption) if resumption else None
        )
    except FileExistsError as error:
        raise RunInTrainingError(f"another process has just started {run_id}") from error


def opening_lines(
    arguments: Arguments, config: Config, resumption: Resumption | None, failure: str, agent: Agent
) -> tuple[str, ...]:
    """Return lines to print above the training: an earlier failure, changes by resuming, general settings."""
    lines = []
    if resumption:
        lines += [failure] if failure else []
        lines += resumption.lines(agent.collector.envs.resume, bits_rest_on(agent))
    # a config file cannot name an environment that was given to stride.train(env=...)
    elif is_general_config(config) and not is_given(config.env_id):
        lines += [KEEP_ADVICE, *to_keep(config)]
    sweep = arguments.sweep.line if arguments.sweep else ignored_sweep()
    return (*lines, sweep) if sweep else tuple(lines)
