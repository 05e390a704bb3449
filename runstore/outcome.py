"""What is known before a training (Header) and after it (Outcome), and the sentences and commands made of these.

The console, report.md and config.json show them. Shares of time by phase are at the end.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stride.runstore.history import Alert, counted
from stride.runstore.run_facts import INTERRUPTED as INTERRUPTED
from stride.runstore.run_facts import PAUSED as PAUSED
from stride.runstore.run_facts import UNENDED as UNENDED
from stride.runstore.run_facts import ending_words, part_test, verdict
from stride.runstore.run_facts import verdict_words as words_of
from stride.utils.places import PLAY, TRAIN
from stride.utils.typography import duration, plain, score

FAILED = "failed"  # reason of a training that an error ended


@dataclass(frozen=True)
class Header:
    """The facts that are printed above a training."""

    config_id: str  # "CartPole-v1:ppo"
    algo_id: str
    engine: str
    engine_why: str  # why this engine; "" if there is nothing to say
    env_backend: str  # who computes the environments: fast, gym, ale or torch
    env_backend_why: str
    device: str  # cpu, or cuda:0 (NVIDIA H200)
    n_envs: int
    seed: int
    parameters: int
    goal: float | None
    max_timesteps: int
    run_path: str
    threads: int = 1
    threads_why: str = ""  # "" if the config sets the number
    workers: int = 0  # processes that step the environments; 0: the training's own process does
    workers_why: str = ""  # "" if there is nothing to say
    settings: str = ""  # where the settings come from; "" if they are this environment's own
    changes: str = ""  # the overrides that make the config differ from the variant's
    plateau: str = ""  # what happens when a metric stops improving; "" if nothing
    task: tuple[str, ...] = ()  # arguments that start it again: ("CartPole-v1:ppo", "--seed", "1", "gamma=0.1")


@dataclass(frozen=True)
class Outcome:
    """How a training ended. `solved`: every fresh episode of its test ended and their mean reaches the goal."""

    solved: bool
    reason: str  # "goal reached", "evaluation return reached", "plateau reached", "budget spent", ..
    goal: float | None
    val_best: float | None
    test_mean: float | None
    test_std: float | None
    test_episodes: int
    """how many episodes of the test ended; a test counts only if all did"""
    env_steps: int
    seconds: float
    run_path: str
    alerts: tuple[Alert, ...] = ()
    """of the whole run"""
    cures: tuple[str, ...] = ()
    """Overrides that may help, the most likely first: from open alerts, and from keys far from the variant's values."""
    lost: str = ""
    """What a signal cost, "" if nothing; printed for the person who sent it, but not stored."""
    phases: dict[str, float] = field(default_factory=dict)
    """The fraction of the run's time that each of PHASES took; {} if unknown."""
    dreams: dict[str, float] = field(default_factory=dict)
    """Errors of the world model's predictions, by metric (runstore/dreams.py); {} without a world model."""
    test_wanted: int = 0
    """How many episodes the test should have; 0 if no test was played."""
    tests: int = 0
    """How many tests were played so far: one for each evaluation that reaches the goal, and one at the end."""

    @property
    def verdict(self) -> str:
        """solved, not solved, not tested; trained if there was no goal; interrupted or paused if it can be resumed."""
        return verdict(vars(self))

    @property
    def verdict_words(self) -> str:
        """The verdict as screens show it: `solved (5 episodes)` if its test had fewer than 100."""
        return words_of(self.verdict, self.test_episodes)

    @property
    def why(self) -> str:
        """The reason; "" if the verdict already says it."""
        return "" if self.verdict == self.reason else self.reason

    @property
    def result(self) -> str:
        """The verdict for programs: solved, not_solved, not_tested, trained, interrupted, paused, failed."""
        return FAILED if self.reason == FAILED else self.verdict.replace(" ", "_")

    def line(self) -> str:
        """Return one line for grep: always the same key=value pairs in this order, `none` for a missing value.

        The run comes last, because its path may contain spaces.
        """
        line_fields = {
            "result": self.result,
            "test_mean": self.test_mean,
            "test_std": self.test_std,
            "test_episodes": self.test_episodes,
            "tests": self.tests,
            "goal": None if self.goal is None else f"{self.goal:.10g}",
            "env_steps": self.env_steps,
            "seconds": float(self.seconds),
            "alerts": len(self.alerts),
            "run": self.run_path,
        }
        return " ".join(f"{key}={_machine_word(value)}" for key, value in line_fields.items())

    def test_words(self) -> str:
        """Return the test score in words, or why there is none; "" if nothing was tested."""
        if self.test_mean is None:
            return part_test(vars(self))
        deviation = "" if self.test_std is None else f" ± {score(self.test_std)}"
        test_note = f" (test {self.tests} of this run)" if self.tests > 1 else ""
        return f"{score(self.test_mean)}{deviation} over {self.test_episodes} episodes{test_note}"

    def sentence(self) -> str:
        """Return one line: verdict, reason, scores, env steps and time."""
        ending_text, test_text = ending_words(vars(self)), self.test_words()
        phrases = [ending_text[:1].upper() + ending_text[1:]]
        if test_text:
            phrases.append(test_text if self.test_mean is None else f"test {test_text}")
        if self.val_best is not None:
            phrases.append(f"best evaluation {score(self.val_best)}")
        if self.goal is not None:
            phrases.append(f"goal {plain(self.goal)}")
        alert_counts = counted(self.alerts)
        spent = f"{self.env_steps:,} env steps in {duration(self.seconds)}{f'; {alert_counts}' if alert_counts else ''}"
        return f"{', '.join(phrases)}; {spent}."


