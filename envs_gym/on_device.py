"""OnDevice: worlds on the CPU for a policy on a GPU, with one copy of the actions and one of all results per step.

VecEnvWrapper is the base class of vector environments that wrap another one (OnDevice, Recorder).
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
    """The worlds of `envs`. A subclass defines `reset` and `step`."""

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
        """The worlds' flag for an illegal action (envs_fast/vec_env.py), None where they have none."""
        return self.envs.wrong

    def state_dict(self) -> State:
        """Return the state of the wrapped worlds; a wrapper adds nothing."""
        return self.envs.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Continue where `state_dict` was taken."""
        self.envs.load_state_dict(state)

    def close(self) -> None:
        """Close the wrapped worlds."""
        self.envs.close()


class OnDevice(VecEnvWrapper):
    """The worlds of `envs` with results on `device`. Host memory is pinned, so a GPU can copy it in the background.

    All tensors of a Step lie in one block of memory, final observations last: they are only copied if an episode ended.
    """

    def __init__(self, envs: VecEnv, device: torch.device) -> None:
        super().__init__(envs)
        self.device = device
        example = step_buffers(envs.observation_space, envs.num_envs)
        kinds = [(tuple(tensor.shape), tensor.dtype) for tensor in _tensors(example)]
        pinned = device.type == "cuda"
        # the same layout of one Step in the host's memory and in the device's
        self._host_memory = _memory(kinds, CPU, pinned)
        self._host_step = _step_in(self._host_memory, example, kinds)
        self._device_memory = _memory(kinds, device, False)
        self._step = _step_in(self._device_memory, example, kinds)
        final_kinds = len(tensors_of(example.final_obs))
        # bytes that are copied at each step: everything before the final observations
        self._common_size = size_of(kinds[:-final_kinds]) - LINE
        dtype = torch.float32 if isinstance(envs.action_space, Box) else torch.int64
        shape = (envs.num_envs, *(envs.action_space.shape or ()))
        self._action = torch.zeros(shape, dtype=dtype, pin_memory=pinned)

    def reset(self, seed: int) -> Obs:
        """Seed and start every world; the returned observation is a buffer on the device that `step` overwrites."""
        observation = self.envs.reset(seed)
        self._wait()
        copy_obs(self._host_step.obs, observation)
        self._send(self._common_size)
        return self._step.obs

    def step(self, action: Tensor) -> Step:
        """Advance every world. This waits until the device has computed the action."""
        check_action("this environment", action, self._action.shape, self._action.dtype)
        self._action.copy_(action, non_blocking=True)
        self._wait()
        step = self.envs.step(self._action)
        for buffer, tensor in zip(_tensors(self._host_step), _tensors(step), strict=True):
            buffer.copy_(tensor)
        finished = bool(step.terminated.any() or step.truncated.any())
        self._send(len(self._host_memory) if finished else self._common_size)
        return self._step

    def _wait(self) -> None:
        """Wait until all copies between host and device are complete; only then may host memory be read or written."""
        if self._host_memory.is_pinned():
            torch.cuda.current_stream(self.device).synchronize()

    def _send(self, size: int) -> None:
        """Begin to copy the first `size` bytes of the host's Step to the device."""
        self._device_memory[:size].copy_(self._host_memory[:size], non_blocking=True)


def _memory(kinds: Sequence[Kind], device: torch.device, pinned: bool) -> Tensor:
    """Return memory (uint8) for such tensors that starts at a cache line, so offsets are equal on host and device."""
    memory = torch.zeros(size_of(kinds), dtype=torch.uint8, device=device, pin_memory=pinned)
    return memory[-memory.data_ptr() % LINE :][: size_of(kinds) - LINE]


def _step_in(memory: Tensor, example: Step, kinds: Sequence[Kind]) -> Step:
    """Return a Step of the form of `example` whose tensors are parts of `memory`, in the order of `_tensors`."""
    tensors = iter(carve(memory, kinds))

    def observation_of(observation: Obs) -> Obs:
        return {name: next(tensors) for name in sorted(observation)} if isinstance(observation, dict) else next(tensors)

    observation = observation_of(example.obs)
    reward, terminated, truncated, episode_return, length = (next(tensors) for _ in range(5))
    return Step(observation, reward, terminated, truncated, observation_of(example.final_obs), episode_return, length)


def _tensors(step: Step) -> list[Tensor]:
    """Return all tensors of a step, final observations last."""
    columns = [step.reward, step.terminated, step.truncated, step.episode_return, step.episode_length]
    return [*tensors_of(step.obs), *columns, *tensors_of(step.final_obs)]
