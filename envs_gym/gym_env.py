"""Any Gymnasium environment behind the VecEnv contract: N worlds in one Python loop.

How spaces become tensors lives in spaces.py, how worlds are restored in snapshot.py, which id is made in make.py.
"""

import logging
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from torch import Tensor

from stride.envs_fast.vec_env import CPU, Obs, Step
from stride.envs_gym import spaces
from stride.envs_gym.answers import (
    Answer,
    StepFunction,
    check_flags,
    first_observation,
    not_a_number,
    with_checked_flags,
)
from stride.envs_gym.blame import Blame
from stride.envs_gym.blame import EnvError as EnvError
from stride.envs_gym.snapshot import Beginning, memories, replay, rng_state, strategy
from stride.envs_gym.step_watch import WatchedBlame, blame
from stride.envs_gym.wrappers.base import RawReward
from stride.envs_gym.wrappers.registry import WrappedWorld, WrapperConfig, wrap
from stride.utils.counter_rng import WORLD, Key, integers
from stride.utils.user_error import UserError

SEEDS = 2**31  # world seeds are below this, which every simulator's seeding accepts
logger = logging.getLogger("stride")


class Restart(NamedTuple):
    """A world that began a new episode, and the state of its generator and of its wrappers right before."""

    world: int
    rng: dict[str, Any]
    memories: list[dict[str, Any]]


