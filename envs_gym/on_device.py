"""Worlds of the CPU for a policy on a device: actions come over in one copy, all that a step tells goes back in one."""

from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor

from stride.envs_fast.buffers import LINE, Kind, carve, size_of
from stride.envs_fast.vec_env import CPU, Obs, Step, VecEnv
from stride.envs_gym.spaces import step_buffers


class OnDevice:
    """The worlds of `envs`, seen from `device`. Host memory that a GPU copies from or to is pinned."""

    def __init__(self, envs: VecEnv, device: torch.device) -> None:
        self.envs, self.device = envs, device
        self.num_envs, self.time_limit, self.resume = envs.num_envs, envs.time_limit, envs.resume
        self.observation_space, self.action_space = envs.observation_space, envs.action_space
        self.reward_threshold = envs.reward_threshold
        like = step_buffers(envs.observation_space, envs.num_envs)
        kinds = [(tuple(leaf.shape), leaf.dtype) for leaf in _leaves(like)]
        self._pinned = device.type == "cuda"
        self._sent, self._here = _laid_out(like, _memory(kinds, CPU, self._pinned), kinds)
        self._arrived, self._step = _laid_out(like, _memory(kinds, device, False), kinds)
        self._always = (
            size_of(kinds[: -len(_tree_leaves(like.final_obs))]) - LINE
        )  # bytes before the final observations
        self._action = _action_buffer(envs.action_space, envs.num_envs, self._pinned)

    @property
    def wrong(self) -> Tensor | None:
        """As the worlds have it."""
        return self.envs.wrong

    def reset(self, seed: int) -> Obs:
        """Start every world afresh; the observation is a buffer on the device that `step` overwrites."""
        obs = self.envs.reset(seed)
        self._wait()
        for mine, seen in zip(_tree_leaves(self._here.obs), _tree_leaves(obs), strict=True):
            mine.copy_(seen)
        self._send(self._always)
        return self._step.obs

    def step(self, action: Tensor) -> Step:
        """Advance every world. Waits for the action, and so for all that the device was to do before it."""
        if action.shape != self._action.shape or action.dtype != self._action.dtype:
            wanted, given = (f"{x.dtype}{list(x.shape)}" for x in (self._action, action))
            raise ValueError(f"these worlds take actions {wanted}, got {given}")
        self._action.copy_(action, non_blocking=True)
        self._wait()
        step = self.envs.step(self._action)
        for mine, told in zip(_leaves(self._here), _leaves(step), strict=True):
            mine.copy_(told)
        ended = bool(step.terminated.any() or step.truncated.any())
        self._send(len(self._sent) if ended else self._always)
        return self._step

    def _wait(self) -> None:
        """Until what was sent has arrived, either way: only then may its memory on the host be read or written."""
        if self._pinned:
            torch.cuda.current_stream(self.device).synchronize()

    def _send(self, size: int) -> None:
        self._arrived[:size].copy_(self._sent[:size], non_blocking=True)

    def state_dict(self) -> dict[str, Any]:
        """That of the worlds: it says nothing of a device."""
        return self.envs.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken, on whatever device."""
        self.envs.load_state_dict(state)

    def close(self) -> None:
        """Release what the worlds hold."""
        self.envs.close()


def _memory(kinds: Sequence[Kind], device: torch.device, pinned: bool) -> Tensor:
    """Room for such tensors, uint8, from a cache line's start on: the same places in each."""
    memory = torch.zeros(size_of(kinds), dtype=torch.uint8, device=device, pin_memory=pinned)
    return memory[-memory.data_ptr() % LINE :][: size_of(kinds) - LINE]


def _laid_out(like: Step, memory: Tensor, kinds: Sequence[Kind]) -> tuple[Tensor, Step]:
    """The memory, and a Step in it of the same tree as `like`."""
    tensors = iter(carve(memory, kinds))

    def tree(example: Obs) -> Obs:
        return {name: next(tensors) for name in example} if isinstance(example, dict) else next(tensors)

    obs = tree(like.obs)
    reward, lost, cut, sum_, length = (next(tensors) for _ in range(5))
    return memory, Step(obs, reward, lost, cut, tree(like.final_obs), sum_, length)


def _leaves(step: Step) -> list[Tensor]:
    """All tensors of a step, final observations last: they cross over only where an episode has ended."""
    obs, reward, lost, cut, final_obs, sum_, length = step
    return [*_tree_leaves(obs), reward, lost, cut, sum_, length, *_tree_leaves(final_obs)]


def _tree_leaves(tree: Obs) -> list[Tensor]:
    return [*tree.values()] if isinstance(tree, dict) else [tree]


def _action_buffer(space: Space[Any], num_envs: int, pinned: bool) -> Tensor:
    """Room for an action of each world."""
    dtype = torch.float32 if isinstance(space, spaces.Box) else torch.int64
    return torch.zeros((num_envs, *(space.shape or ())), dtype=dtype, pin_memory=pinned)
