"""Runs one simulation of N worlds that returns torch tensors (Isaac Lab, ManiSkill, Brax) behind the VecEnv contract.

Its tensors are returned without a copy, and returns and lengths are counted on its device, so no step waits for that
device. backend_torch.py says which ids are such simulations.
"""

import logging
from typing import Any, Protocol, runtime_checkable

import gymnasium
import torch
from gymnasium import Env, Space
from gymnasium.vector import AutoresetMode
from torch import Tensor

from stride.envs_fast.vec_env import Obs, Step
from stride.envs_gym.answers import Info, State
from stride.envs_gym.batches import BatchActions, EpisodeCounts, observations, policy_space
from stride.envs_gym.blame import Blame
from stride.envs_gym.snapshot import check_saved
from stride.envs_gym.spaces import leaf_spaces, map_obs, tensors_of
from stride.envs_gym.step_watch import WatchedBlame
from stride.utils.counter_rng import WORLD, Key, integers
from stride.utils.user_error import UserError

SEEDS = 2**31  # seeds are below this number; every simulator accepts such seeds
FINAL_OBS_KEYS = ("final_obs", "final_observation")  # entries of `info` with the last observations of ended episodes
REQUIRED_MEMBERS = ("num_envs", "device", "single_observation_space", "single_action_space", "reset", "step", "close")
logger = logging.getLogger("stride")


@runtime_checkable
class TensorWorlds(Protocol):
    """A gymnasium.vector.VectorEnv whose observations, rewards and flags are torch tensors [N, ...] on `device`.

    A world whose episode ends is reset within the same step (AutoresetMode.SAME_STEP). `info["final_obs"]`, [N, ...]
    in the form of the observation, then has the last observation of that episode.
    """

    num_envs: int
    device: Any
    single_observation_space: Space
    single_action_space: Space

    def reset(self, *, seed: int | None = None) -> tuple[Any, Info]: ...
    def step(self, actions: Any) -> tuple[Any, Tensor, Tensor, Tensor, Info]: ...
    def close(self) -> None: ...


@runtime_checkable
class Restorable(Protocol):
    """Worlds whose state can be saved and restored exactly: plain data and CPU tensors, loaded after a reset."""

    def state_dict(self) -> State: ...
    def load_state_dict(self, state: State) -> None: ...


class BatchBlame(Blame):
    """Blame for worlds that are one simulation: its errors name no single world."""

    def _name(self) -> str:
        return self.env_id


class WatchedBatchBlame(WatchedBlame, BatchBlame):
    """BatchBlame with a time limit."""


