"""The content of results.json of a published run: folder.py measures it, card.py shows it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TestResult:
    """The evaluation of a checkpoint, usually over 100 episodes. The names are the keys in results.json."""

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
