"""`collectors: N`: Ray actors play the worlds, each a slice of them; this module is the learner's side.

The learner is a training in N shards (local_shards.py) whose shards do not play. Before an iteration each actor gets
the weights, and its shard copies the rollout it returns. Then the shard's collector and memory equal the actor's. So
checkpoints are those of shards; and if an actor dies, a new one starts from the shard's state and plays the same
rollout again. With `lag: 1` an actor gets its next request as soon as its rollout is copied, and plays with the old
policy while the shards learn. A rollout that was not copied yet is in no checkpoint: after a load it is played again.
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

SILENCE_SECONDS = 60.0  # an actor is replaced if its worlds have not stepped for so long
START_SECONDS = 600.0  # time for an actor to load Stride and make its worlds
MAX_DEATHS = 5  # the run ends if so many actors die in one rollout of a slice
POLL_SECONDS = 1.0  # pause between checks of actors that play
WORKER_CLASS = ("stride.agents.engines.rollout_worker", "RolloutWorker")

log = logging.getLogger("stride")
# module, class -> handle of a new actor, whose methods are called by `handle.call.remote(name, *arguments)`
NewActor = Callable[[str, str], Any]


class CollectorLostError(Exception):
    """The actors of a slice do not start, or die again and again."""


class RemoteWorlds:
    """Stands for an actor's worlds in the learner: has their spaces, and their state after the last rollout."""

    device = CPU
    wrong = None

    def __init__(self, example: VecEnv, first_obs: Obs, num_envs: int) -> None:
        """`example`: one world, already closed; `first_obs` [1, ...]: one of its observations."""
        self.num_envs = num_envs
        self.observation_space, self.action_space = example.observation_space, example.action_space
        self.time_limit, self.reward_threshold = example.time_limit, example.reward_threshold
        self.resume = example.resume
        self._example_obs = first_obs
        self._state: dict[str, Any] = {}

    def reset(self, seed: int) -> Obs:
        """Return observations of the right shapes; the actor's snapshot overwrites them."""
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
    """Starts actors. Keeps a spare one, because to load Stride takes seconds, for which no replacement should wait."""

    def __init__(self, ray: Any, new_actor: NewActor) -> None:
        self._ray, self._new_actor = ray, new_actor
        self._spare = new_actor(*WORKER_CLASS)

    def take(self) -> Any:
        """Return the spare actor, and start the next spare."""
        actor, self._spare = self._spare, self._new_actor(*WORKER_CLASS)
        return actor

    def end(self) -> None:
        self._ray.kill(self._spare, no_restart=True)


class ActorSlice:
    """One slice of the worlds: its actor, and the shard's socket Play, whose `collect` copies the actor's rollout."""

    name = "ray"

    def __init__(self, ray: Any, actors: Actors, config: Config, number: int) -> None:
        self._ray, self._actors = ray, actors
        self._plain, self.number = to_plain(config), number
        worlds = config.n_envs // config.collectors
        self._label = f"collector {number} (environments {number * worlds} to {(number + 1) * worlds - 1})"
        self.shard: Agent | None = None
        self.deaths = 0
        self.ahead: Any = None  # with `lag: 1` a reference to the next request
        self.actor = actors.take()
        self.begin(b"")

    def begin(self, snapshot: bytes) -> None:
        """Ask the actor to make its worlds, in the state of `snapshot`, or newly reset if it is empty."""
        folders = list(map(str, own_modules.snapshot().folders))
        self._begin_answer = self.actor.call.remote("begin", self._plain, self.number, folders, snapshot)
        self._steps_answer: Any = None
        self._steps, self._last_step_time = 0, time.monotonic()

    def first_snapshot(self, shard: Agent) -> None:
        """Wait until the actor's worlds are made, and copy their state into `shard`, which belongs to this slice."""
        self.shard = shard
        answer, self._begin_answer = self._begin_answer, None
        try:
            state = plain_data(self._ray.get(answer, timeout=START_SECONDS), self._label)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except (self._ray.exceptions.RayError, TimeoutError) as error:
            raise CollectorLostError(f"{self._label} did not start: {type(error).__name__}") from error
        self._load(state)

    def play(self, request: Any) -> None:
        """Ask the actor for a rollout; `request`: a Ray reference to policy and settings, from RayShards._request."""
        self._request = request
        self._answer = self.actor.call.remote("play", request)
        self.rollout: dict[str, Any] | None = None
        self.await_rollout()

    def await_rollout(self) -> None:
        """Begin to measure the time since the last step of the actor's worlds."""
        self._last_step_time = time.monotonic()

    @property
    def pending_answers(self) -> list[Any]:
        return [self._answer] if self.rollout is None else []

    def poll(self) -> None:
        """Fetch the rollout if it is complete. If not, replace an actor that died or has not stepped for too long."""
        now = time.monotonic()
        try:
            if self._begin_answer and self._ready(self._begin_answer):
                self._ray.get(self._begin_answer)
                self._begin_answer, self._last_step_time = None, now
            if self._ready(self._answer):
                self.rollout, self.deaths = plain_data(self._ray.get(self._answer), self._label), 0
                return
            if self._steps_answer is None:
                self._steps_answer = self.actor.call.options(concurrency_group="watch").remote("steps")
            elif self._ready(self._steps_answer):
                steps, self._steps_answer = self._ray.get(self._steps_answer), None
                if steps != self._steps:
                    self._steps, self._last_step_time = steps, now
            if now - self._last_step_time > (START_SECONDS if self._begin_answer else SILENCE_SECONDS):
                self._replace(f"did not step for {now - self._last_step_time:.0f} s")
        except self._ray.exceptions.RayTaskError as error:  # an error of its worlds: raise it as a local shard would
            raise error.cause from error
        except self._ray.exceptions.RayError as error:
            self._replace(f"died ({type(error).__name__})")

    def _ready(self, reference: Any) -> bool:
        return bool(self._ray.wait([reference], timeout=0)[0])

    def _replace(self, problem: str) -> None:
        assert self.shard is not None
        self.end()
        self.deaths += 1
        if self.deaths >= MAX_DEATHS:
            raise CollectorLostError(f"{self._label} {problem}, {self.deaths} times in one rollout; the run is saved")
        loss = "" if self.shard.collector.envs.resume == "exact" else ", whose running episodes are cut"
        log.warning(f"{self._label} {problem}: a new one plays its rollout again{loss}")
        self.actor = self._actors.take()
        self.begin(packed(snapshot_of(self.shard)))
        self.play(self._request)

    def collect(self, learner: Learner, steps: int) -> None:
        """Copy the rollout into the shard's memory and collector; with `lag: 1` ask for the next rollout."""
        rollout, collector, memory = self.rollout, learner.collector, learner.memory
        assert rollout is not None
        self._load(rollout)
        copy_into(leaves(memory.table), rollout["rows"])
        copy_into(leaves(memory.final), rollout["finals"])
        collector.window.add(*collector.shard.gather_worlds(*rollout["episodes"]))
        if self.ahead is not None:
            self.play(self.ahead)

    def _load(self, state: dict[str, Any]) -> None:
        """Copy the worker's state after its last step; keep the shard's window of episodes, which is of all worlds."""
        assert self.shard is not None
        collector = self.shard.collector
        collector.load_state_dict({**state["collector"], "window": collector.window.state_dict()})
        self.shard.memory.load_state_dict(state["memory"])

    def end(self) -> None:
        self._ray.kill(self.actor, no_restart=True)


