"""Worlds of the CPU for a policy on a device: actions come over in one copy, and all results go back in one.

Also the base of this and other vector environments around one.
"""

from collections.abc import Sequence

import torch
from gymnasium.spaces import Box
from torch import Tensor

from stride.envs_fast.buffers import LINE, Kind, carve, size_of
from stride.envs_fast.vec_env import CPU, Obs, Step, VecEnv
from stride.envs_gym.answers import State
from stride.envs_gym.spaces import check_action, copy_obs, step_buffers, tensors_of


class VecEnvWrapper:
    """The worlds of `envs`; a class above changes what `reset` and `step` do."""

    def __init__(self, envs: VecEnv) -> None:
        self.envs = envs
        self.device = envs.device
        self.num_envs = envs.num_envs
        self.observation_space = envs.observation_space
        self.action_space = envs.action_space
        self.time_limit = envs.time_limit
        self.resume = envs.resume
        self.reward_threshold = envs.reward_threshold

    @property
    def wrong(self) -> Tensor | None:
        """The flag of the worlds."""
        return self.envs.wrong

    def state_dict(self) -> State:
        """The state of the worlds alone."""
        return self.envs.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Continue where `state_dict` was taken."""
        self.envs.load_state_dict(state)

    def close(self) -> None:
        """Release what the worlds hold."""
        self.envs.close()


class OnDevice(VecEnvWrapper):
    """The worlds of `envs`, seen from `device`. Host memory that a GPU copies from or to is pinned."""

    def __init__(self, envs: VecEnv, device: torch.device) -> None:
        super().__init__(envs)
        self.device = device
        example = step_buffers(envs.observation_space, envs.num_envs)
        kinds = [(tuple(tensor.shape), tensor.dtype) for tensor in _tensors(example)]
        pinned = device.type == "cuda"
        self._host = _memory(kinds, CPU, pinned)
        self._host_step = _step_in(self._host, example, kinds)
        self._arrived = _memory(kinds, device, False)
        self._step = _step_in(self._arrived, example, kinds)
        final_kinds = len(tensors_of(example.final_obs))
        self._always = size_of(kinds[:-final_kinds]) - LINE  # bytes before the final observations
        dtype = torch.float32 if isinstance(envs.action_space, Box) else torch.int64
        shape = (envs.num_envs, *(envs.action_space.shape or ()))
        self._action = torch.zeros(shape, dtype=dtype, pin_memory=pinned)

    def reset(self, seed: int) -> Obs:
        """Start every world afresh; the observation is a buffer on the device that `step` overwrites."""
        observation = self.envs.reset(seed)
        self._wait()
        copy_obs(self._host_step.obs, observation)
        self._send(self._always)
        return self._step.obs

    def step(self, action: Tensor) -> Step:
        """Advance every world. Waits for the action, and so for all that the device was to do before it."""
        check_action("this environment", action, self._action.shape, self._action.dtype)
        self._action.copy_(action, non_blocking=True)
        self._wait()
        step = self.envs.step(self._action)
        for buffer, tensor in zip(_tensors(self._host_step), _tensors(step), strict=True):
            buffer.copy_(tensor)
        finished = bool(step.terminated.any() or step.truncated.any())
        self._send(len(self._host) if finished else self._always)
        return self._step

    def _wait(self) -> None:
        """Wait until copies both ways have arrived: only then may their memory on the host be read or written."""
        if self._host.is_pinned():
            torch.cuda.current_stream(self.device).synchronize()

    def _send(self, size: int) -> None:
        self._arrived[:size].copy_(self._host[:size], non_blocking=True)


def _memory(kinds: Sequence[Kind], device: torch.device, pinned: bool) -> Tensor:
    """Bytes for such tensors from the start of a cache line on, so that they have the same offsets everywhere."""
    memory = torch.zeros(size_of(kinds), dtype=torch.uint8, device=device, pin_memory=pinned)
    return memory[-memory.data_ptr() % LINE :][: size_of(kinds) - LINE]


def _step_in(memory: Tensor, example: Step, kinds: Sequence[Kind]) -> Step:
    """A Step of the same form as the example, its tensors in the memory in the order of `_tensors`."""
    tensors = iter(carve(memory, kinds))

    def part(observation: Obs) -> Obs:
        return {name: next(tensors) for name in sorted(observation)} if isinstance(observation, dict) else next(tensors)

    observation = part(example.obs)
    reward, terminated, truncated, episode_return, length = (next(tensors) for _ in range(5))
    return Step(observation, reward, terminated, truncated, part(example.final_obs), episode_return, length)


def _tensors(step: Step) -> list[Tensor]:
    """All tensors of a step, final observations last: they are only copied where an episode has ended."""
    columns = [step.reward, step.terminated, step.truncated, step.episode_return, step.episode_length]
    return [*tensors_of(step.obs), *columns, *tensors_of(step.final_obs)]
