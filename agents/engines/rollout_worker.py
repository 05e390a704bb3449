"""One slice of the worlds of a training with `collectors`, in a process elsewhere: it plays whole rollouts.

It has worlds, a policy and a memory, and gets weights before each rollout. Requests and answers are plain data, packed
as between ranks (agents/engines/local_shards.py).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stride.agents.base import Agent
from stride.agents.engines.choice import build_agent
from stride.agents.engines.local_shards import packed, shard_config
from stride.agents.experience.nouns import leaves
from stride.agents.experience.shards import SingleShard
from stride.agents.trained.loading import plain_data
from stride.config.loader import from_plain
from stride.config.plugins import EVERYBODY
from stride.config.schema import Config
from stride.envs_gym.make import make_envs
from stride.envs_gym.own_code import import_own_modules


class WorldSlice(SingleShard):
    """Draws as shard `number` of `count` does; nothing is exchanged, and the columns of its episodes are kept."""

    def __init__(self, number: int, count: int) -> None:
        self.number, self.count = number, count
        self.episodes: Sequence[Tensor] = ()

    def gather_worlds(self, *columns: Tensor) -> Sequence[Tensor]:
        self.episodes = columns
        return columns


class LearnElsewhere:
    """In place of learning from a rollout: nothing."""

    name = "elsewhere"

    def learn(self, learner: object, work: object) -> None:
        pass


class RolloutWorker:
    """`steps` may be asked while `begin` and `play` are under way, from another thread."""

    agent: Agent | None = None

    def steps(self) -> int:
        """Steps that its worlds have taken."""
        return self.agent.memory.written if self.agent else 0

    def begin(self, plain: Mapping[str, Any], number: int, folders: Sequence[str], snapshot: bytes) -> bytes:
        """Make the worlds of slice `number`, at their start or, where there is one, as in a snapshot; -> a snapshot."""
        config = from_plain(plain, "the learner", trust=EVERYBODY)
        torch.set_num_threads(config.torch_threads)
        import_own_modules(*map(Path, folders))
        part = worker_config(config)
        if self.agent:
            self.agent.collector.envs.close()
        agent = build_agent(part, make_envs(part, part.n_envs, first_world=number * part.n_envs))
        self.slice = WorldSlice(number, config.collectors)
        agent.join(self.slice)
        agent.engine = agent.engine._replace(learn=LearnElsewhere())
        if snapshot:
            state = plain_data(snapshot, "the learner")
            agent.collector.load_state_dict(state["collector"])
            agent.memory.load_state_dict(state["memory"])
        self.agent = agent
        return packed(snapshot_of(agent))

    def play(self, request: bytes) -> bytes:
        """A rollout by the policy and the values of schedules that are given; -> rows, episodes, a snapshot."""
        agent, given = self.agent, plain_data(request, "the learner")
        assert agent is not None
        torch.set_num_threads(agent.config.torch_threads)  # of this thread
        agent.collector.policy.load_state_dict(given["policy"])
        vars(agent.live).update(given["live"])
        agent.iteration()
        rows, finals = leaves(agent.memory.table), leaves(agent.memory.final)
        episodes = list(self.slice.episodes)
        return packed({"rows": rows, "finals": finals, "episodes": episodes, **snapshot_of(agent)})


def snapshot_of(agent: Agent) -> dict[str, Any]:
    """All that a worker needs to go on from here as this one would."""
    return {"collector": agent.collector.state_dict(), "memory": agent.memory.state_dict()}


def worker_config(config: Config) -> Config:
    """Of one slice: its worlds are stepped by the worker itself."""
    return shard_config(config, config.collectors, engine="eager", workers=0, collectors=0)
