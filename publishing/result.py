"""results.json of a published run. Measured by folder.py, shown by card.py."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TestResult:
    """The returns of 100 episodes of a checkpoint."""

    env_id: str
    env_steps: int
    checkpoint: str
    mean_reward: float
    std_reward: float
    n_eval_episodes: int
    is_deterministic: bool
    seed: int
    returns: list[float]
    lengths: list[int]
