"""`collectors: N`: the learner's side of worlds that Ray actors play, each a slice of them, one rollout at a time.

The learner is a training in N shards (agents/engines/local_shards.py) whose shards do not play: before an iteration
each actor is sent weights, and the shard copies the rollout that comes back. The shard's collector and memory are then
as the actor's, so a checkpoint is that of shards, and an actor that dies is replaced by one that begins as the shard
is and plays the same rollout again. With `lag: 1` an actor gets its next request as soon as the shard has its rollout,
and plays while the shards learn: by the policy before these updates. Between two iterations the shards know nothing of
it: what was not copied is played again after a load.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch

from stride.agents.base import Agent
from stride.agents.engines.local_shards import LocalShards, build_agents, packed
from stride.agents.engines.rollout_worker import snapshot_of, worker_config
from stride.agents.experience.collector import Policy
from stride.agents.experience.nouns import copy_into, leaves, tree_map
from stride.agents.experience.shards import ShardThreads
from stride.agents.sockets import Learner
from stride.agents.trained.loading import plain_data
from stride.config.loader import to_plain
from stride.config.schema import Config
from stride.envs_fast.vec_env import CPU, Obs, Step, VecEnv
from stride.envs_gym.backends import choose_backend
from stride.envs_gym.make import import_module, make_envs
from stride.trainer_callbacks.checkpoint import Checkpoint
from stride.utils import own_modules
from stride.utils.user_error import UserError

SILENT = 60.0  # seconds without a step of its worlds, after which an actor is replaced
STARTING = 600.0  # seconds in which an actor must have loaded Stride and made its worlds
DEATHS = 5  # of actors in one rollout of a slice, after which the run ends
LOOK = 1.0  # seconds between two looks at actors that play
WORKER = ("stride.agents.engines.rollout_worker", "RolloutWorker")

log = logging.getLogger("stride")
NewActor = Callable[[str, str], Any]  # module, class -> handle of an actor whose `call` calls a method by its name


class CollectorLostError(Exception):
    """The worlds of a slice cannot be played: its actors die."""


class RemoteWorlds:
    """What the learner knows of worlds that an actor plays: their shapes, and their state after the last rollout."""

    device = CPU
    wrong = None

    def __init__(self, example: VecEnv, first_obs: Obs, num_envs: int) -> None:
        """`example`: one world, closed; `first_obs` [1, ...]: an observation of it."""
        self.num_envs = num_envs
        self.observation_space, self.action_space = example.observation_space, example.action_space
        self.time_limit, self.reward_threshold = example.time_limit, example.reward_threshold
        self.resume = example.resume
        self._example_obs = first_obs
        self._state: dict[str, Any] = {}

    def reset(self, seed: int) -> Obs:
        """Observations of the right shapes; the actor's snapshot overwrites them."""
        return tree_map(lambda x: x.repeat(self.num_envs, *[1] * (x.dim() - 1)), self._example_obs)

    def step(self, action: torch.Tensor) -> Step:
        raise RuntimeError("these worlds are stepped by an actor")

    def state_dict(self) -> dict[str, Any]:
        return self._state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._state = state

    def close(self) -> None:
        pass


class Actors:
    """Starts actors. One is always ahead: to load Stride takes seconds of a core, for which no replacement waits."""

    def __init__(self, ray: Any, new_actor: NewActor) -> None:
        self._ray, self._new_actor = ray, new_actor
        self._spare = new_actor(*WORKER)

    def take(self) -> Any:
        actor, self._spare = self._spare, self._new_actor(*WORKER)
        return actor

    def end(self) -> None:
        self._ray.kill(self._spare, no_restart=True)


