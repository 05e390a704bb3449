"""Worlds that are one simulation and answer tensors (Isaac Lab, ManiSkill, Brax ...) behind the VecEnv contract.

What they answer is handed on where it lies, without a copy; episodes are counted on their device, and nothing here
waits for it. Which id is such a world is said in backend_torch.py.
"""

import logging
from typing import Any, Protocol, runtime_checkable

import gymnasium
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from stride.envs_fast.vec_env import Obs, Step
from stride.envs_gym.batches import Acting, Counts, observations, seen_space
from stride.envs_gym.blame import Blame
from stride.envs_gym.step_watch import WatchedBlame
from stride.utils.counter_rng import WORLD, Key, integers
from stride.utils.user_error import UserError

SEEDS = 2**31  # below this, which every simulator's seeding takes
LAST = ("final_obs", "final_observation")  # under which names `info` tells where ended episodes ended
NEEDED = ("num_envs", "device", "single_observation_space", "single_action_space", "reset", "step", "close")
logger = logging.getLogger("stride")


@runtime_checkable
class TensorWorlds(Protocol):
    """A gymnasium.vector.VectorEnv whose observations, rewards and flags are torch tensors [N, ...] on `device`.

    Who ends is reset inside the same step (AutoresetMode.SAME_STEP); `info["final_obs"]`, [N, ...] of the form of the
    observation, says where it ended.
    """

    num_envs: int
    device: Any
    single_observation_space: gymnasium.Space[Any]
    single_action_space: gymnasium.Space[Any]

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]: ...
    def step(self, actions: Any) -> tuple[Any, Tensor, Tensor, Tensor, dict[str, Any]]: ...
    def close(self) -> None: ...


