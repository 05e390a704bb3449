"""Steps N worlds of any Gymnasium environment in one Python loop, behind the VecEnv contract.

The backend `gym` uses it, and each worker process of async_env.py. spaces.py converts spaces to tensors, snapshot.py
restores worlds, make.py finds ids.
"""

import logging
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium import Env
from torch import Tensor

from stride.envs_fast.vec_env import CPU, Obs, Step
from stride.envs_gym import spaces
from stride.envs_gym.answers import (
    Info,
    State,
    StepAnswer,
    StepFunction,
    check_flags,
    first_observation,
    not_a_number,
    with_checked_flags,
)
from stride.envs_gym.blame import Blame
from stride.envs_gym.blame import EnvError as EnvError
from stride.envs_gym.snapshot import EpisodeStart, check_saved, memories, replay, rng_state, strategy, warn_of_cuts
from stride.envs_gym.step_watch import make_blame
from stride.envs_gym.wrappers.base import RawReward
from stride.envs_gym.wrappers.registry import WrappedWorld, WrapperConfig, wrap
from stride.utils.counter_rng import WORLD, Key, integers

SEEDS = 2**31  # world seeds are below this number; every simulator accepts such seeds
logger = logging.getLogger("stride")


class Restart(NamedTuple):
    """A world that began a new episode, with the states from right before its reset."""

    world: int
    rng: State  # its random generator; {} after a reset with a seed
    memories: list[State]  # of its wrappers