class WorldsOfActor:
    """One slice of the worlds: the actor that plays it, the learner's shard, and how the shard `collect`s."""

    name = "ray"

    def __init__(self, ray: Any, actors: Actors, config: Config, number: int) -> None:
        self._ray, self._actors = ray, actors
        self._plain, self.number = to_plain(config), number
        worlds = config.n_envs // config.collectors
        self._label = f"collector {number} (environments {number * worlds} to {(number + 1) * worlds - 1})"
        self.shard: Agent | None = None
        self.deaths = 0
        self.ahead: Any = None  # with `lag: 1` the next request
        self.actor = actors.take()
        self.begin(b"")

    def begin(self, snapshot: bytes) -> None:
        """Have the actor make its worlds: at their start or, where there is one, as in a snapshot."""
        folders = list(map(str, own_modules.snapshot().folders))
        self._begun = self.actor.call.remote("begin", self._plain, self.number, folders, snapshot)
        self._beat: Any = None
        self._steps, self._heard = 0, time.monotonic()

    def first_snapshot(self, shard: Agent) -> None:
        """Take the shard over, which becomes as the actor's worlds are at their start."""
        self.shard = shard
        begun, self._begun = self._begun, None
        try:
            state = plain_data(self._ray.get(begun, timeout=STARTING), self._label)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except (self._ray.exceptions.RayError, TimeoutError) as error:
            raise CollectorLostError(f"{self._label} did not start: {type(error).__name__}") from error
        self._load(state)

    def play(self, request: Any) -> None:
        """Ask for a rollout; `request`: the reference of what it is played with."""
        self._request = request
        self._answer = self.actor.call.remote("play", request)
        self.rollout: dict[str, Any] | None = None
        self.await_rollout()

    def await_rollout(self) -> None:
        """From now on the actor counts as silent where its worlds do not step."""
        self._heard = time.monotonic()

    @property
    def waited_for(self) -> list[Any]:
        return [self._answer] if self.rollout is None else []

    def look(self) -> None:
        """Take the rollout if it is there. If not, replace an actor that died, or did not take a step for long."""
        now = time.monotonic()
        try:
            if self._begun and self._ready(self._begun):
                self._ray.get(self._begun)
                self._begun, self._heard = None, now
            if self._ready(self._answer):
                self.rollout, self.deaths = plain_data(self._ray.get(self._answer), self._label), 0
                return
            if self._beat is None:
                self._beat = self.actor.call.options(concurrency_group="watch").remote("steps")
            elif self._ready(self._beat):
                steps, self._beat = self._ray.get(self._beat), None
                if steps != self._steps:
                    self._steps, self._heard = steps, now
            if now - self._heard > (STARTING if self._begun else SILENT):
                self._replace(f"did not step for {now - self._heard:.0f} s")
        except self._ray.exceptions.RayTaskError as error:  # of its worlds, as a shard in this process raises it
            raise error.cause from error
        except self._ray.exceptions.RayError as error:
            self._replace(f"died ({type(error).__name__})")

    def _ready(self, reference: Any) -> bool:
        return bool(self._ray.wait([reference], timeout=0)[0])

    def _replace(self, what: str) -> None:
        assert self.shard is not None
        self.end()
        self.deaths += 1
        if self.deaths >= DEATHS:
            raise CollectorLostError(f"{self._label} {what}, {self.deaths} times in one rollout; the run is saved")
        cut = "" if self.shard.collector.envs.resume == "exact" else ", whose running episodes are cut"
        log.warning(f"{self._label} {what}: a new one plays its rollout again{cut}")
        self.actor = self._actors.take()
        self.begin(packed(snapshot_of(self.shard)))
        self.play(self._request)

    def collect(self, learner: Learner, steps: int) -> None:
        """Copy the rollout to where the shard would have played it; with `lag: 1` ask for the next one."""
        rollout, collector, memory = self.rollout, learner.collector, learner.memory
        assert rollout is not None
        self._load(rollout)
        copy_into(leaves(memory.table), rollout["rows"])
        copy_into(leaves(memory.final), rollout["finals"])
        collector.window.add(*collector.shard.gather_worlds(*rollout["episodes"]))
        if self.ahead is not None:
            self.play(self.ahead)

    def _load(self, state: dict[str, Any]) -> None:
        """Become as the worker is after its last step; the window of episodes is that of all worlds."""
        assert self.shard is not None
        collector = self.shard.collector
        collector.load_state_dict({**state["collector"], "window": collector.window.state_dict()})
        self.shard.memory.load_state_dict(state["memory"])

    def end(self) -> None:
        self._ray.kill(self.actor, no_restart=True)


