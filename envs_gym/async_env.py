"""Steps N worlds of any Gymnasium environment in worker processes, behind the VecEnv contract.

Its results equal GymEnv's bit for bit. async_pool.py starts, watches and replaces the processes; async_worker.py is the
program that each of them runs.
"""

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from stride.envs_fast.vec_env import CPU, Obs, Step
from stride.envs_gym import spaces
from stride.envs_gym.answers import State
from stride.envs_gym.async_pool import Pool
from stride.envs_gym.async_worker import SharedBuffers, WorkerSetup, WorkerTask
from stride.envs_gym.gym_env import GymEnv
from stride.envs_gym.snapshot import check_saved, warn_of_cuts
from stride.envs_gym.workers import WorldOrigin
from stride.envs_gym.wrappers.registry import WrapperConfig
from stride.utils import own_modules
from stride.utils.user_error import UserError

MAX_REPLACEMENTS = 3  # replacements in a row of one worker; after these its next loss is an error
REPLACEMENT_WINDOW = 1000  # steps; a loss later than this after the one before begins a new count
WORLD_LISTS = ("seeds", "episodes", "returns", "lengths", "paid", "rng_at_reset", "memories_at_reset", "rng")
OnDeath = Literal["stop", "restart"]
logger = logging.getLogger("stride")


class AsyncEnv:
    """N worlds of one id in `workers` processes; observations, actions and results are shared memory.

    `timeout`: seconds that one world's step or reset may take. A world that raises or hangs, or whose process dies, is
    an EnvError that names it, and the environment ends. With `on_death: restart` a process that hung or died is started
    again, and the running episodes of its worlds end as truncated.
    """

    device = CPU
    wrong = None  # no flag for illegal actions: a world raises itself

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
        origin: WorldOrigin = WorldOrigin(),  # noqa: B008  (immutable)
    ) -> None:
        self.env_id = env_id
        self.num_envs = num_envs
        self.workers = min(os.cpu_count() or 1 if workers is None else workers, num_envs)
        if self.workers < 1 or not timeout > 0:
            raise UserError(f"{env_id}: num_envs and workers must be at least 1, timeout above 0")
        env_kwargs = dict(env_kwargs or {})
        # one world in this process: it gives the spaces, and raises here for wrong arguments
        example = GymEnv(env_id, 1, env_kwargs, max_episode_steps, wrappers)
        self.time_limit = example.time_limit
        self.reward_threshold = example.reward_threshold
        self.resume = example.resume
        self.observation_space = example.observation_space
        self.action_space = example.action_space
        self._step = spaces.step_buffers(self.observation_space, num_envs)
        self._action = example.actions.buffer(num_envs)
        example.close()

        pulse = torch.tensor([[-1, 0]] * self.workers)  # see SharedBuffers
        for tensor in (*spaces.step_tensors(self._step), self._action, pulse):
            tensor.share_memory_()
        variables = dict(os.environ)
        own = own_modules.snapshot()
        setup = WorkerSetup(
            env_id, env_kwargs, max_episode_steps, variables, origin.modules, wrappers, own, origin.spec
        )
        self._groups = [group.tolist() for group in np.array_split(np.arange(num_envs), self.workers)]
        restarts = on_death == "restart"
        self._pool = Pool(setup, SharedBuffers(self._step, self._action, pulse), self._groups, timeout, restarts)
        self._progress = EpisodeProgress(num_envs) if restarts else None
        self._started = False
        self._clock = 0  # steps so far
        self._losses = [(0, 0)] * self.workers  # of each worker: losses in a row, and the step of the last one

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return list(self._pool.pids)

    def reset(self, seed: int) -> Obs:
        """Seed and start every world, with the same results as GymEnv."""
        self._ask_all("reset", seed)
        self._started = True
        if self._progress:
            self._progress.begin(seed, self._step.obs)
        return self._step.obs

    def step(self, action: Tensor) -> Step:
        """Advance every world and wait for all of them."""
        if not self._started:
            raise UserError(f"{self.env_id}: call reset before the first step")
        spaces.check_action(self.env_id, action, self._action.shape, self._action.dtype)
        self._action.copy_(action)
        self._clock += 1
        self._ask_all("step")
        if self._progress:
            self._progress.count(self._step)
        return self._step

    def state_dict(self) -> State:
        """Return the same state as GymEnv: either of the two can continue from it."""
        if not self._started:
            raise RuntimeError(f"{self.env_id} has no state before its first reset")
        answers = self._ask_all("state")
        states = [answers[world] for world in range(self.num_envs)]
        return {
            "env_id": self.env_id,
            "num_envs": self.num_envs,
            "seed": states[0]["seed"],
            **{name: [state[name][0] for state in states] for name in WORLD_LISTS},
            "obs": spaces.map_obs(self._step.obs, Tensor.clone),
            "cut": [world for world, state in enumerate(states) if state["cut"]],
            "actions": [torch.from_numpy(action) for state in states for action in state["actions"]],
        }

    def load_state_dict(self, state: State) -> None:
        """Continue where the state was taken; an episode that is not restored bit for bit ends as truncated."""
        check_saved(state, self.env_id, self.num_envs)
        spaces.copy_obs(self._step.obs, state["obs"])
        cuts = self._ask_all("load", states=[_world_state(state, world) for world in range(self.num_envs)])
        self._started = True
        if self._progress:
            self._progress.load(state)
        warn_of_cuts(self.env_id, sum(cuts.values()), self.num_envs)

    def close(self) -> None:
        """End the workers."""
        self._pool.close()

    def _ask_all(self, name: str, payload: object = None, states: Sequence[State] = ()) -> dict[int, Any]:
        """Let every worker do a task with all its worlds; return the results by world."""
        return self._ask(range(self.workers), name, payload, states)

    def _ask(self, indices: Collection[int], name: str, payload: object, states: Sequence[State]) -> dict[int, Any]:
        """Let these workers do a task. A worker that was replaced meanwhile loads cut episodes and does the task again.

        `states`: one state for each world, for the task `load`, in place of one `payload` for all.
        """
        answers: dict[int, Any] = {}
        while indices:
            tasks = {}
            for index in indices:
                worlds = self._groups[index]
                tasks[index] = WorkerTask(name, [states[world] for world in worlds] if states else payload)
            lost_workers = []
            for index, reply in self._pool.run(tasks).items():
                answers.update(zip(self._groups[index], reply.payload, strict=False))  # a lost worker has no payload
                if reply.lost:
                    lost_workers.append(index)
                    self._count_loss(index, reply.lost)
            if self._progress and self._started and lost_workers and name != "load":
                self._ask(lost_workers, "load", None, self._progress.cut_states(self.env_id))
            indices = lost_workers
        return answers

    def _count_loss(self, index: int, message: str) -> None:
        """Log that a worker was replaced; EnvError where it is lost again and again."""
        loss_count, last_step = self._losses[index]
        loss_count = loss_count + 1 if loss_count and self._clock - last_step < REPLACEMENT_WINDOW else 1
        self._losses[index] = (loss_count, self._clock)
        if loss_count > MAX_REPLACEMENTS:
            history = f"the previous {MAX_REPLACEMENTS} workers also failed within {REPLACEMENT_WINDOW:,} steps"
            self._pool.fail(f"{message}; {history}")
        logger.warning("%s; restarted, %d episodes end as truncated", message, len(self._groups[index]))


