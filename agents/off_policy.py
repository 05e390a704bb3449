"""What algorithms that learn from a replay memory share: how large it is, how many updates are due."""

from typing import NamedTuple

from stride.agents.base import Agent
from stride.agents.experience.memory import slots_for
from stride.agents.experience.ratio import Ratio, per_env_step
from stride.config.schema import ReplayConfig
from stride.envs_fast.vec_env import VecEnv

SEAMS = 8  # final observations a world may leave beyond its time limit: one per resume
FIRST = 64  # of each world that there is room for at first, where no limit says how many there will be


class Room(NamedTuple):
    """Of every world in the memory."""

    rows: int
    slots: int
    """for final observations"""


def replay_room(config: ReplayConfig, envs: VecEnv, keep_terminal: bool = False) -> Room:
    """Rows that make up the buffer, and slots for what they can leave.

    Where terminations are kept too, every row may leave one: on the CPU a few slots do at first and the memory makes
    room for more, elsewhere it cannot, as it does not wait for the device to know.
    """
    rows = -(-config.buffer_size // config.n_envs)
    if keep_terminal:
        return Room(rows, min(rows, FIRST) if envs.device.type == "cpu" else rows)
    return Room(rows, min(rows, slots_for(rows, envs.time_limit) + SEAMS))


def updates_due(agent: Agent, config: ReplayConfig) -> Ratio:
    """The debt of updates of an agent, which a checkpoint holds."""
    pace = per_env_step(config.train_freq, config.gradient_steps, config.n_envs, config.updates_per_step)
    agent.parts["ratio"] = ratio = Ratio(pace, config.learning_starts)
    return ratio
