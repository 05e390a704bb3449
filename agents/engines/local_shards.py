"""Run the shards of a training that belong to this process (rank), and direct those of other ranks from rank 0.

The trainer knows only the agent of shard 0. Before each iteration rank 0 broadcasts the values that schedules have set;
after a load it sends its state to all ranks. Ranks above 0 only carry out messages of rank 0: {"do": "tick"}, "load",
"save" or "end". Means over all shards are computed together (agents/experience/shards.py).
"""

import io
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from lightning.fabric.utilities import move_data_to_device

from stride.agents.base import Agent
from stride.agents.engines.choice import build_agent, may_be_fused
from stride.agents.engines.fused_cpu.kernel_tables import nets_of
from stride.agents.engines.fused_cpu.warm import warm
from stride.agents.engines.process_group import ProcessGroup
from stride.agents.experience.shards import Shard, ShardThreads
from stride.agents.trained.loading import plain_data
from stride.config.schema import Config, RolloutConfig
from stride.envs_fast.vec_env import CPU, VecEnv
from stride.envs_gym.make import make_envs

SHARD_PARTS = ("collector", "memory", "reward_scale")  # parts of an agent that differ between shards
OPTION_NAMES = ("lr", "weight_decay", "eps")  # options of an optimizer that schedules may change


class LocalShards:
    """The agents of this rank's shards. The first agent of rank 0 is the trainer's.

    The public methods, except `serve`, are called on rank 0 (see ShardGroup).
    """

    def __init__(self, agents: list[Agent], threads: ShardThreads, group: ProcessGroup | None) -> None:
        self.agents, self._threads, self._group = agents, threads, group
        self._others = agents if group and group.rank else agents[1:]  # all agents of this rank but the trainer's

    def tick(self) -> None:
        first = self.agents[0]
        names = first.config.driven()
        live = {name: value for name, value in vars(first.live).items() if name in names}
        groups = first.optimizer.param_groups
        options = [{name: group[name] for name in OPTION_NAMES if name in group} for group in groups]
        self._broadcast(do="tick", live=live, options=options)
        self._tick(live, options)

    def _tick(self, live: dict[str, Any], options: list[dict[str, Any]]) -> None:
        for agent in self._others:
            vars(agent.live).update(live)
            for group, values in zip(agent.optimizer.param_groups, options, strict=True):
                group.update(values)
        self._threads.run([agent.tick for agent in self.agents])

    def begin(self, saved: list[dict] | None) -> None:
        first, per_rank = self.agents[0], len(self.agents)
        common = {
            "weights": first.state_dict(),
            "optimizer": first.optimizer.state_dict(),
            "progress": dict(first.progress),
        }
        parts = [{}, *(saved or [{}] * (first.shard.count - 1))]
        self._load({**common, "shards": parts[1:per_rank]})
        self._broadcast(do="load")
        for rank in range(1, self._group.ranks if self._group else 1):
            assert self._group
            state = {**common, "shards": parts[rank * per_rank : (rank + 1) * per_rank]}
            self._group.send(rank, packed(state))

    def _load(self, state: dict[str, Any]) -> None:
        for agent, parts in zip(self._others, state["shards"], strict=True):
            agent.load_state_dict(state["weights"])
            agent.optimizer.load_state_dict(deepcopy(state["optimizer"]))  # it keeps the tensors it is given
            agent.progress.update(state["progress"])
            for name in parts:
                agent.parts[name].load_state_dict(parts[name])

    def states(self) -> list[dict]:
        self._broadcast(do="save")
        states = self._states()
        for rank in range(1, self._group.ranks if self._group else 1):
            assert self._group
            states += plain_data(self._group.receive(rank), f"rank {rank}")["shards"]
        return states

    def _states(self) -> list[dict]:
        states = []
        for agent in self._others:
            parts = {name: part for name, part in agent.parts.items() if name in SHARD_PARTS}
            states.append({name: move_data_to_device(part.state_dict(), CPU) for name, part in parts.items()})
        return states

    def end(self) -> None:
        self._broadcast(do="end")
        self._close()

    def serve(self) -> None:
        """On a rank above 0: carry out the messages of rank 0 until the training ends."""
        assert self._group
        while (message := self._group.receive_message())["do"] != "end":
            if message["do"] == "tick":
                self._tick(message["live"], message["options"])
            elif message["do"] == "load":
                self._load(plain_data(self._group.receive(0), "rank 0"))
            else:
                self._group.send(0, packed({"shards": self._states()}))
        self._close()

    def _broadcast(self, **message: object) -> None:
        if self._group:
            self._group.broadcast(message)

    def _close(self) -> None:
        for agent in self._others:
            agent.collector.envs.close()


def build_shards(config: Config, group: ProcessGroup | None = None, quiet: bool = True) -> LocalShards:
    """Build the shards of this rank, and compile their kernels; without a group this process has all shards."""
    assert isinstance(config, RolloutConfig)
    rank, ranks = (group.rank, group.ranks) if group else (0, 1)
    per_rank, count = config.shards // ranks, config.shards
    cpu_threads = 1 if group and config.threads == "auto" else config.threads  # ranks share the cores
    part = shard_config(config, count, threads=cpu_threads)
    numbers = range(rank * per_rank, (rank + 1) * per_rank)

    def worlds_of(number: int) -> VecEnv:
        envs = make_envs(part, part.n_envs, first_world=number * part.n_envs)
        if number == numbers[0]:
            warm(envs, config.algo_id if may_be_fused(config) else None, nets_of(config), quiet, count)
        return envs

    threads = ShardThreads(per_rank, group)
    agents = build_agents(part, numbers, count, threads, worlds_of)
    shards = LocalShards(agents, threads, group)
    if rank == 0:
        agents[0].shard_group = shards
    return shards


def shard_config(config: Config, count: int, **other: Any) -> Config:
    """Return the config of one of `count` shards: its share of worlds and minibatch rows, and the values `other`."""
    assert isinstance(config, RolloutConfig)
    worlds, rows = config.n_envs // count, config.minibatch_size // count
    return replace(config, n_envs=worlds, batch_size=rows, shards=1, **other)


def build_agents(
    part: Config, numbers: range, count: int, threads: ShardThreads, worlds_of: Callable[[int], VecEnv]
) -> list[Agent]:
    """Build the agents of the shards `numbers` of `count`, with the config `part` of one shard."""
    agents = []
    for index, number in enumerate(numbers):
        agent = build_agent(part, worlds_of(number))
        if count > 1:
            agent.join(Shard(number, count, threads, index))
        if number:
            agent.own_optimizer = agent.configure_optimizers()
        agents.append(agent)
    return agents


def agent_to_train(config: Config) -> Agent:
    """Build the agent of a config and its environments; with several shards the first shard's, all in this process."""
    if config.collectors:  # without Ray: shards of this process give the same bits
        config = replace(config, shards=config.collectors, collectors=0, engine="eager", workers=0)
    if config.shards > 1:
        return build_shards(config).agents[0]
    return build_agent(config, make_envs(config, config.n_envs))


def packed(state: dict[str, Any]) -> bytes:
    """Serialize plain data (tensors, numbers, dicts, lists), for `plain_data` of trained/loading.py."""
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()