class EpisodeProgress:
    """The parent's record of every world's episode, from which a new worker continues when a process is lost."""

    def __init__(self, num_envs: int) -> None:
        self._num_envs = num_envs

    def begin(self, seed: int, obs: Obs) -> None:
        """Record a reset of all worlds."""
        zeros = [0] * self._num_envs
        self.load({"seed": seed, "episodes": zeros, "returns": zeros, "lengths": zeros, "obs": obs})

    def load(self, state: State) -> None:
        """Record the state of a loaded checkpoint."""
        self._seed = state["seed"]
        self._episodes = np.array(state["episodes"])
        self._returns = np.array(state["returns"], np.float32)
        self._lengths = np.array(state["lengths"])
        self._obs = spaces.map_obs(state["obs"], Tensor.clone)

    def count(self, step: Step) -> None:
        """Record a step of all worlds."""
        finished = (step.terminated | step.truncated).numpy()
        self._returns = np.where(finished, 0, step.episode_return.numpy())
        self._lengths = np.where(finished, 0, step.episode_length.numpy())
        self._episodes += finished
        self._obs = spaces.map_obs(step.obs, Tensor.clone)

    def cut_states(self, env_id: str) -> list[State]:
        """Return a state for each world, with which its next step ends the episode as truncated.

        A checkpoint that cannot be restored has the same effect.
        """
        state = {
            "env_id": env_id,
            "seed": self._seed,
            **{name: [0] * self._num_envs for name in WORLD_LISTS},
            "episodes": self._episodes.tolist(),
            "returns": self._returns.tolist(),
            "lengths": self._lengths.astype(int).tolist(),
            "obs": self._obs,
            "cut": range(self._num_envs),
            "actions": [],
        }
        return [_world_state(state, world) for world in range(self._num_envs)]


def _world_state(state: State, world: int) -> State:
    """Return one world's part of a state, with NumPy arrays in place of tensors."""
    world_slice = slice(world, world + 1)
    return {
        "env_id": state["env_id"],
        "num_envs": 1,
        "seed": state["seed"],
        **{name: state[name][world_slice] for name in WORLD_LISTS},
        "obs": spaces.map_obs(state["obs"], lambda tensor: tensor[world_slice].numpy()),
        "cut": [0] if world in state["cut"] else [],
        "actions": [action.numpy() for action in state["actions"][world_slice]],
    }
