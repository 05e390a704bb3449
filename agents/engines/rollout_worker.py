"""`collectors: N`: the code of a Ray actor, which plays rollouts in one slice of the worlds, in its own process.

It has worlds, a policy and a memory, and gets weights before each rollout (the learner's side is ray_collectors.py).
Requests and answers are plain data, serialized as between ranks (`packed` of local_shards.py).
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
    """Draws the random numbers of shard `number` of `count`. Exchanges nothing, but keeps its episodes' columns."""

    def __init__(self, number: int, count: int) -> None:
        self.number, self.count = number, count
        self.episodes: Sequence[Tensor] = ()

    def gather_worlds(self, *columns: Tensor) -> Sequence[Tensor]:
        self.episodes = columns
        return columns


class LearnElsewhere:
    """The socket Learn of a worker: does nothing, since the learner learns."""

    name = "elsewhere"

    def learn(self, learner: object, work: object) -> None:
        pass


class RolloutWorker:
    """One slice of the worlds. Other threads may call `steps` while `begin` or `play` runs."""

    agent: Agent | None = None

    def steps(self) -> int:
        """Return how many steps the worlds have taken; the learner sees by it that the actor is alive."""
        return self.agent.memory.written if self.agent else 0

    def begin(self, plain: Mapping[str, Any], number: int, folders: Sequence[str], snapshot: bytes) -> bytes:
        """Make the worlds of slice `number`, newly reset or in the state of a snapshot; return a snapshot.

        `plain`: the config; `folders`: where modules of the user are imported from.
        """
        config = from_plain(plain, "the learner", trust=EVERYBODY)
        torch.set_num_threads(config.torch_threads)
        import_own_modules(*map(Path, folders))
        slice_config = worker_config(config)
        if self.agent:
            self.agent.collector.envs.close()
        envs = make_envs(slice_config, slice_config.n_envs, first_world=number * slice_config.n_envs)
        agent = build_agent(slice_config, envs)
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
        """Play a rollout with the policy and settings of `request`; return rows, episodes and a snapshot."""
        agent, message = self.agent, plain_data(request, "the learner")
        assert agent is not None
        torch.set_num_threads(agent.config.torch_threads)  # Ray may call each method in another thread
        agent.collector.policy.load_state_dict(message["policy"])
        vars(agent.live).update(message["live"])
        agent.iteration()
        rows, finals = leaves(agent.memory.table), leaves(agent.memory.final)
        episodes = list(self.slice.episodes)
        return packed({"rows": rows, "finals": finals, "episodes": episodes, **snapshot_of(agent)})


def snapshot_of(agent: Agent) -> dict[str, Any]:
    """Return the state from which another worker, or a shard, continues exactly."""
    return {"collector": agent.collector.state_dict(), "memory": agent.memory.state_dict()}


def worker_config(config: Config) -> Config:
    """Return the config of one slice, whose worlds the worker steps itself, in plain torch."""
    return shard_config(config, config.collectors, engine="eager", workers=0, collectors=0)
