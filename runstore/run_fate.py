"""Sentences about how a run ended: that it failed, or that its process died. For commands and pages."""

from collections.abc import Mapping

from stride.runstore import checkpoint_set
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import ending_words, finite, part_test
from stride.runstore.run_facts import failure as failure
from stride.runstore.run_state import DEAD, state_of
from stride.utils.places import TRAIN


def silent_end(run: RunDir, facts: Mapping[str, object]) -> str:
    """Describe the end of a run that is "running" by its config.json, but has no process; "" for any other run."""
    if state_of(run.path, facts) != DEAD:
        return ""
    sidecar = checkpoint_set.facts_of(run.checkpoints / "last.ckpt")
    progress = (
        f"after its checkpoint at {sidecar['env_steps']:,} env steps" if sidecar else "before its first checkpoint"
    )
    return f"its process ended without a message {progress}"


def fate(run: RunDir, facts: Mapping[str, object]) -> str:
    """Return the sentence about a run that failed or died; "" for any other run."""
    if reason := failure(facts):
        return f"{run.id} failed: {reason}"
    reason = silent_end(run, facts)
    return reason and f"{run.id} died: {reason}"


def continuation(run: RunDir) -> str:
    """Return the command that continues a stopped run: from its checkpoint, or from the start if it has none."""
    command = f"{TRAIN} --resume {run.id}"
    sidecar = checkpoint_set.facts_of(run.checkpoints / "last.ckpt")
    return f"continue: {command}" if sidecar else f"no checkpoint yet, start again: {command}"


def conclusion(outcome: Mapping[str, object]) -> str:
    """Summarize a run's end without its duration: solved (goal reached), 500.0 over 100 fresh episodes, goal 475."""
    goal, test_mean = finite(outcome.get("goal")), finite(outcome.get("test_mean"))
    test_text = (
        part_test(outcome)
        if test_mean is None
        else f"{test_mean:.1f} over {outcome.get('test_episodes')} fresh episodes"
    )
    aim = f", goal {goal:g}" if goal is not None else ""
    return f"{ending_words(outcome)}{f', {test_text}' if test_text else ''}{aim}"
