"""The shards of a training that one process carries, and how rank 0's first shard leads all others.

The leader alone is known to a trainer. Before each iteration it says which values schedules have set; after a load it
gives its state to all. Nothing else is decided anywhere but by it, so that nobody can disagree: the others do what they
hear. Whatever a mean over all shards is made of they exchange among themselves (agents/experience/shards.py).
"""

import io
from dataclasses import replace
from typing import Any

import torch
from lightning.fabric.utilities import move_data_to_device

from stride.agents.base import Agent
from stride.agents.engines.choice import build_agent, may_be_fused
from stride.agents.engines.fused_cpu.kernel_tables import nets_of
from stride.agents.engines.fused_cpu.warm import warm
from stride.agents.engines.link import ProcessLink
from stride.agents.experience.shards import Shard, Table
from stride.agents.trained.loading import plain_data
from stride.config.schema import Config, RolloutConfig
from stride.envs_fast.vec_env import CPU
from stride.envs_gym.make import make_envs

EACH_ITS_OWN = ("collector", "memory", "reward_scale")  # parts of an agent that are not those of every shard
OPTIONS = ("lr", "weight_decay", "eps")  # of an optimizer, which schedules move


class LocalCrew:
    """The agents of this process; the first of rank 0 leads."""

    def __init__(self, agents: list[Agent], table: Table, link: ProcessLink | None) -> None:
        self.agents, self._table, self._link = agents, table, link
        self._leads = link is None or link.rank == 0
        self._others = agents[1:] if self._leads else agents

    def tick(self) -> None:
        leader = self.agents[0]
        names = leader.config.driven()
        live = {name: value for name, value in vars(leader.live).items() if name in names}
        options = [{name: group[name] for name in OPTIONS if name in group} for group in leader.optimizer.param_groups]
        self._say(do="tick", live=live, options=options)
        self._tick(live, options)

    def _tick(self, live: dict[str, Any], options: list[dict[str, Any]]) -> None:
        for agent in self._others:
            vars(agent.live).update(live)
            for group, values in zip(agent.optimizer.param_groups, options, strict=True):
                group.update(values)
        self._table.run([agent.tick for agent in self.agents])

    def begin(self, saved: list[dict] | None) -> None:
        leader = self.agents[0]
        common = {
            "weights": leader.state_dict(),
            "optimizer": leader.optimizer.state_dict(),
            "progress": dict(leader.progress),
        }
        each = len(self.agents)
        parts = [{}, *(saved or [{}] * (leader.shard.count - 1))]
        self._load({**common, "shards": parts[1:each]})
        if self._link:
            self._link.say({"do": "load"})
            for rank in range(1, self._link.ranks):
                state = {**common, "shards": parts[rank * each : (rank + 1) * each]}
                self._link.send(rank, packed(state))

    def _load(self, state: dict[str, Any]) -> None:
        for agent, parts in zip(self._others, state["shards"], strict=True):
            agent.load_state_dict(state["weights"])
            agent.optimizer.load_state_dict(state["optimizer"])
            agent.progress.update(state["progress"])
            for name in parts:
                agent.parts[name].load_state_dict(parts[name])

    def states(self) -> list[dict]:
        self._say(do="save")
        states = self._states()
        for rank in range(1, self._link.ranks if self._link else 1):
            assert self._link
            states += plain_data(self._link.receive(rank), f"process {rank}")["shards"]
        return states

    def _states(self) -> list[dict]:
        states = []
        for agent in self._others:
            own = {name: part for name, part in agent.parts.items() if name in EACH_ITS_OWN}
            states.append({name: move_data_to_device(part.state_dict(), CPU) for name, part in own.items()})
        return states

    def end(self) -> None:
        self._say(do="end")
        self._close()

    def obey(self) -> None:
        """Of a process that does not lead: do what it hears, to the end of the training."""
        assert self._link
        while (order := self._link.hear())["do"] != "end":
            if order["do"] == "tick":
                self._tick(order["live"], order["options"])
            elif order["do"] == "load":
                self._load(plain_data(self._link.receive(0), "rank 0"))
            else:
                self._link.send(0, packed({"shards": self._states()}))
        self._close()

    def _say(self, **order: object) -> None:
        if self._link:
            self._link.say(order)

    def _close(self) -> None:
        for agent in self._others:
            agent.collector.envs.close()


def muster(config: Config, link: ProcessLink | None = None, quiet: bool = True) -> LocalCrew:
    """The shards of this process, of as many as the config says, kernels compiled."""
    assert isinstance(config, RolloutConfig)
    rank, ranks = (link.rank, link.ranks) if link else (0, 1)
    each, count = config.shards // ranks, config.shards
    rows = config.minibatch_size // count
    threads = 1 if link and config.threads == "auto" else config.threads  # processes share the cores out
    part = replace(config, n_envs=config.n_envs // count, batch_size=rows, shards=1, threads=threads)
    table = Table(each, link)
    agents = []
    for place in range(each):
        number = rank * each + place
        envs = make_envs(part, part.n_envs, first_world=number * part.n_envs)
        warm(envs, config.algo_id if may_be_fused(config) else None, nets_of(config), quiet, count)
        agent = build_agent(part, envs)
        agent.join(Shard(number, count, table, place))
        if number:
            agent.own_optimizer = agent.configure_optimizers()
        agents.append(agent)
    crew = LocalCrew(agents, table, link)
    if rank == 0:
        agents[0].crew = crew
    return crew


def lead(config: Config) -> Agent:
    """The agent of a config in its environments; of several shards the one that leads them, all in this process."""
    if config.shards > 1:
        return muster(config).agents[0]
    return build_agent(config, make_envs(config, config.n_envs))


def packed(state: dict[str, Any]) -> bytes:
    """Plain data as `plain_data` reads it."""
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()
