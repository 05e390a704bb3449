"""`engine: fused_gpu`, the door: the same agent, draws and memory; a rollout is one launch.

What an algorithm is to it stands in ../plan, as for fused_cpu.
"""

from typing import Any

from agents.base import Agent
from agents.engines.fused_gpu.play import FusedPlay, Sizes, fitting
from agents.engines.graphed import CudaGraph, GraphedPlay, MakeGraph, graphed
from agents.engines.plan.model import ModelRecipe
from agents.engines.plan.on_policy import OnPolicy
from agents.engines.plan.recipe import Recipe
from agents.sockets import Engine, eager
from config.schema import Config
from envs_fast.cuda_env import CudaEnv
from utils.cuda_kernels import shared_of_block

Kind = type[Recipe] | type[ModelRecipe]


def why_not_fused(config: Config, agent: Agent, kind: Kind | None) -> str | None:
    """What its kernels do not know, in the config's own words; None where they know all of it."""
    if kind is None or not issubclass(kind, OnPolicy):
        return f"fused_gpu does not know {config.algo_id}"
    if refusal := kind.why_not(config, agent.policy, agent.collector.obs):
        return refusal
    envs = agent.collector.envs
    if not isinstance(envs, CudaEnv):
        return "Gymnasium's worlds step on the host"
    if refusal := kind.why_not_played(agent.policy, envs.observation_space):
        return refusal
    needed, room = sized(kind, agent)[1].shared, shared_of_block(envs.device)
    if needed > room:
        dims = list(config.hidden_dims)
        return f"hidden_dims {dims} need {-(-needed >> 10):,} KB of shared memory, a block has {room >> 10} KB"
    return None


def sized(kind: Any, agent: Agent) -> tuple[OnPolicy, Sizes]:
    """The recipe made for the agent, of whose class it is, and what its kernel is compiled for."""
    recipe: OnPolicy = kind(agent)
    return recipe, fitting(recipe, shared_of_block(agent.collector.envs.device))


def fused_gpu(kind: Kind, agent: Agent, make: MakeGraph | None = CudaGraph) -> Engine:
    """The sockets for an agent of this recipe, captured in graphs; without any where nobody makes one."""
    play = FusedPlay(*sized(kind, agent))
    reason = "plays in one launch; learns as graphed"
    if make is None:
        return eager()._replace(name="fused_gpu", reason=reason, play=play)
    captured = GraphedPlay(make, agent.collector.envs.device, play)
    return graphed(agent, make)._replace(name="fused_gpu", reason=reason, play=captured)
