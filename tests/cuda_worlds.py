"""Worlds for a GPU, whose kernels are compiled for this processor: with NumbaEnv's arguments."""

from typing import Any

import numpy as np
import torch
from host_kernels import compile_host
from torch import Tensor

from stride.envs_fast.cuda_env import CudaEnv
from stride.envs_fast.registry import WORLDS
from stride.envs_fast.vec_env import CPU


def on_host(
    env_id: str,
    num_envs: int = 1,
    seed: int | None = None,
    max_episode_steps: int | None = None,
    workers: int = 1,
    **env_kwargs: Any,
) -> CudaEnv:
    """As registry.make; the threads of a launch are no workers, and so their number says nothing here."""
    env = CudaEnv(WORLDS[env_id], num_envs, max_episode_steps, CPU, compile_host, **env_kwargs)
    if seed is not None:
        env.reset(seed)
    return env


def copied(array: np.ndarray | Tensor) -> np.ndarray:
    """A copy of what either kind of worlds lets one read."""
    return torch.as_tensor(array).numpy().copy()
