"""Any Gymnasium environment behind the VecEnv contract, its worlds stepped in worker processes: bit for bit GymEnv.

Processes and their failures are in async_pool.py, what a worker does in async_worker.py.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from stride.envs_fast.vec_env import CPU, Obs, Step
from stride.envs_gym import spaces
from stride.envs_gym.async_pool import Pool, pulse
from stride.envs_gym.async_worker import Answer, Shared, Task, WorkerSetup, leaves
from stride.envs_gym.gym_env import GymEnv
from stride.envs_gym.workers import Origin
from stride.envs_gym.wrappers.registry import WrapperConfig
from stride.utils import own_modules
from stride.utils.user_error import UserError

MOST, SOON = 3, 1000  # restarts of a worker that is lost within so many steps of the last one, before it is given up
OnDeath = Literal["stop", "restart"]
logger = logging.getLogger("stride")


class AsyncEnv:
    """N worlds of one id in `workers` processes; observations, actions and results are shared memory.

    `timeout` is how many seconds one world's step or reset may take. A world that raises, hangs or whose process dies
    ends the environment with an EnvError that names it; with `on_death: restart` the process is started again where it
    hung or died, and what its worlds played ends as truncated.
    """

    device = CPU
    wrong = None  # a world refuses an action itself

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        env_kwargs: Mapping[str, object] | None = None,
        max_episode_steps: int | None = None,
        workers: int | None = None,
        timeout: float = 60.0,
        wrappers: Sequence[WrapperConfig] = (),
        on_death: OnDeath = "stop",
        origin: Origin = Origin(),  # noqa: B008  (immutable)
    ) -> None:
        workers = min(os.cpu_count() or 1, num_envs) if workers is None else min(workers, num_envs)
        if num_envs < 1 or workers < 1 or not timeout > 0:
            raise UserError(f"{env_id}: num_envs, workers and timeout start at 1, 1 and above 0")
        self.env_id, self.num_envs, self.workers = env_id, num_envs, workers
        one = GymEnv(env_id, 1, env_kwargs, max_episode_steps, wrappers)  # what can be wrong with an id shows here
        self.time_limit, self.reward_threshold, self.resume = one.time_limit, one.reward_threshold, one.resume
        self.observation_space, self.action_space = one.observation_space, one.action_space
        example = spaces.actions(one.envs[0].action_space).example
        one.close()

        self._step = spaces.step_buffers(self.observation_space, num_envs)
        self._action = torch.zeros((num_envs, *example.shape), dtype=example.dtype)
        for tensor in (*leaves(self._step), self._action):
            tensor.share_memory_()
        asked = env_id, dict(env_kwargs or {}), max_episode_steps, (), dict(os.environ)
        setup = WorkerSetup(*asked, tuple(origin.modules), wrappers, own_modules.snapshot(), origin.spec)
        self._shares = [share.tolist() for share in np.array_split(np.arange(num_envs), workers)]
        self._worker_of = {world: place for place, share in enumerate(self._shares) for world in share}
        self._started = False
        restarts = on_death == "restart"
        self._pool = Pool(setup, Shared(self._step, self._action, pulse(workers)), self._shares, timeout, restarts)
        self._played = Played(num_envs) if restarts else None
        self._clock, self._restarted = 0, [(0, 0)] * workers  # steps; how often in a row, and at which step at last

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return list(self._pool.pids)

    def reset(self, seed: int) -> Obs:
        """Seed and start every world, as GymEnv would."""
        self._ask_all("reset", seed)
        self._started = True
        if self._played:
            self._played.begin(seed, self._step.obs)
        return self._step.obs

    def step(self, action: Tensor) -> Step:
        """Advance every world and wait for all of them."""
        self._check_action(action)
        self._action.copy_(action)
        self._clock += 1
        self._ask_all("step")
        if self._played:
            self._played.count(self._step)
        return self._step

    def state_dict(self) -> dict[str, Any]:
        """What GymEnv's would be: a checkpoint may be continued by either."""
        if not self._started:
            raise RuntimeError(f"{self.env_id} has no state before its first reset")
        answers = self._ask_all("state")
        states = [answers[world] for world in range(self.num_envs)]
        obs = self._step.obs
        each = ("seeds", "episodes", "returns", "lengths", "paid", "rng_at_reset", "memories_at_reset", "rng")
        return {
            "env_id": self.env_id,
            "num_envs": self.num_envs,
            "seed": states[0]["seed"],
            **{name: [state[name][0] for state in states] for name in each},
            "obs": {name: leaf.clone() for name, leaf in obs.items()} if isinstance(obs, dict) else obs.clone(),
            "cut": [world for world, state in enumerate(states) if state["cut"]],
            "actions": [torch.from_numpy(action) for state in states for action in state["actions"]],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the state was taken; an episode that does not come back bit for bit ends as truncated."""
        saved, mine = (state["env_id"], state["num_envs"]), (self.env_id, self.num_envs)
        if saved != mine:
            raise UserError(f"the checkpoint holds {saved[1]} worlds of {saved[0]}, not {mine[1]} of {mine[0]}")
        for leaf, saved_leaf in zip(leaves([self._step.obs]), leaves([state["obs"]]), strict=True):
            leaf.copy_(saved_leaf)
        cut = self._ask_all("load", states=[_of_world(state, world) for world in range(self.num_envs)])
        self._started = True
        if self._played:
            self._played.load(state)
        if count := sum(cut.values()):
            logger.warning(
                "%s cannot be restored exactly: %d of %d worlds begin a new episode", self.env_id, count, self.num_envs
            )

    def close(self) -> None:
        """End the workers."""
        self._pool.close()

    def _ask_all(self, name: str, payload: object = None, states: Sequence[object] = ()) -> dict[int, Any]:
        """Have every worker do the same to all its worlds; what they answered about each."""
        return self._ask(range(self.workers), name, payload, states)

    def _ask(self, places: Sequence[int], name: str, payload: object, states: Sequence[object]) -> dict[int, Any]:
        """These workers alone; one that is lost is asked again, once it stands where its episodes are cut."""
        answers: dict[int, Any] = {}
        while places:
            for place in places:
                share = self._shares[place]
                self._pool.send(place, Task(name, share, [states[world] for world in share] if states else payload))
            waiting, lost = set(places), []
            while waiting:
                for answer in self._pool.receive():
                    place = self._worker_of[answer.worlds[0]]
                    waiting.discard(place)
                    answers.update(zip(answer.worlds, answer.payload, strict=False))
                    if answer.lost:
                        lost.append(place)
                        self._count_loss(place, answer)
            if self._played and self._started and lost and name != "load":
                self._ask(lost, "load", None, self._played.cut(self.env_id))
            places = lost
        return answers

    def _count_loss(self, place: int, answer: Answer) -> None:
        """Tell that a worker was started again; EnvError where that does not help."""
        times, last = self._restarted[place]
        times = times + 1 if times and self._clock - last < SOON else 1
        self._restarted[place] = times, self._clock
        if times > MOST:
            self._pool.fail(f"{answer.lost}; the {MOST} before it were lost within {SOON:,} steps, too")
        logger.warning("%s; started again, %d episodes end as truncated", answer.lost, len(answer.worlds))

    def _check_action(self, action: Tensor) -> None:
        if not self._started:
            raise UserError(f"{self.env_id}: reset before the first step")
        shape, dtype = self._action.shape, self._action.dtype
        if action.shape != shape or action.dtype != dtype:
            raise ValueError(
                f"{self.env_id} takes actions {dtype}{list(shape)}, got {action.dtype}{list(action.shape)}"
            )


class Played:
    """What has to be known of each world to end its episode where its process is lost: kept by the parent."""

    def __init__(self, num_envs: int) -> None:
        self._returns, self._lengths = torch.zeros(num_envs), torch.zeros(num_envs, dtype=torch.float32)
        self._episodes = [0] * num_envs
        self._seed, self._seeds = 0, [0] * num_envs
        self._obs: Obs = torch.zeros(0)

    def begin(self, seed: int, obs: Obs) -> None:
        """After a reset."""
        self._seed, self._episodes = seed, [0] * len(self._episodes)
        self._returns.zero_(), self._lengths.zero_()
        self._keep(obs)

    def load(self, state: dict[str, Any]) -> None:
        """After a checkpoint was loaded."""
        self._seed, self._seeds, self._episodes = state["seed"], list(state["seeds"]), list(state["episodes"])
        self._returns, self._lengths = torch.tensor(state["returns"]), torch.tensor(state["lengths"])
        self._keep(state["obs"])

    def count(self, step: Step) -> None:
        """After a step."""
        ended = step.terminated | step.truncated
        self._returns = torch.where(ended, 0.0, step.episode_return)
        self._lengths = torch.where(ended, 0.0, step.episode_length)
        for world in ended.nonzero().flatten().tolist():
            self._episodes[world] += 1
        self._keep(step.obs)

    def _keep(self, obs: Obs) -> None:
        self._obs = {name: leaf.clone() for name, leaf in obs.items()} if isinstance(obs, dict) else obs.clone()

    def cut(self, env_id: str) -> list[dict[str, Any]]:
        """A state of each world that its next step ends as truncated, as a checkpoint does that is no more exact."""
        number = len(self._episodes)
        state: dict[str, Any] = {
            "env_id": env_id,
            "num_envs": number,
            "seed": self._seed,
            "seeds": self._seeds,
            "episodes": self._episodes,
            "returns": self._returns.tolist(),
            "lengths": [int(length) for length in self._lengths.tolist()],
            "paid": [0.0] * number,
            **{name: [{}] * number for name in ("rng_at_reset", "rng")},
            "memories_at_reset": [[]] * number,
            "obs": self._obs,
            "cut": range(number),
            "actions": [],
        }
        return [_of_world(state, world) for world in range(number)]


def _of_world(state: dict[str, Any], world: int) -> dict[str, Any]:
    """One world's part of a state, with arrays for tensors."""
    obs = state["obs"]
    row = slice(world, world + 1)
    lists = ("seeds", "episodes", "returns", "lengths", "paid", "rng_at_reset", "memories_at_reset", "rng")
    return {
        "env_id": state["env_id"],
        "num_envs": 1,
        "seed": state["seed"],
        **{name: state[name][row] for name in lists},
        "obs": {name: leaf[row].numpy() for name, leaf in obs.items()} if isinstance(obs, dict) else obs[row].numpy(),
        "cut": [0] if world in state["cut"] else [],
        "actions": [action.numpy() for action in state["actions"][row]],
    }