class GymEnv:
    """N worlds of one id; buffers are built once and written through their NumPy views."""

    device = CPU
    wrong = None  # a world refuses an action itself

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
        """`first_world`: the number of world 0 where these are some of many, so that its streams are those of many.
        `step_timeout`: seconds after which a world that does not answer ends by an EnvError."""
        self.env_id, self.num_envs, self.first_world = env_id, num_envs, first_world
        self.envs: list[gymnasium.Env[Any, Any]] = []
        worlds = self._make_worlds({"max_episode_steps": max_episode_steps, **(env_kwargs or {})}, wrappers)
        self._remembering = [world.remembering for world in worlds]
        self._lives = [(index, world.lives) for index, world in enumerate(worlds) if world.lives is not None]
        self.time_limit = worlds[0].time_limit
        self._blame = blame(env_id, self.envs, step_timeout)
        self.action_space = self._actions.space
        self._action_shape = (num_envs, *self._actions.example.shape)
        self._action_dtype = self._actions.example.dtype
        self._make_buffers()
        self._make_step_functions(worlds)
        self._paid = np.zeros(num_envs)  # the episode's rewards as the policy got them
        self._seed = 0
        self._seeds: list[int] = []  # with which each world was last seeded; empty before the first reset
        self._episodes = [0] * num_envs
        self._rng_at_reset: list[dict[str, Any]] = [{}] * num_envs
        self._memories_at_reset: list[list[dict[str, Any]]] = [[]] * num_envs
        self._log: list[list[Any]] = [[] for _ in range(num_envs)]  # the policy's actions since the last reset
        self._cut: set[int] = set()  # worlds whose episode a checkpoint could not carry over

    def _make_worlds(self, env_kwargs: dict[str, object], wrappers: Sequence[WrapperConfig]) -> list[WrappedWorld]:
        """Every world in its wrappers, and what the first one tells of all of them."""
        worlds: list[WrappedWorld] = []
        arguments: dict[str, Any] = {"disable_env_checker": True, **env_kwargs}
        with Blame(self.env_id, self.envs, "__init__") as building:
            for building.world in range(self.num_envs):
                worlds.append(wrap(gymnasium.make(self.env_id, **arguments), wrappers))
                self.envs.append(worlds[-1].env)
            first = self.envs[0]
            spec = first.unwrapped.spec
            assert spec is not None  # gymnasium.make sets it
            self.resume: str = strategy(first.unwrapped)  # whether a checkpoint continues every episode, or cuts it
            self.observation_space = spaces.observation_space(first.observation_space)
            self._actions = spaces.actions(first.action_space)
        threshold = spec.reward_threshold
        self.reward_threshold = None if threshold is None else float(threshold)
        return worlds

    def _make_buffers(self) -> None:
        """The one Step that every step fills, and the NumPy views and functions that write into it."""
        self._step = spaces.step_buffers(self.observation_space, self.num_envs)
        self._reward, self._terminated, self._truncated = (
            tensor.numpy() for tensor in (self._step.reward, self._step.terminated, self._step.truncated)
        )
        self._episode_return, self._episode_length = (
            self._step.episode_return.numpy(),
            self._step.episode_length.numpy(),
        )
        raw_space = self.envs[0].observation_space
        self._write_obs = spaces.observation_writer(raw_space, self._step.obs)
        self._write_final = spaces.observation_writer(raw_space, self._step.final_obs)
        self._returns, self._lengths = np.zeros(self.num_envs), np.zeros(self.num_envs, np.int64)

    def _make_step_functions(self, worlds: list[WrappedWorld]) -> None:
        """What steps each world: its flags are checked, and what it paid before any wrapper is written down."""
        self._rewards = array("d", bytes(8 * self.num_envs))  # takes numbers only; NumPy would read a text as one
        self._reward64 = np.frombuffer(self._rewards)  # returns add up in float64, whatever Step tells
        self._raw64 = self._reward64 if worlds[0].raw is None else np.zeros(self.num_envs)  # before any wrapper
        self._step_functions = [
            world.env.step if world.raw is None else _recorded(world.env.step, world.raw, self._raw64, index)
            for index, world in enumerate(worlds)
        ]
        for world, step in enumerate([*self._step_functions]):
            self._step_functions[world] = with_checked_flags(step, self._step_functions, world)

    def reset(self, seed: int) -> Obs:
        """Seed and start every world; world i has the same stream whatever the number of worlds.

        The observation is the buffer that every step overwrites.
        """
        self._seed = seed
        self._seeds = self._draw_seeds(0)
        self._episodes = [0] * self.num_envs
        self._cut.clear()
        with self._blame as blame:
            blame.doing = "reset"
            for world in range(self.num_envs):
                blame.world = world
                obs = first_observation(self.envs[world].reset(seed=self._seeds[world]))
                self._write_obs(world, obs)
                self._begin(world, {}, [])
        return self._step.obs

    def _draw_seeds(self, iteration: int) -> list[int]:
        key = Key(self._seed, WORLD, iteration=iteration)
        return integers(key, self.first_world + self.num_envs, SEEDS)[self.first_world :]

    def step(self, action: Tensor) -> Step:
        """Advance every world; an episode that ends is reset at once, by its own generator.

        The answer's buffers are overwritten by the next step. EnvError, with world, file and line, for whatever an
        environment raises or answers that it must not; then some worlds have been stepped and some have not.
        """
        if action.shape != self._action_shape or action.dtype != self._action_dtype:
            expected = f"{self._action_dtype}{list(self._action_shape)}"
            raise ValueError(f"{self.env_id} takes actions {expected}, got {action.dtype}{list(action.shape)}")
        raw = action.cpu().numpy()
        # a copy: who acts may write into the same tensor again, and a checkpoint replays these
        remembered = raw.tolist() if raw.ndim == 1 else raw.copy()
        self._terminated.fill(False)
        self._truncated.fill(False)
        if self._cut:
            playing = [world for world in range(self.num_envs) if world not in self._cut]
            ended = self._advance(playing, self._actions.convert(raw), remembered) + self._end_cut()
        else:
            ended = self._advance(range(self.num_envs), self._actions.convert(raw), remembered)
        self._count(ended)
        return self._step

    def _advance(self, worlds: Sequence[int], actions: spaces.Batch, remembered: spaces.Batch) -> list[Restart]:
        """Step these worlds and restart those that ended; tells which, and what they began from."""
        rewards, log, write_obs = self._rewards, self._log, self._write_obs
        ended = []
        with self._blame as blame:
            blame.doing = "step"
            for world in worlds:
                blame.world = world
                obs, reward, terminated, truncated, _ = self._step_functions[world](actions[world])
                try:
                    rewards[world] = reward  # type: ignore[call-overload]  # a number, or it is refused
                except TypeError as error:
                    raise not_a_number(reward) from error
                log[world].append(remembered[world])
                if terminated or truncated:
                    if terminated.__class__ is not bool or truncated.__class__ is not bool:
                        check_flags(terminated, truncated)
                    if terminated:  # both at once: the task ended, there is no future to value
                        self._terminated[world] = True
                    else:
                        self._truncated[world] = True
                    self._write_final(world, obs)
                    before = rng_state(self.envs[world].unwrapped), memories(self._remembering[world])
                    blame.doing = "reset"
                    obs, _ = self.envs[world].reset()
                    blame.doing = "step"
                    ended.append(Restart(world, *before))
                write_obs(world, obs)
        return ended

    def _count(self, ended: list[Restart]) -> None:
        """Report this step's rewards, returns and lengths, then start those of ended episodes at zero."""
        self._returns += self._raw64
        self._paid += self._reward64
        self._lengths += 1
        self._reward[:] = self._reward64
        self._episode_return[:] = self._returns
        self._episode_length[:] = self._lengths
        for world, lives in self._lives:
            if lives.loss.lost:  # an end to learn from; nobody counts it, and the game goes on
                self._terminated[world], self._episode_length[world] = True, 0
                for final, obs in zip(_leaves(self._step.final_obs), _leaves(self._step.obs), strict=True):
                    final[world] = obs[world]
                if lives.stack is not None:
                    self._write_obs(world, lives.stack.again())
        for restart in ended:
            self._episodes[restart.world] += 1
            self._begin(*restart)

    def _begin(self, world: int, rng: dict[str, object], memories: list[dict[str, object]]) -> None:
        self._returns[world], self._lengths[world], self._paid[world] = 0.0, 0, 0.0
        self._rng_at_reset[world], self._memories_at_reset[world] = rng, memories
        self._log[world] = []

    def _end_cut(self) -> list[Restart]:
        """End the episodes no checkpoint could carry over: truncated where they stood, by a step that does nothing."""
        cut = sorted(self._cut)
        self._cut.clear()
        with self._blame as blame:
            for world in cut:
                blame.world = world
                self._reward64[world] = self._raw64[world] = 0.0
                self._lengths[world] -= 1  # this step is none of the episode's
                self._truncated[world] = True
                for final, obs in zip(_leaves(self._step.final_obs), _leaves(self._step.obs), strict=True):
                    final[world] = obs[world]
                self._seeds[world] = self._draw_seeds(1 + self._episodes[world])[world]  # a stream no reset has used
                obs, _ = self.envs[world].reset(seed=self._seeds[world])
                self._write_obs(world, obs)
        return [Restart(world, {}, []) for world in cut]

    def state_dict(self) -> dict[str, Any]:
        """Plain data from which a new process continues every episode (`resume` says whether exactly)."""
        if not self._seeds:
            raise RuntimeError(f"{self.env_id} has no state before its first reset")
        exact = self.resume == "exact"  # else the running episodes will be cut, and their actions are of no use
        with self._blame:
            generators = [rng_state(env.unwrapped) for env in self.envs]
        shape, dtype = self._actions.example.shape, self._actions.example.numpy().dtype
        obs = self._step.obs
        return {
            "env_id": self.env_id,
            "num_envs": self.num_envs,
            "seed": self._seed,
            "seeds": list(self._seeds),
            "episodes": list(self._episodes),
            "obs": {name: leaf.clone() for name, leaf in obs.items()} if isinstance(obs, dict) else obs.clone(),
            "returns": self._returns.tolist(),
            "lengths": self._lengths.tolist(),
            "paid": self._paid.tolist(),
            "cut": sorted(self._cut),
            "rng_at_reset": list(self._rng_at_reset),
            "memories_at_reset": list(self._memories_at_reset),
            "rng": generators,
            "actions": [torch.from_numpy(np.array(log, dtype).reshape(-1, *shape)) for log in self._log if exact],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the state was taken; an episode that does not come back bit for bit ends as truncated."""
        saved, mine = (state["env_id"], state["num_envs"]), (self.env_id, self.num_envs)
        if saved != mine:
            raise UserError(f"the checkpoint holds {saved[1]} worlds of {saved[0]}, not {mine[1]} of {mine[0]}")
        self._seed, self._seeds, self._episodes = state["seed"], list(state["seeds"]), list(state["episodes"])
        self._cut = set(state["cut"]) if self.resume == "exact" else set(range(self.num_envs))
        with Blame(self.env_id, self.envs, "reset") as blame:  # a whole episode is replayed: no time limit holds
            for world in range(self.num_envs):
                blame.world = world
                if world not in self._cut and not self._replay(world, state):
                    self._cut.add(world)
        for leaf, saved_leaf in zip(_leaves(self._step.obs), _leaves(state["obs"]), strict=True):
            leaf.copy_(saved_leaf)
        self._returns[:], self._lengths[:], self._paid[:] = state["returns"], state["lengths"], state["paid"]
        if self._cut:
            count = f"{len(self._cut)} of {self.num_envs}"
            logger.warning("%s cannot be restored exactly: %s worlds begin a new episode", self.env_id, count)

    def _replay(self, world: int, state: dict[str, Any]) -> bool:
        """Live a world's saved episode again; whether observation, rewards and generator are what was saved."""
        actions = state["actions"][world].numpy()
        before = state["rng_at_reset"][world], state["memories_at_reset"][world]
        beginning = Beginning(self._seeds[world], *before)
        env, step, remembering = self.envs[world], self._step_functions[world], self._remembering[world]
        again = replay(env, step, remembering, beginning, actions, self._actions.convert)
        self._write_obs(world, again.obs)
        self._begin(world, *before)
        self._log[world] = actions.tolist() if actions.ndim == 1 else list(actions)
        same_obs = all(
            mine[world].numpy().tobytes() == saved[world].numpy().tobytes()
            for mine, saved in zip(_leaves(self._step.obs), _leaves(state["obs"]), strict=True)
        )
        now = rng_state(self.envs[world].unwrapped)
        same_rng = now == {**now, **state["rng"][world]}  # which may be older and know less
        return same_obs and same_rng and again.paid == state["paid"][world] and not again.ended

    def close(self) -> None:
        """Close every world."""
        with self._blame as blame:
            blame.doing = "close"
            for blame.world in range(self.num_envs):
                self.envs[blame.world].close()
        if isinstance(self._blame, WatchedBlame):
            self._blame.close()


def _recorded(step: StepFunction, raw: RawReward, paid: np.ndarray, world: int) -> StepFunction:
    """`step` of a wrapped world that also writes down what the world itself paid."""

    def recorded(action: object) -> Answer:
        answer = step(action)
        paid[world] = raw.collect()
        return answer

    return recorded


def _leaves(tree: Obs) -> list[Tensor]:
    """The tensors of a tree, by name so that two trees of one space align."""
    return [tree[name] for name in sorted(tree)] if isinstance(tree, dict) else [tree]
