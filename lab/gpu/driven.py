"""Worlds and agents of a machine, without a Trainer and its callbacks."""

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
Watch = Callable[[str, tuple[Tensor | np.generic, ...], Callable[[], None]], None]


def compiler(machine: Machine) -> Compile:
    return machine.compile or compile_cuda


class Watched:
    """DeviceKernels whose launches another makes: `watch(kernel, arguments, launch)`."""

    def __init__(self, kernels: DeviceKernels, watch: Watch) -> None:
        self.kernels, self.watch = kernels, watch

    def launch(self, kernel: str, threads: int, *arguments: Tensor | np.generic, **shape: int) -> None:
        self.watch(kernel, arguments, partial(self.kernels.launch, kernel, threads, *arguments, **shape))


def watched(machine: Machine, watch: Watch) -> Machine:
    return machine._replace(compile=lambda source, device: Watched(compiler(machine)(source, device), watch))


def worlds(machine: Machine, env_id: str, num_envs: int, max_episode_steps: int | None = None) -> CudaEnv:
    return CudaEnv(WORLDS[env_id], num_envs, max_episode_steps, torch.device(machine.device), compiler(machine))


def ppo(machine: Machine, engine: str, n_envs: int, n_steps: int = 128, **changes: Any) -> PPOConfig:
    config = setting(ENV, n_envs, n_steps, threads=1)
    same: dict[str, Any] = {"engine": engine, "device": machine.device, "log_freq_epochs": None}
    return replace(config, **same | changes)


def agent_of(machine: Machine, config: PPOConfig) -> Agent:
    """The agent with its engine, on worlds that have just begun."""
    device = torch.device(machine.device)
    prepare(device, config.precision)
    plug = machine.plug if config.engine != "eager" else None
    agent = build_agent(replace(config, engine="eager") if plug else config, worlds(machine, ENV, config.n_envs))
    if plug:
        plug(agent, config.engine)
    return with_optimizer(agent)


def with_optimizer(agent: Agent) -> Agent:
    """The agent as a Trainer would have it."""
    optimizer = agent.configure_optimizers()
    agent.optimizers = lambda use_pl_optimizer=False: optimizer  # type: ignore[method-assign,assignment]
    return agent


def tick(agent: Agent) -> None:
    """One iteration, as Lightning would make it."""
    agent.training_step(iter([0]))


def settle(device: torch.device) -> None:
    """Wait until the device has done what was asked of it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def waited_for(device: torch.device, work: Callable[[], object]) -> float:
    settle(device)
    began = time.perf_counter()
    work()
    settle(device)
    return time.perf_counter() - began
