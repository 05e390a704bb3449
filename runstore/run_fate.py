"""Sentences about the end of a run: how it failed, or that its process ended without a word."""

from collections.abc import Mapping

from stride.runstore import checkpoint_set
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import ending_words, finite, part_test
from stride.runstore.run_facts import failure as failure
from stride.runstore.run_state import DEAD, state_of
from stride.utils.places import TRAIN


def silent_end(run: RunDir, facts: Mapping[str, object]) -> str:
    """How a run ended whose config.json says that it is running, though no process trains it; "" for any other."""
    if state_of(run.path, facts) != DEAD:
        return ""
    sidecar = checkpoint_set.facts_of(run.checkpoints / "last.ckpt")
    progress = (
        f"after its checkpoint at {sidecar['env_steps']:,} env steps" if sidecar else "before its first checkpoint"
    )
    return f"its process ended without a message {progress}"


def fate(run: RunDir, facts: Mapping[str, object]) -> str:
    """The sentence about a run that did not end as it should; "" of any other."""
    if reason := failure(facts):
        return f"{run.id} failed: {reason}"
    reason = silent_end(run, facts)
    return reason and f"{run.id} died: {reason}"


def continuation(run: RunDir) -> str:
    """How to go on with a run that stopped: from its checkpoint, or from the beginning where it has none."""
    command = f"{TRAIN} --resume {run.id}"
    sidecar = checkpoint_set.facts_of(run.checkpoints / "last.ckpt")
    return f"continue: {command}" if sidecar else f"no checkpoint yet, start again: {command}"


def conclusion(outcome: Mapping[str, object]) -> str:
    """The summary of a run's end, without its clock: solved (goal reached), 500.0 over 100 fresh episodes."""
    goal, test_mean = finite(outcome.get("goal")), finite(outcome.get("test_mean"))
    test_text = (
        part_test(outcome)
        if test_mean is None
        else f"{test_mean:.1f} over {outcome.get('test_episodes')} fresh episodes"
    )
    aim = f", goal {goal:g}" if goal is not None else ""
    return f"{ending_words(outcome)}{f', {test_text}' if test_text else ''}{aim}"