@runtime_checkable
class Restorable(Protocol):
    """Worlds that can be put back exactly: plain data and tensors of the CPU out, and in again after a reset."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Together(Blame):
    """Blame where all worlds are one: none of them is named."""

    def _whose(self) -> str:
        return self.env_id


class WatchedTogether(WatchedBlame, Together):
    """The same with an eye on how long they take."""


def together(env_id: str, step_timeout: float | None) -> Together:
    """For worlds that are one, watched where a limit is given."""
    return Together(env_id) if step_timeout is None else WatchedTogether(env_id, (), step_timeout)


class TensorEnv:
    """The worlds of one id. A Step is made of their own tensors, and valid as long as these are: until the next."""

    wrong = None  # what an action that there is not leads to is the worlds' own affair

    def __init__(
        self,
        env_id: str,
        worlds: TensorWorlds,
        time_limit: int | None = None,
        reward_threshold: float | None = None,
        step_timeout: float | None = None,
    ) -> None:
        self.env_id, self.worlds, self.num_envs = env_id, worlds, worlds.num_envs
        self.time_limit, self.reward_threshold = time_limit, reward_threshold
        self.device = torch.empty(0, device=worlds.device).device  # with its number
        self.resume = "exact" if isinstance(worlds, Restorable) else "seam"
        self.observation_space = seen_space(worlds.single_observation_space)
        self._seen = observations(worlds.single_observation_space)
        self._acting = Acting(worlds.single_action_space, self.num_envs, self.device)
        self.action_space = self._acting.space
        self._blame = together(env_id, step_timeout)
        self._counts = Counts(self.num_envs, self.device)
        self._obs: Obs | None = None  # what was seen last; None before the first reset
        self._overwritten = True  # whether a step writes into what the one before it told: known after two of them
        self._checked = self._stepped = False
        self._untold = torch.zeros((), dtype=torch.int64, device=self.device)  # truncations without their last sight
        self._seed = self._resets = 0
        self._cut = False

    def reset(self, seed: int) -> Obs:
        """Seed and start all worlds; the observation is theirs."""
        self._seed, self._resets, self._cut, self._checked = seed, 0, False, False
        self._counts.zero_()
        self._obs = self._begin()
        return self._obs

    def _begin(self) -> Obs:
        """All worlds anew, with a seed that no reset of this one has used."""
        seed = integers(Key(self._seed, WORLD, iteration=self._resets), 1, SEEDS)[0]
        self._resets += 1
        self._overwritten, self._stepped = True, False
        with self._blame as blame:
            blame.doing = "reset"
            obs = self._seen(self.worlds.reset(seed=seed)[0])
            self._check_obs(obs)
        return obs

    def step(self, action: Tensor) -> Step:
        """Advance every world. A truncated episode is valued where `info` says that it ended; where it does not, at
        the observation that was acted upon last."""
        self._acting.check(action, self.env_id)
        if self._obs is None:
            raise RuntimeError(f"{self.env_id}: reset(seed) comes before the first step")
        if self._cut:
            return self._seam()
        before = _copy(self._obs) if self._overwritten else self._obs
        with self._blame as blame:
            blame.doing = "step"
            raw, reward, terminated, truncated, info = self.worlds.step(self._acting.given(action))
            obs = self._seen(raw)
            if not self._checked:
                self._check(obs, reward, terminated, truncated)
            told = next((info[name] for name in LAST if info.get(name) is not None), None)
            final_obs = before if told is None else self._seen(told)
        if told is None:
            self._untold += (truncated & ~terminated).sum()
        if self._stepped:
            self._overwritten = self._overwritten and _same_memory(obs, self._obs)
        self._obs, self._stepped = obs, True
        return self._counts.step(obs, reward, terminated, truncated, final_obs)

    def _seam(self) -> Step:
        """The first step behind a checkpoint that could not carry the episodes over."""
        assert self._obs is not None
        self._cut, last = False, self._obs
        self._obs = self._begin()
        return self._counts.cut(self._obs, last)

    def _check(self, obs: Obs, reward: Tensor, terminated: Tensor, truncated: Tensor) -> None:
        """The first answer of a step, for all that follow: forms, types and devices."""
        self._check_obs(obs)
        kinds = {"reward": (reward, torch.is_floating_point), "terminated": (terminated, _is_flag)}
        for name, (column, right) in {**kinds, "truncated": (truncated, _is_flag)}.items():
            if not isinstance(column, Tensor):
                raise TypeError(f"{name} is {type(column).__name__}, not a torch tensor")
            if column.shape != (self.num_envs,) or not right(column) or column.device != self.device:
                found = f"{column.dtype}{list(column.shape)} on {column.device}"
                kind = "a float" if name == "reward" else "a bool"
                raise ValueError(f"{name} is {found}, not {kind} for each of {self.num_envs} worlds on {self.device}")
        self._checked = True

    def _check_obs(self, obs: Obs) -> None:
        parts = self.observation_space
        named = parts.spaces if isinstance(parts, gymnasium.spaces.Dict) else {"": parts}
        for name, leaf in (obs if isinstance(obs, dict) else {"": obs}).items():
            shape = (self.num_envs, *(named[name].shape or ()))
            if leaf.shape != shape or leaf.device != self.device:
                found = f"{list(leaf.shape)} on {leaf.device}"
                raise ValueError(
                    f"observation {name} is {found}, not {list(shape)} on {self.device}".replace("  ", " ")
                )

    def state_dict(self) -> dict[str, Any]:
        """Plain data on the CPU; the worlds' own state in it where they tell it (`Restorable`)."""
        if self._obs is None:
            raise RuntimeError(f"{self.env_id} has no state before its first reset")
        if untold := int(self._untold):
            logger.warning(
                "%s: %s truncated episodes ended where its info does not tell (final_obs); they were valued at the "
                "observation before", self.env_id, untold,
            )  # fmt: skip
            self._untold.zero_()
        state = {"env_id": self.env_id, "num_envs": self.num_envs, "seed": self._seed, "resets": self._resets}
        obs = {name: leaf.cpu() for name, leaf in self._obs.items()} if isinstance(self._obs, dict) else self._obs.cpu()
        state |= {"obs": _copy(obs), "cut": self._cut, **self._counts.state_dict()}
        if isinstance(self.worlds, Restorable):
            with self._blame as blame:
                blame.doing = "state_dict"
                state["worlds"] = self.worlds.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the state was taken; worlds that cannot be put back end their episodes as truncated."""
        saved, mine = (state["env_id"], state["num_envs"]), (self.env_id, self.num_envs)
        if saved != mine:
            raise UserError(f"the checkpoint holds {saved[1]} worlds of {saved[0]}, not {mine[1]} of {mine[0]}")
        self._seed, self._resets = state["seed"], state["resets"]
        if isinstance(self.worlds, Restorable):
            self._begin()  # so that there is something to put the state into
            self._resets, self._cut = state["resets"], state["cut"]
            with self._blame as blame:
                blame.doing = "load_state_dict"
                self.worlds.load_state_dict(state["worlds"])
        else:
            self._cut = True
            logger.warning("%s cannot be restored: %s worlds begin a new episode", self.env_id, self.num_envs)
        self._counts.load_state_dict(state)
        saved_obs = state["obs"]
        on = {name: leaf.to(self.device) for name, leaf in saved_obs.items()} if isinstance(saved_obs, dict) else None
        self._obs = _copy(saved_obs.to(self.device) if on is None else on)

    def close(self) -> None:
        """Release the simulation."""
        with self._blame as blame:
            blame.doing = "close"
            self.worlds.close()
        if isinstance(self._blame, WatchedBlame):
            self._blame.close()


def checked(env_id: str, worlds: object) -> TensorWorlds:
    """The worlds, or UserError that says what keeps them from being ones."""
    if not isinstance(worlds, TensorWorlds):
        lacking = ", ".join(name for name in NEEDED if not hasattr(worlds, name))
        kind = type(worlds).__name__
        raise UserError(f"{env_id} is no vector environment that answers tensors: {kind} has no {lacking}")
    metadata = worlds.metadata if isinstance(worlds, gymnasium.Env | gymnasium.vector.VectorEnv) else {}
    mode = AutoresetMode(metadata.get("autoreset_mode", AutoresetMode.SAME_STEP))
    if mode is not AutoresetMode.SAME_STEP:
        raise UserError(f"{env_id} has autoreset_mode {mode.name}; worlds of tensors reset in the same step, SAME_STEP")
    return worlds


def _is_flag(column: Tensor) -> bool:
    return column.dtype == torch.bool


def _copy(obs: Obs) -> Obs:
    return {name: leaf.clone() for name, leaf in obs.items()} if isinstance(obs, dict) else obs.clone()


def _same_memory(one: Obs, other: Obs) -> bool:
    """Whether two observations lie in the same place, as those of worlds that write theirs in place."""
    if isinstance(one, dict):
        return isinstance(other, dict) and any(_same_memory(leaf, other[name]) for name, leaf in one.items())
    return isinstance(other, Tensor) and one.data_ptr() == other.data_ptr()