class TensorEnv:
    """The worlds of one id. A Step holds the simulation's own tensors, which are valid until the next step."""

    wrong = None  # the worlds themselves decide what an illegal action does

    def __init__(
        self,
        env_id: str,
        worlds: TensorWorlds,
        time_limit: int | None = None,
        reward_threshold: float | None = None,
        step_timeout: float | None = None,
    ) -> None:
        self.env_id = env_id
        self.worlds = worlds
        self.num_envs = worlds.num_envs
        self.time_limit = time_limit
        self.reward_threshold = reward_threshold
        self.device = torch.empty(0, device=worlds.device).device  # "cuda" becomes "cuda:0"
        self.resume = "exact" if isinstance(worlds, Restorable) else "seam"
        self.observation_space = policy_space(worlds.single_observation_space)
        self._convert_obs = observations(worlds.single_observation_space)
        self._actions = BatchActions(worlds.single_action_space, self.num_envs, self.device)
        self.action_space = self._actions.space
        self._blame = BatchBlame(env_id)
        if step_timeout is not None:
            self._blame = WatchedBatchBlame(env_id, (), step_timeout)
        self._counts = EpisodeCounts(self.num_envs, self.device)
        self._obs: Obs | None = None  # the last observation; None before the first reset
        self._overwritten = True  # whether a step may overwrite the observation before; known after two steps
        self._checked = self._stepped = False  # since the last reset: whether an answer was checked, a step was done
        self._unreported = torch.zeros((), dtype=torch.int64, device=self.device)  # truncations without final_obs
        self._seed = self._resets = 0
        self._cut = False  # whether the next step truncates all episodes, as a checkpoint could not restore them

    def reset(self, seed: int) -> Obs:
        """Seed and start all worlds; return the simulation's own observation."""
        self._seed = seed
        self._resets = 0
        self._cut = self._checked = False
        self._counts.zero_()
        self._obs = self._begin()
        return self._obs

    def _begin(self) -> Obs:
        """Reset all worlds with the next seed of the sequence that `reset(seed)` began."""
        seed = integers(Key(self._seed, WORLD, iteration=self._resets), 1, SEEDS)[0]
        self._resets += 1
        self._overwritten = True
        self._stepped = False
        with self._blame.during("reset"):
            observation = self._convert_obs(self.worlds.reset(seed=seed)[0])
            self._check_obs(observation)
        return observation

    def step(self, action: Tensor) -> Step:
        """Advance every world.

        The last observation of a truncated episode is `info["final_obs"]`. Where `info` has none, the observation
        before this step is used, and a warning says so when the state is saved.
        """
        self._actions.check(action, self.env_id)
        if self._obs is None:
            raise RuntimeError(f"{self.env_id}: call reset(seed) before the first step")
        if self._cut:
            return self._seam()
        final_obs = map_obs(self._obs, Tensor.clone) if self._overwritten else self._obs
        with self._blame.during("step"):
            raw_observation, reward, terminated, truncated, info = self.worlds.step(self._actions.convert(action))
            observation = self._convert_obs(raw_observation)
            if not self._checked:
                self._check(observation, reward, terminated, truncated)
            reported = [info[name] for name in FINAL_OBS_KEYS if info.get(name) is not None]
            if reported:
                final_obs = self._convert_obs(reported[0])
            else:
                self._unreported += (truncated & ~terminated).sum()
        if self._stepped:
            self._overwritten = self._overwritten and _share_memory(observation, self._obs)
        self._obs = observation
        self._stepped = True
        return self._counts.step(observation, reward, terminated, truncated, final_obs)

    def _seam(self) -> Step:
        """Return the first Step after a checkpoint that could not be restored: all episodes end as truncated."""
        assert self._obs is not None
        previous = self._obs
        self._cut = False
        self._obs = self._begin()
        return self._counts.cut(self._obs, previous)

    def _check(self, observation: Obs, reward: Tensor, terminated: Tensor, truncated: Tensor) -> None:
        """Check shapes, types and devices of the first step after a reset; later steps are not checked."""
        self._check_obs(observation)
        for name, column in (("reward", reward), ("terminated", terminated), ("truncated", truncated)):
            if not isinstance(column, Tensor):
                raise TypeError(f"{name} is {type(column).__name__}, not a torch tensor")
            expected = "a float" if name == "reward" else "a bool"
            right = column.is_floating_point() if name == "reward" else column.dtype == torch.bool
            if column.shape != (self.num_envs,) or not right or column.device != self.device:
                description = f"{column.dtype}{list(column.shape)} on {column.device}"
                expected += f" for each of {self.num_envs} environments on {self.device}"
                raise ValueError(f"{name} is {description}, not {expected}")
        self._checked = True

    def _check_obs(self, observation: Obs) -> None:
        tensors = observation if isinstance(observation, dict) else {"": observation}
        for name, space in leaf_spaces(self.observation_space):
            tensor = tensors[name]
            shape = (self.num_envs, *(space.shape or ()))
            if tensor.shape != shape or tensor.device != self.device:
                label = f"observation {name}".rstrip()
                description = f"{list(tensor.shape)} on {tensor.device}"
                raise ValueError(f"{label} is {description}, not {list(shape)} on {self.device}")

    def state_dict(self) -> State:
        """Return plain data on the CPU, with the simulation's own state where it has one (`Restorable`)."""
        if self._obs is None:
            raise RuntimeError(f"{self.env_id} has no state before its first reset")
        if unreported := int(self._unreported):
            logger.warning(
                "%s: its info has no last observation (final_obs) of %s truncated episodes; the value of the "
                "observation before it was used", self.env_id, unreported,
            )  # fmt: skip
            self._unreported.zero_()
        state = {
            "env_id": self.env_id,
            "num_envs": self.num_envs,
            "seed": self._seed,
            "resets": self._resets,
            "obs": map_obs(self._obs, lambda tensor: tensor.to("cpu", copy=True)),
            "cut": self._cut,
            **self._counts.state_dict(),
        }
        if isinstance(self.worlds, Restorable):
            with self._blame.during("state_dict"):
                state["worlds"] = self.worlds.state_dict()
        return state

    def load_state_dict(self, state: State) -> None:
        """Continue where the state was taken; a simulation that is not `Restorable` ends its episodes as truncated."""
        check_saved(state, self.env_id, self.num_envs)
        self._seed = state["seed"]
        self._resets = state["resets"]
        if isinstance(self.worlds, Restorable):
            self._begin()  # a simulation needs a reset before its state can be loaded
            self._resets = state["resets"]
            self._cut = state["cut"]
            with self._blame.during("load_state_dict"):
                self.worlds.load_state_dict(state["worlds"])
        else:
            self._cut = True
            logger.warning("%s cannot be restored: %s environments start a new episode", self.env_id, self.num_envs)
        self._counts.load_state_dict(state)
        self._obs = map_obs(state["obs"], lambda tensor: tensor.to(self.device, copy=True))

    def close(self) -> None:
        """Release the simulation."""
        with self._blame.during("close"):
            self.worlds.close()
        self._blame.close()


def checked(env_id: str, worlds: object) -> TensorWorlds:
    """Return `worlds` if it is a vector environment with the needed members and SAME_STEP resets; else UserError."""
    if not isinstance(worlds, TensorWorlds):
        lacking = ", ".join(name for name in REQUIRED_MEMBERS if not hasattr(worlds, name))
        expected = type(worlds).__name__
        raise UserError(f"{env_id} is not a vector environment that returns tensors: {expected} has no {lacking}")
    metadata = worlds.metadata if isinstance(worlds, Env | gymnasium.vector.VectorEnv) else {}
    mode = AutoresetMode(metadata.get("autoreset_mode", AutoresetMode.SAME_STEP))
    if mode is not AutoresetMode.SAME_STEP:
        raise UserError(f"{env_id} has autoreset_mode {mode.name}; tensor environments must use SAME_STEP")
    return worlds


def _share_memory(one: Obs, other: Obs) -> bool:
    """Whether two observations share memory: the simulation then writes its observations in place."""
    pairs = zip(tensors_of(one), tensors_of(other), strict=True)
    return any(tensor.data_ptr() == other_tensor.data_ptr() for tensor, other_tensor in pairs)
