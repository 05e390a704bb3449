"""What is the same of agents with a replay memory to a fused engine: what is told of updates are sums."""

import numpy as np

from stride.agents.base import Agent


def add_sums(agent: Agent, sums: dict[str, float], count: int) -> None:
    """Metrics of which these are the sums over `count` updates."""
    agent.metrics.add_sums(tuple(sums), np.array([*sums.values()]), count)