def _machine_word(value: object) -> str:
    return "none" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def next_commands(outcome: Outcome, header: Header) -> list[str]:
    """Return commands that a person may want to type after this training."""
    resume_command = f"{TRAIN} --resume {Path(outcome.run_path).name}"
    cures = cure_commands(header.task, outcome.cures)
    if outcome.reason in UNENDED:
        return [*cures, resume_command]
    more = f"{resume_command} --max-timesteps {2 * outcome.env_steps}"
    if outcome.verdict == "not solved":
        is_alarming = any(alert.open for alert in outcome.alerts)
        return cures if cures and is_alarming else [*cures, more]
    if outcome.verdict == "not tested":
        return [*cures, f"{PLAY} --run-id @last --headless --episodes 100", more]
    seeds = f"{TRAIN} {header.config_id} --seed 1,2,3,4,5"
    return [
        *cures,
        f"{PLAY} --run-id @last",
        f"less {outcome.run_path}/report.md",
        seeds,
        f"{TRAIN} --list-envs",
    ]


def cure_commands(task: Sequence[str], cures: Iterable[str]) -> list[str]:
    """Return one command per override in `cures`: the training `task` with that key changed."""
    commands = []
    for cure in cures:
        key = cure.partition("=")[0]
        arguments = [argument for argument in task if re.split("[.=]", argument)[0] != key]
        commands.append(f"{TRAIN} {shlex.join([*arguments, cure])}")
    return commands


def task_words(config_id: str, seed: int, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the arguments that start a run's training again; `facts` is its config.json."""
    task = [config_id]
    command = re.search(r"--config[= ]('[^']+'|\S+)", str(facts.get("command", "")))
    if command:
        task = ["--config", command[1].strip("'"), config_id.rpartition(":")[2]]
    return (*task, "--seed", str(seed), *facts.get("changes", []))


PHASES = ("collect", "learn", "evaluate", "save", "other")  # every second of a training belongs to one
PREFIX = "train/time/"  # metrics train/time/collect, ...: each phase's share of the time since the last row


def shares(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return each phase's fraction of all seconds; {} if no time has passed."""
    total_seconds = sum(seconds.values())
    return {phase: seconds[phase] / total_seconds for phase in PHASES} if total_seconds > 0 else {}


def phases_text(parts: Mapping[str, float]) -> str:
    """Return `learn 61 %, collect 20 %, ..`: largest first, other last, without phases that round to 0 %."""
    visible = [phase for phase in parts if parts[phase] >= 0.005]
    order = sorted(visible, key=lambda phase: (phase == "other", -parts[phase]))
    return ", ".join(f"{phase} {100 * parts[phase]:.0f} %" for phase in order)
