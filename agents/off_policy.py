"""What algorithms that learn from a replay memory share: how large it is, how many updates are due."""

from typing import NamedTuple

from agents.base import Agent
from agents.experience.memory import slots_for
from agents.experience.ratio import Ratio, per_env_step
from config.schema import ReplayConfig
from envs_fast.vec_env import VecEnv

SEAMS = 8  # final observations a world may leave beyond its time limit: one per resume


class Room(NamedTuple):
    """Of every world in the memory."""

    rows: int
    slots: int
    """for final observations"""


def replay_room(config: ReplayConfig, envs: VecEnv) -> Room:
    """Rows that make up the buffer, and slots for what they can leave."""
    rows = -(-config.buffer_size // config.n_envs)
    return Room(rows, min(rows, slots_for(rows, envs.time_limit) + SEAMS))


def updates_due(agent: Agent, config: ReplayConfig) -> Ratio:
    """The debt of updates of an agent, which a checkpoint holds."""
    pace = per_env_step(config.train_freq, config.gradient_steps, config.n_envs, config.updates_per_step)
    agent.parts["ratio"] = ratio = Ratio(pace, config.learning_starts)
    return ratio
