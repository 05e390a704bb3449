"""What is known before a training (Header) and after it (Outcome), and the one sentence that tells the end."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from report.alerts import Alert, counted
from report.typography import duration, plain, score

INTERRUPTED = "interrupted"  # the reason of an end that a signal asked for


@dataclass(frozen=True)
class Header:
    """The facts printed above a training."""

    config_id: str  # "CartPole-v1:ppo"
    algo_id: str
    engine: str
    engine_why: str  # why this engine; "" when there is nothing to say
    env_backend: str  # whose worlds: fast or gym
    env_backend_why: str
    device: str
    n_envs: int
    seed: int
    parameters: int
    goal: float | None
    max_timesteps: int
    run_path: str


@dataclass(frozen=True)
class Outcome:
    """How a training ended. `solved` is only true when fresh episodes of the final weights confirmed it."""

    solved: bool
    reason: str  # "goal reached", "budget spent", "interrupted"
    goal: float | None
    val_best: float | None
    test_mean: float | None
    test_std: float | None
    test_episodes: int
    env_steps: int
    seconds: float
    run_path: str
    alerts: tuple[Alert, ...] = ()
    """of the whole run"""
    lost: str = ""
    """What a signal cost, "" where nothing; said to who sent it, and kept nowhere."""

    @property
    def word(self) -> str:
        """solved; not solved; finished, when there was no goal to reach."""
        if self.solved:
            return "solved"
        return "finished" if self.goal is None else "not solved"

    def test_words(self) -> str:
        """The test score in words, "" when nothing was tested."""
        if self.test_mean is None:
            return ""
        spread = "" if self.test_std is None else f" ± {score(self.test_std)}"
        return f"{score(self.test_mean)}{spread} over {self.test_episodes} episodes"

    def sentence(self) -> str:
        """One line: word, reason, scores, what it took."""
        parts = [f"{self.word.capitalize()} ({self.reason})"]
        if self.test_mean is not None:
            parts.append(f"test {self.test_words()}")
        if self.val_best is not None:
            parts.append(f"best val {score(self.val_best)}")
        if self.goal is not None:
            parts.append(f"goal {plain(self.goal)}")
        told = counted(self.alerts)
        spent = f"{self.env_steps:,} env steps in {duration(self.seconds)}{f'; {told}' if told else ''}"
        return f"{', '.join(parts)}; {spent}."


def next_commands(outcome: Outcome, config_id: str) -> list[str]:
    """What one may want to type now, with an interpreter that has what it takes."""
    python = "python" if os.environ.get("VIRTUAL_ENV") else os.path.relpath(sys.executable)
    resume = f"{python} train.py --resume {Path(outcome.run_path).name}"
    if outcome.reason == INTERRUPTED:
        return [resume]
    if not outcome.solved:
        return [f"{resume} --max-timesteps {2 * outcome.env_steps}"]
    seeds = f"{python} train.py {config_id} --seed 1,2,3,4,5"
    play = f"{python} run_play.py --run-id @last"
    return [play, f"less {outcome.run_path}/report.md", seeds, f"{python} train.py --list-envs"]
