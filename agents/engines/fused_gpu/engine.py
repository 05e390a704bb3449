"""`engine: fused_gpu`: the same agent, draws and memory, with play and learn, or learn alone, in kernels.

An algorithm's recipe is in ../plan, as for fused_cpu.
"""

from collections.abc import Callable
from typing import Any

import torch

from stride.agents.base import Agent
from stride.agents.engines.fused_gpu import learn
from stride.agents.engines.fused_gpu.ahead import Ahead, Beside
from stride.agents.engines.fused_gpu.learn import FusedLearn
from stride.agents.engines.fused_gpu.play import FusedPlay, fitting
from stride.agents.engines.graphed import CapturedWork, CudaGraph, GraphedPlay, MakeGraph
from stride.agents.engines.plan.model import ModelRecipe
from stride.agents.engines.plan.on_policy import OnPolicy
from stride.agents.engines.plan.pictures import picture_of
from stride.agents.engines.plan.recipe import Recipe, why_not_scaled
from stride.agents.networks.actor_critic import ActorCritic
from stride.agents.ppo import PPO
from stride.agents.sockets import EagerPlay, Engine, Play
from stride.config.schedule import FollowKL
from stride.config.schema import Config, PPOConfig
from stride.envs_fast.cuda_env import CudaEnv
from stride.utils.cuda_kernels import capability, compile_cuda, shared_of_block

TENSOR_CORES = (8, 0)  # the first that multiply tf32 and bf16

MakeBeside = Callable[[torch.device], Beside]
Kind = type[Recipe] | type[ModelRecipe]


def why_not_fused(config: Config, agent: Agent, kind: Kind | None) -> str | None:
    """What its kernels do not know, in the config's own words; None where they know all of it."""
    if kind is None or not issubclass(kind, OnPolicy):
        return f"fused_gpu does not support {config.algo_id}"
    if refusal := kind.why_not(config, agent.policy, agent.collector.obs) or why_not_scaled(config):
        return refusal
    assert isinstance(agent.policy, ActorCritic)
    if isinstance(config, PPOConfig) and isinstance(config.policy_lr, FollowKL):
        return f"it does not support policy_lr: {config.policy_lr}"
    if config.optimizer == "radam":
        return "it does not support optimizer: radam"
    if picture_of(agent.policy.encoder) is not None or agent.policy.cut == "worlds":
        return f"it does not support policy: {config.policy}"
    if refusal := why_not_lowered(config, agent.collector.envs.device):
        return refusal
    recipe, available = make_recipe(kind, agent), shared_of_block(agent.collector.envs.device)
    needed = max(fitting(recipe, available).shared, learn.shared_of(learn.fitting(recipe, available)))
    if needed > available:
        dims = list(config.hidden_dims)
        return f"hidden_dims {dims} need {-(-needed >> 10):,} KB of shared memory, but a block has {available >> 10} KB"
    return None


def why_not_lowered(config: Config, device: torch.device) -> str | None:
    """Why tensor cores cannot have what hidden layers multiply; None where they can, or are not asked to."""
    if config.precision == 32:
        return None
    if len(config.hidden_dims) < 2:
        return f"precision: {config.precision} applies to products of two hidden layers, and there is only one"
    major, minor = capability(device)
    if (major, minor) < TENSOR_CORES:
        return f"precision: {config.precision} needs a GPU with sm_80 or newer, this one is sm_{major}{minor}"
    return None


def why_not_played(kind: type[OnPolicy], agent: Agent) -> str | None:
    """Why it must be the collector that plays, a step at a time; None where the kernels can."""
    envs = agent.collector.envs
    if not isinstance(envs, CudaEnv):
        return "Gymnasium's environments step on the host"
    return kind.why_not_played(agent.policy, envs.observation_space)


def make_recipe(kind: Any, agent: Agent) -> OnPolicy:
    """The recipe of an agent of its own class."""
    recipe: OnPolicy = kind(agent)
    return recipe


def fused_gpu(
    kind: Kind, agent: Agent, make: MakeGraph | None = CudaGraph, beside: MakeBeside | None = Beside
) -> Engine:
    """The sockets for an agent of this recipe, each captured in a graph; without any where nobody makes one.

    Where an older actor plays it does so `beside` the updates, by a stream instead of a graph; without it before them.
    """
    assert issubclass(kind, OnPolicy)
    envs, refusal = agent.collector.envs, why_not_played(kind, agent)
    device = envs.device
    compile = envs.compile if isinstance(envs, CudaEnv) else compile_cuda
    play: Play = EagerPlay()
    learn_socket = FusedLearn(
        lambda learner: make_recipe(kind, learner), compile, CapturedWork(make, device) if make else None
    )
    if not refusal:
        recipe = make_recipe(kind, agent)
        play = fused = FusedPlay(recipe, fitting(recipe, shared_of_block(device)))
        is_lagging = isinstance(agent, PPO) and agent.lagging
        if is_lagging and beside:
            play = ahead = Ahead(fused, agent, beside(device))
            learn_socket.beside = ahead.begin
        elif make:
            play = GraphedPlay(make, device, fused)
    reason = f"updates only: {refusal}" if refusal else "supports everything this config uses"
    return Engine("fused_gpu", reason, play, learn_socket)
