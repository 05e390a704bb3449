"""Builds environments and agents on a machine and runs their iterations, without a Trainer and its callbacks.

Used by the checks of lab/gpu.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lab.bench.measure import setting
from lab.gpu.parts import Machine
from stride.agents.base import Agent
from stride.agents.engines.choice import build_agent
from stride.config.schema import PPOConfig
from stride.envs_fast.cuda_env import CudaEnv
from stride.envs_fast.registry import WORLDS
from stride.utils.cuda_kernels import Compile, DeviceKernels, compile_cuda
from stride.utils.devices import prepare

ENV = "CartPole-v1"
# (kernel, its arguments, launch): is called in the place of a launch, and must call `launch`
Watch = Callable[[str, tuple[Tensor | np.generic, ...], Callable[[], None]], None]


def compiler(machine: Machine) -> Compile:
    return machine.compile or compile_cuda


class Watched:
    """DeviceKernels that call `watch(kernel, arguments, launch)` instead of each launch."""

    def __init__(self, kernels: DeviceKernels, watch: Watch) -> None:
        self.kernels, self.watch = kernels, watch

    def launch(self, kernel: str, threads: int, *arguments: Tensor | np.generic, **shape: int) -> None:
        self.watch(kernel, arguments, partial(self.kernels.launch, kernel, threads, *arguments, **shape))


def watched(machine: Machine, watch: Watch) -> Machine:
    """Return the machine with watched kernels."""
    return machine._replace(compile=lambda source, device: Watched(compiler(machine)(source, device), watch))


def worlds(machine: Machine, env_id: str, num_envs: int, max_episode_steps: int | None = None) -> CudaEnv:
    return CudaEnv(WORLDS[env_id], num_envs, max_episode_steps, torch.device(machine.device), compiler(machine))


def ppo(machine: Machine, engine: str, n_envs: int, n_steps: int = 128, **changes: Any) -> PPOConfig:
    config = setting(ENV, n_envs, n_steps, threads=1)
    defaults: dict[str, Any] = {"engine": engine, "device": machine.device, "log_freq_epochs": None}
    return replace(config, **defaults | changes)


def agent_of(machine: Machine, config: PPOConfig) -> Agent:
    """Return an agent with its engine, on environments that were just reset."""
    device = torch.device(machine.device)
    prepare(device, config.precision)
    plug = machine.plug if config.engine != "eager" else None
    agent = build_agent(replace(config, engine="eager") if plug else config, worlds(machine, ENV, config.n_envs))
    if plug:
        plug(agent, config.engine)
    return with_optimizer(agent)


def with_optimizer(agent: Agent) -> Agent:
    """Give the agent its optimizer as a Trainer would, and return it."""
    optimizer = agent.configure_optimizers()
    agent.optimizers = lambda use_pl_optimizer=False: optimizer  # type: ignore[method-assign,assignment]
    return agent


def tick(agent: Agent) -> None:
    """Make one iteration, as Lightning would."""
    agent.training_step(iter([0]))


def settle(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def waited_for(device: torch.device, work: Callable[[], object]) -> float:
    """Return the seconds of the work, including the device's part."""
    settle(device)
    started = time.perf_counter()
    work()
    settle(device)
    return time.perf_counter() - started
