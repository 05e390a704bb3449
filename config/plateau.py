"""The `plateau` block of a config: what a training does when a metric stops improving.

checks.py has its rules with other keys; trainer_callbacks/schedule.py carries it out."""

from dataclasses import dataclass, field
from typing import Literal

EVALUATED = "val/"  # names of metrics that an evaluation measures begin with this


@dataclass(frozen=True)
class Plateau:
    """Which metric to watch, how long to wait, what to do."""

    metric: str = "val/roll/ep_rew/mean"
    """Metric of train/ or val/ that must improve; metrics of train/roll/ count after 100 finished episodes."""
    patience: int = 5
    """A plateau is this many values in a row without improvement: evaluations (val/) or rows (train/)."""
    min_delta: float = 0.0
    """A value is better if it improves on the best value by more than this."""
    scale: dict[str, float] = field(default_factory=dict)
    """Factors by which schedulable keys are multiplied at a plateau, on top of their schedules: {policy_lr: 0.5}."""
    times: int | None = 1
    """How many plateaus scale; null = every plateau."""
    then: Literal["nothing", "stop"] = "nothing"
    """What the next plateau after those does; without scale, the first plateau does it."""

    def words(self) -> str:
        """Return a line for the header of a training: which metric may steer it, and what happens then."""
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