class RayShards(LocalShards):
    """The shards of a learner whose worlds are played by actors; slice i belongs to shard i."""

    def __init__(
        self, agents: list[Agent], threads: ShardThreads, ray: Any, actors: Actors, slices: Sequence[ActorSlice]
    ) -> None:
        super().__init__(agents, threads, None)
        self._ray, self._actors, self._slices = ray, actors, slices
        self._lags = agents[0].collector.policy is not agents[0].policy
        self._asked = False  # whether the next rollout was asked for already (lag: 1)

    def begin(self, saved: list[dict] | None) -> None:
        super().begin(saved)
        if self.agents[0].progress["iterations"]:  # resumed: not from newly reset worlds
            for slice_, agent in zip(self._slices, self.agents, strict=True):
                slice_.begin(packed(snapshot_of(agent)))

    def _tick(self, live: dict[str, Any], options: list[dict[str, Any]]) -> None:
        """Wait for all rollouts, then learn, so that no iteration is half done when an actor is lost."""
        first = self.agents[0]
        if not self._asked:
            request = self._request(first.collector.policy, live)
            for slice_ in self._slices:
                slice_.play(request)
        for slice_ in self._slices:
            slice_.await_rollout()
        start_mark = first.stopwatch.begin()
        try:
            while pending_answers := [reference for slice_ in self._slices for reference in slice_.pending_answers]:
                self._ray.wait(pending_answers, num_returns=len(pending_answers), timeout=POLL_SECONDS)
                for slice_ in self._slices:
                    if slice_.rollout is None:
                        slice_.poll()
        except CollectorLostError:
            for callback in first.trainer.callbacks:  # type: ignore[attr-defined]
                if isinstance(callback, Checkpoint):
                    callback.on_train_end(first.trainer, first)
            raise
        first.stopwatch.end("collect", start_mark)
        if self._lags:
            ahead = self._request(first.policy, live)
            for slice_ in self._slices:
                slice_.ahead = ahead
            self._asked = True
        super()._tick(live, options)

    def _request(self, policy: Policy, live: dict[str, Any]) -> Any:
        """Return a Ray reference to the policy and the settings for a rollout."""
        return self._ray.put(packed({"policy": policy.state_dict(), "live": live}))

    def end(self) -> None:
        for slice_ in self._slices:
            slice_.end()
        self._actors.end()
        super().end()


def check_worlds(config: Config) -> None:
    """Raise UserError for compiled environments: only Gymnasium's, stepped one by one, gain from collectors."""
    import_module(config.env_id)
    if (backend := choose_backend(config).name) != "gym":
        problem = f"collectors: {config.env_id} (env_backend {backend}) has compiled environments: nothing to gain"
        raise UserError(f"{problem}; use shards={config.collectors}, or env_backend=gym")


def build_collectors(config: Config, ray: Any, new_actor: NewActor) -> Agent:
    """Start the actors, wait until each has made its worlds, and return the agent of the first shard.

    `new_actor` starts a Ray actor; `ray` is the module.
    """
    count, slice_config = config.collectors, worker_config(config)
    actors = Actors(ray, new_actor)
    slices = [ActorSlice(ray, actors, config, number) for number in range(count)]
    example = make_envs(slice_config, 1)
    first_obs = tree_map(torch.clone, example.reset(config.seed))
    example.close()
    threads = ShardThreads(count)
    worlds = [cast(VecEnv, RemoteWorlds(example, first_obs, slice_config.n_envs)) for _ in slices]
    agents = build_agents(slice_config, range(count), count, threads, worlds.__getitem__)
    for agent, slice_ in zip(agents, slices, strict=True):
        agent.engine = agent.engine._replace(play=slice_, reason="collectors play by eager")
        slice_.first_snapshot(agent)
    agents[0].shard_group = RayShards(agents, threads, ray, actors, slices)
    return agents[0]
