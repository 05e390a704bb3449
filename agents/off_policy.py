"""The common parts of algorithms that learn from a replay memory: its size, an iteration, target networks."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stride.agents.base import Agent
from stride.agents.experience.memory import slots_for
from stride.agents.experience.ratio import Ratio, updates_per_step
from stride.config.schema import ReplayConfig
from stride.envs_fast.vec_env import VecEnv

SEAMS = 8  # final observations a world may leave beyond its time limit: one per resume
FIRST_SLOTS = 64  # of each world at first, where no limit says how many final observations there will be


class ReplaySize(NamedTuple):
    """The size of a memory, for each of its worlds."""

    rows: int
    slots: int
    """for final observations"""


def replay_size(config: ReplayConfig, envs: VecEnv, keep_terminal: bool = False) -> ReplaySize:
    """Rows that make up the buffer, and slots for the final observations they can leave.

    Where terminations are kept too, every row may leave one: on the CPU a few slots are enough at first and the memory
    adds more, elsewhere it cannot, as it does not wait for the device to know.
    """
    row_count = -(-config.buffer_size // config.n_envs)
    if not keep_terminal:
        slot_count = slots_for(row_count, envs.time_limit) + SEAMS
    else:
        slot_count = FIRST_SLOTS if envs.device.type == "cpu" else row_count
    return ReplaySize(row_count, min(row_count, slot_count))


def updates_due(agent: Agent, config: ReplayConfig) -> Ratio:
    """The debt of updates of an agent, which a checkpoint holds."""
    agent.parts["ratio"] = ratio = Ratio(updates_per_step(config), config.learning_starts)
    return ratio


def collect_and_learn(agent: Agent, steps: int, ratio: Ratio, span: int) -> None:
    """An iteration: a few steps, then the updates that are due for them, once `span` consecutive rows can be drawn."""
    steps_before = agent.progress["env_steps"]
    agent.collect(steps)
    steps_after = agent.progress["env_steps"]
    agent.learn_from(ratio.due(steps_after - steps_before, steps_after, agent.memory.ready(span)))


def learn_statistics(agent: Agent, config: ReplayConfig, *networks: Any) -> None:
    """Let the encoders of these networks see the latest observations, where their statistics are learnt."""
    if config.normalize_obs == "rolling":
        for network in networks:
            network.encoder.learn(agent.memory.recent(config.train_freq))


@torch.no_grad()
def move_towards(target: nn.Module, source: nn.Module, fraction: float) -> None:
    """target += fraction * (source - target), parameter by parameter, at once."""
    targets: list[Tensor] = [*target.parameters()]
    sources: list[Tensor] = [*source.parameters()]
    if fraction < 1:
        torch._foreach_lerp_(targets, sources, fraction)
    else:
        torch._foreach_copy_(targets, sources)
