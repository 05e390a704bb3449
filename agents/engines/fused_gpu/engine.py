"""`engine: fused_gpu`: CUDA kernels play and learn, or only learn, with the agent's own memory and random numbers.

Supports PPO and REINFORCE. Their recipes are in ../plan, as for fused_cpu; agents/engines/choice.py calls this module.
"""

from collections.abc import Callable
from typing import Any

import torch

from stride.agents.base import Agent
from stride.agents.engines.fused_gpu import learn
from stride.agents.engines.fused_gpu.ahead import Ahead, Beside
from stride.agents.engines.fused_gpu.learn import FusedLearn
from stride.agents.engines.fused_gpu.play import FusedPlay, choose_sizes
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

TENSOR_CORES = (8, 0)  # the first compute capability that multiplies tf32 and bf16

MakeBeside = Callable[[torch.device], Beside]
RecipeClass = type[Recipe] | type[ModelRecipe]


def why_not_fused(config: Config, agent: Agent, kind: RecipeClass | None) -> str | None:
    """Return why fused_gpu cannot run this config, naming its key; None if it can."""
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
    needed = max(choose_sizes(recipe, available).shared, learn.shared_of(learn.choose_sizes(recipe, available)))
    if needed > available:
        dims = list(config.hidden_dims)
        return f"hidden_dims {dims} need {-(-needed >> 10):,} KB of shared memory, but a block has {available >> 10} KB"
    return None


def why_not_lowered(config: Config, device: torch.device) -> str | None:
    """Return why a lower `precision` is impossible; None if tensor cores can do the products, or need not."""
    if config.precision == 32:
        return None
    if len(config.hidden_dims) < 2:
        return f"precision: {config.precision} applies to products of two hidden layers, and there is only one"
    major, minor = capability(device)
    if (major, minor) < TENSOR_CORES:
        return f"precision: {config.precision} needs a GPU with sm_80 or newer, this one is sm_{major}{minor}"
    return None


def why_not_played(kind: type[OnPolicy], agent: Agent) -> str | None:
    """Return why the collector must play, step by step; None if the kernels can."""
    envs = agent.collector.envs
    if not isinstance(envs, CudaEnv):
        return "Gymnasium's environments step on the host"
    return kind.why_not_played(agent.policy, envs.observation_space)


def make_recipe(kind: Any, agent: Agent) -> OnPolicy:
    """Make the recipe of an agent; `kind` is a class derived from OnPolicy."""
    recipe: OnPolicy = kind(agent)
    return recipe


def fused_gpu(
    kind: RecipeClass, agent: Agent, make: MakeGraph | None = CudaGraph, beside: MakeBeside | None = Beside
) -> Engine:
    """Return the sockets for an agent with this recipe.

    `make`: makes a CUDA graph for each socket; None: launch kernels without graphs.
    `beside`: makes the second stream on which an older actor (`lag: 1`) plays during the updates; None: it plays before
    them.
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
        play = fused = FusedPlay(recipe, choose_sizes(recipe, shared_of_block(device)))
        is_lagging = isinstance(agent, PPO) and agent.lagging
        if is_lagging and beside:
            play = ahead = Ahead(fused, agent, beside(device))
            learn_socket.beside = ahead.begin
        elif make:
            play = GraphedPlay(make, device, fused)
    reason = f"updates only: {refusal}" if refusal else "supports everything this config uses"
    return Engine("fused_gpu", reason, play, learn_socket)