class GymEnv:
    """N worlds of one id, stepped one after the other. Result buffers are made once and overwritten at each step."""

    device = CPU
    wrong = None  # no flag for illegal actions: a world raises itself

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        env_kwargs: Mapping[str, object] | None = None,
        max_episode_steps: int | None = None,
        wrappers: Sequence[WrapperConfig] = (),
        first_world: int = 0,
        step_timeout: float | None = None,
    ) -> None:
        """`first_world`: the number of world 0 among all worlds of a training; it decides the seeds of these worlds.
        `step_timeout`: seconds after which a call that has not returned is an EnvError; None: no limit."""
        self.env_id = env_id
        self.num_envs = num_envs
        self.first_world = first_world
        self.envs: list[Env] = []
        worlds = self._make_worlds({"max_episode_steps": max_episode_steps, **(env_kwargs or {})}, wrappers)
        self._memory_wrappers = [world.memory_wrappers for world in worlds]
        self._lives = [(index, world.lives) for index, world in enumerate(worlds) if world.lives is not None]
        self.time_limit = worlds[0].time_limit
        self._blame = make_blame(env_id, self.envs, step_timeout)
        self.action_space = self.actions.space
        self._action_shape = (num_envs, *self.actions.example.shape)
        self._make_buffers()
        self._make_step_functions(worlds)
        self._seed = 0
        self._seeds: list[int] = []  # the seed that each world last got; empty before the first reset
        self._episodes = [0] * num_envs
        self._rng_at_reset: list[State] = [{}] * num_envs
        self._memories_at_reset: list[list[State]] = [[]] * num_envs
        self._log: list[list[Any]] = [[] for _ in range(num_envs)]  # the policy's actions since the last reset
        self._cut: set[int] = set()  # worlds whose episode a checkpoint could not restore: the next step truncates it

    def _make_worlds(self, env_kwargs: Info, wrappers: Sequence[WrapperConfig]) -> list[WrappedWorld]:
        """Make every world with its wrappers. Spaces, resume mode and reward threshold are taken from the first one."""
        worlds = []
        with Blame(self.env_id, self.envs, "__init__") as blame:
            for blame.world in range(self.num_envs):
                env = gymnasium.make(self.env_id, disable_env_checker=True, **env_kwargs)
                worlds.append(wrap(env, wrappers))
                self.envs.append(worlds[-1].env)
            first = self.envs[0]
            self.resume: str = strategy(first.unwrapped)  # "exact": a checkpoint continues episodes; "seam": it cuts
            self.observation_space = spaces.observation_space(first.observation_space)
            self.actions = spaces.actions(first.action_space)
            env_spec = first.unwrapped.spec
        assert env_spec is not None  # gymnasium.make sets it
        self.reward_threshold = None if env_spec.reward_threshold is None else float(env_spec.reward_threshold)
        return worlds

    def _make_buffers(self) -> None:
        """Make the Step that every step overwrites, with the NumPy views and functions that write into it."""
        self._step = spaces.step_buffers(self.observation_space, self.num_envs)
        self._reward = self._step.reward.numpy()
        self._terminated = self._step.terminated.numpy()
        self._truncated = self._step.truncated.numpy()
        self._episode_return = self._step.episode_return.numpy()
        self._episode_length = self._step.episode_length.numpy()
        world_space = self.envs[0].observation_space
        self._write_obs = spaces.observation_writer(world_space, self._step.obs)
        self._write_final = spaces.observation_writer(world_space, self._step.final_obs)
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, np.int64)
        self._paid = np.zeros(self.num_envs)  # return of the running episode with the wrappers' rewards

    def _make_step_functions(self, worlds: list[WrappedWorld]) -> None:
        """Make each world's step function, which also checks its flags and notes its reward before any wrapper."""
        self._rewards = array("d", bytes(8 * self.num_envs))  # refuses all but numbers; NumPy would convert a text
        self._reward64 = np.frombuffer(self._rewards)  # same memory; returns add up in float64, Step has float32
        self._raw64 = self._reward64 if worlds[0].raw is None else np.zeros(self.num_envs)  # before any wrapper
        self._step_functions: list[StepFunction] = []
        for index, world in enumerate(worlds):
            step_function: StepFunction = world.env.step
            if world.raw is not None:
                step_function = _with_raw_reward(step_function, world.raw, self._raw64, index)
            self._step_functions.append(with_checked_flags(step_function, self._step_functions, index))

    def reset(self, seed: int) -> Obs:
        """Seed and start every world; world i gets the same seed for any number of worlds.

        The returned observation is a buffer that every step overwrites.
        """
        self._seed = seed
        self._seeds = self._draw_seeds(0)
        self._episodes = [0] * self.num_envs
        self._cut.clear()
        with self._blame.during("reset") as blame:
            for world in range(self.num_envs):
                blame.world = world
                observation = first_observation(self.envs[world].reset(seed=self._seeds[world]))
                self._write_obs(world, observation)
                self._begin(Restart(world, {}, []))
        return self._step.obs

    def _draw_seeds(self, iteration: int) -> list[int]:
        """Return a seed for each world; a world's seed depends on the reset seed, `iteration` and its number."""
        key = Key(self._seed, WORLD, iteration=iteration)
        return integers(key, self.first_world + self.num_envs, SEEDS)[self.first_world :]

    def step(self, action: Tensor) -> Step:
        """Advance every world. A world whose episode ends is reset at once, without a new seed.

        The next step overwrites the returned buffers. EnvError, with world, file and line, for an environment that
        raises or returns wrong types; then only some of the worlds have been stepped.
        """
        spaces.check_action(self.env_id, action, self._action_shape, self.actions.example.dtype)
        raw_actions = action.cpu().numpy()
        # a copy: the caller may write into the same tensor again, and a checkpoint replays these
        logged = raw_actions.tolist() if raw_actions.ndim == 1 else raw_actions.copy()
        self._terminated.fill(False)
        self._truncated.fill(False)
        playing = [world for world in range(self.num_envs) if world not in self._cut]
        restarts = self._advance(playing, self.actions.convert(raw_actions), logged)
        if self._cut:
            restarts += self._end_cut()
        self._count(restarts)
        return self._step

    def _advance(self, worlds: Sequence[int], actions: spaces.Batch, logged: spaces.Batch) -> list[Restart]:
        """Step these worlds, reset those whose episode ended, and return what these started from."""
        rewards, log, write_obs = self._rewards, self._log, self._write_obs
        restarts = []
        with self._blame.during("step") as blame:
            for world in worlds:
                blame.world = world
                observation, reward, terminated, truncated, _ = self._step_functions[world](actions[world])
                try:
                    rewards[world] = reward  # type: ignore[call-overload]  # TypeError for all but numbers
                except TypeError as error:
                    raise not_a_number(reward) from error
                log[world].append(logged[world])
                if terminated or truncated:
                    if terminated.__class__ is not bool or truncated.__class__ is not bool:
                        check_flags(terminated, truncated)
                    # if both flags are set, terminated counts: the task has ended, so no future value exists
                    (self._terminated if terminated else self._truncated)[world] = True
                    self._write_final(world, observation)
                    rng = rng_state(self.envs[world].unwrapped)
                    restarts.append(Restart(world, rng, memories(self._memory_wrappers[world])))
                    blame.doing = "reset"
                    observation, _ = self.envs[world].reset()
                    blame.doing = "step"
                write_obs(world, observation)
        return restarts

    def _count(self, restarts: list[Restart]) -> None:
        """Write this step's rewards, returns and lengths into the Step, then set those of ended episodes to zero."""
        self._returns += self._raw64
        self._paid += self._reward64
        self._lengths += 1
        self._reward[:] = self._reward64
        self._episode_return[:] = self._returns
        self._episode_length[:] = self._lengths
        for world, lives in self._lives:
            if lives.loss.lost:  # terminated for learning only: length 0 keeps it out of statistics, the game goes on
                self._terminated[world] = True
                self._episode_length[world] = 0
                self._copy_to_final(world)
                if lives.stack is not None:
                    self._write_obs(world, lives.stack.again())
        for restart in restarts:
            self._episodes[restart.world] += 1
            self._begin(restart)

    def _copy_to_final(self, world: int) -> None:
        final_tensors = spaces.tensors_of(self._step.final_obs)
        for final, observation in zip(final_tensors, spaces.tensors_of(self._step.obs), strict=True):
            final[world] = observation[world]

    def _begin(self, restart: Restart) -> None:
        """Set the counts and the log of a world to those of a new episode."""
        world = restart.world
        self._returns[world] = 0.0
        self._lengths[world] = 0
        self._paid[world] = 0.0
        self._rng_at_reset[world] = restart.rng
        self._memories_at_reset[world] = restart.memories
        self._log[world] = []

    def _end_cut(self) -> list[Restart]:
        """Truncate the episodes that a checkpoint could not restore, by a step that does not move their worlds."""
        cut_worlds = sorted(self._cut)
        self._cut.clear()
        with self._blame as blame:
            for world in cut_worlds:
                blame.world = world
                self._reward64[world] = self._raw64[world] = 0.0
                self._lengths[world] -= 1  # `_count` adds 1, but this step is not part of the episode
                self._truncated[world] = True
                self._copy_to_final(world)
                self._seeds[world] = self._draw_seeds(1 + self._episodes[world])[world]  # a seed not used before
                observation, _ = self.envs[world].reset(seed=self._seeds[world])
                self._write_obs(world, observation)
        return [Restart(world, {}, []) for world in cut_worlds]

    def state_dict(self) -> State:
        """Return plain data from which a new process continues every episode (exactly where `resume` is "exact")."""
        if not self._seeds:
            raise RuntimeError(f"{self.env_id} has no state before its first reset")
        with self._blame:
            generators = [rng_state(env.unwrapped) for env in self.envs]
        example = self.actions.example.numpy()
        exact = self.resume == "exact"  # else loading cuts the running episodes, and needs no actions
        actions = [np.array(log, example.dtype).reshape(-1, *example.shape) for log in self._log if exact]
        return {
            "env_id": self.env_id,
            "num_envs": self.num_envs,
            "seed": self._seed,
            "seeds": list(self._seeds),
            "episodes": list(self._episodes),
            "obs": spaces.map_obs(self._step.obs, Tensor.clone),
            "returns": self._returns.tolist(),
            "lengths": self._lengths.tolist(),
            "paid": self._paid.tolist(),
            "cut": sorted(self._cut),
            "rng_at_reset": list(self._rng_at_reset),
            "memories_at_reset": list(self._memories_at_reset),
            "rng": generators,
            "actions": list(map(torch.from_numpy, actions)),
        }

    def load_state_dict(self, state: State) -> None:
        """Continue where the state was taken; an episode that is not restored bit for bit ends as truncated."""
        check_saved(state, self.env_id, self.num_envs)
        self._seed = state["seed"]
        self._seeds = list(state["seeds"])
        self._episodes = list(state["episodes"])
        self._cut = set(state["cut"]) if self.resume == "exact" else set(range(self.num_envs))
        with Blame(self.env_id, self.envs, "reset") as blame:  # without step_timeout: whole episodes are replayed
            for world in range(self.num_envs):
                blame.world = world
                if world not in self._cut and not self._replay(world, state):
                    self._cut.add(world)
        spaces.copy_obs(self._step.obs, state["obs"])
        self._returns[:] = state["returns"]
        self._lengths[:] = state["lengths"]
        self._paid[:] = state["paid"]
        warn_of_cuts(self.env_id, len(self._cut), self.num_envs)

    def _replay(self, world: int, state: State) -> bool:
        """Play a world's saved episode again; return whether observation, rewards and generator equal those saved."""
        actions = state["actions"][world].numpy()
        restart = Restart(world, state["rng_at_reset"][world], state["memories_at_reset"][world])
        start = EpisodeStart(self._seeds[world], restart.rng, restart.memories)
        env = self.envs[world]
        convert = self.actions.convert
        replayed = replay(env, self._step_functions[world], self._memory_wrappers[world], start, actions, convert)
        self._write_obs(world, replayed.obs)
        self._begin(restart)
        self._log[world] = actions.tolist() if actions.ndim == 1 else list(actions)
        for tensor, saved in zip(spaces.tensors_of(self._step.obs), spaces.tensors_of(state["obs"]), strict=True):
            if tensor[world].numpy().tobytes() != saved[world].numpy().tobytes():
                return False
        rng = rng_state(env.unwrapped)
        same_rng = rng == {**rng, **state["rng"][world]}  # a checkpoint of an older version may have fewer entries
        return same_rng and replayed.rewards == state["paid"][world] and not replayed.ended

    def close(self) -> None:
        """Close every world."""
        with self._blame.during("close") as blame:
            for blame.world in range(self.num_envs):
                self.envs[blame.world].close()
        self._blame.close()


def _with_raw_reward(step: StepFunction, raw_reward: RawReward, rewards: np.ndarray, world: int) -> StepFunction:
    """Return `step` of a wrapped world, which also writes the world's own reward (before wrappers) into `rewards`."""

    def step_and_note(action: object) -> StepAnswer:
        result = step(action)
        rewards[world] = raw_reward.collect()
        return result

    return step_and_note