class RayShards(LocalShards):
    """The shards of a learner whose worlds are played by actors."""

    def __init__(
        self, agents: list[Agent], threads: ShardThreads, ray: Any, actors: Actors, slices: Sequence[WorldsOfActor]
    ) -> None:
        super().__init__(agents, threads, None)
        self._ray, self._actors, self._slices = ray, actors, slices
        self._lags = agents[0].collector.policy is not agents[0].policy
        self._asked = False  # for the next rollout, already

    def begin(self, saved: list[dict] | None) -> None:
        super().begin(saved)
        if self.agents[0].progress["iterations"]:  # resumed: not from the start of the worlds
            for part, agent in zip(self._slices, self.agents, strict=True):
                part.begin(packed(snapshot_of(agent)))

    def _tick(self, live: dict[str, Any], options: list[dict[str, Any]]) -> None:
        """The shards learn once all rollouts are there: so no iteration is half done when an actor is lost."""
        first = self.agents[0]
        if not self._asked:
            request = self._request(first.collector.policy, live)
            for part in self._slices:
                part.play(request)
        for part in self._slices:
            part.await_rollout()
        start_mark = first.stopwatch.begin()
        try:
            while waited_for := [reference for part in self._slices for reference in part.waited_for]:
                self._ray.wait(waited_for, num_returns=len(waited_for), timeout=LOOK)
                for part in self._slices:
                    if part.rollout is None:
                        part.look()
        except CollectorLostError:
            for callback in first.trainer.callbacks:  # type: ignore[attr-defined]
                if isinstance(callback, Checkpoint):
                    callback.on_train_end(first.trainer, first)
            raise
        first.stopwatch.end("collect", start_mark)
        if self._lags:
            ahead = self._request(first.policy, live)
            for part in self._slices:
                part.ahead = ahead
            self._asked = True
        super()._tick(live, options)

    def _request(self, policy: Policy, live: dict[str, Any]) -> Any:
        """The reference of what rollouts are played with."""
        return self._ray.put(packed({"policy": policy.state_dict(), "live": live}))

    def end(self) -> None:
        for part in self._slices:
            part.end()
        self._actors.end()
        super().end()


def check_worlds(config: Config) -> None:
    """UserError where the environments are none of Gymnasium's, which are stepped one by one."""
    import_module(config.env_id)
    if (backend := choose_backend(config).name) != "gym":
        problem = f"collectors: {config.env_id} (env_backend {backend}) has compiled environments: nothing to gain"
        raise UserError(f"{problem}; use shards={config.collectors}, or env_backend=gym")


def build_collectors(config: Config, ray: Any, new_actor: NewActor) -> Agent:
    """The agent of the first shard, once every actor has made its worlds."""
    count, part = config.collectors, worker_config(config)
    actors = Actors(ray, new_actor)
    slices = [WorldsOfActor(ray, actors, config, number) for number in range(count)]
    example = make_envs(part, 1)
    first_obs = tree_map(torch.clone, example.reset(config.seed))
    example.close()
    threads = ShardThreads(count)
    worlds = [cast(VecEnv, RemoteWorlds(example, first_obs, part.n_envs)) for _ in slices]
    agents = build_agents(part, range(count), count, threads, worlds.__getitem__)
    for agent, slice_ in zip(agents, slices, strict=True):
        agent.engine = agent.engine._replace(play=slice_, reason="collectors play by eager")
        slice_.first_snapshot(agent)
    agents[0].shard_group = RayShards(agents, threads, ray, actors, slices)
    return agents[0]
