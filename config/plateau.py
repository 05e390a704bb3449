"""The `plateau` block of a config: the reaction to a metric that gets no better, as data and in English.

Its rules beside other keys are in checks.py; trainer_callbacks/schedule.py acts by it."""

from dataclasses import dataclass, field
from typing import Literal

EVALUATED = "val/"  # how the names of an evaluation's metrics begin


@dataclass(frozen=True)
class Plateau:
    """Which metric to watch, how long to wait, what to do."""

    metric: str = "val/roll/ep_rew/mean"
    """Metric of train/ or val/ that has to get better; train/roll/ counts once 100 episodes have ended."""
    patience: int = 5
    """As many values in a row, of evaluations (val/) or rows (train/), that bring no better one are a plateau."""
    min_delta: float = 0.0
    """A value is better if it beats the best one before by more than this."""
    scale: dict[str, float] = field(default_factory=dict)
    """Factors by which schedulable keys are multiplied at a plateau, on top of their schedules: {policy_lr: 0.5}."""
    times: int | None = 1
    """Plateaus that do so; null = every one."""
    then: Literal["nothing", "stop"] = "nothing"
    """What the plateau after those does; without scale the first one does it."""

    def words(self) -> str:
        """One line for whoever reads above a training what may steer it."""
        source = "evaluations" if self.metric.startswith(EVALUATED) else "rows"
        margin = f" by more than {self.min_delta:g}" if self.min_delta else ""
        reactions = []
        if self.scale:
            scalings = ", ".join(f"{key} x {factor:g}" for key, factor in self.scale.items())
            reactions.append(scalings + {1: "", None: ", each time"}.get(self.times, f", {self.times} times"))
        if self.then == "stop":
            reactions.append("stop")
        after = f"{self.patience} in a row without a better {self.metric}{margin}"
        return f"{source} steer this run: {after}: {', then '.join(reactions)}"
