"""Which engine plays and learns for an agent: `auto` takes the fastest that knows everything the config asks for."""

from stride.agents.algorithms import find_agent, make_agent
from stride.agents.base import Agent
from stride.agents.dqn import DQN
from stride.agents.dreamer import Dreamer
from stride.agents.engines.fused_cpu.engine import fused_cpu, why_not_here, why_not_known
from stride.agents.engines.fused_gpu.engine import fused_gpu, why_not_fused
from stride.agents.engines.graphed import graphed, why_not_graphed
from stride.agents.engines.plan.dqn import DQNRecipe
from stride.agents.engines.plan.model import ModelRecipe
from stride.agents.engines.plan.ppo import PPORecipe
from stride.agents.engines.plan.recipe import Recipe
from stride.agents.engines.plan.reinforce import REINFORCERecipe
from stride.agents.engines.plan.sac import SACRecipe
from stride.agents.engines.threads import choose_threads
from stride.agents.planet import PlaNet
from stride.agents.ppo import PPO
from stride.agents.reinforce import REINFORCE
from stride.agents.sac import SAC
from stride.agents.sockets import Engine, Threads, eager
from stride.config.schema import Config
from stride.envs_fast.vec_env import VecEnv
from stride.utils.user_error import UserError

# whose iteration fused kernels know: these classes, not what is derived from them
RECIPES: dict[type[Agent], type[Recipe] | type[ModelRecipe]] = {
    PPO: PPORecipe,
    REINFORCE: REINFORCERecipe,
    DQN: DQNRecipe,
    SAC: SACRecipe,
    Dreamer: ModelRecipe,
    PlaNet: ModelRecipe,
}


def may_be_fused(config: Config) -> bool:
    """Whether the fused engine's kernels are wanted, as far as can be told before there is an agent."""
    asked = config.engine in ("auto", "fused_cpu") and config.precision == 32 and not config.on_cuda
    known = config.policy == "mlp" and find_agent(config.algo_id) in RECIPES
    return asked and known and why_not_here() is None


def choose_engine(config: Config, agent: Agent) -> Engine:
    """`auto` takes the fastest that knows everything the config asks for, with the threads that pay.

    Which engine belongs to which device is a rule of config/checks.py.
    """
    return choose_on_cpu(config, agent) if agent.collector.envs.device.type == "cpu" else choose_on_gpu(config, agent)


def choose_on_cpu(config: Config, agent: Agent) -> Engine:
    """Fused kernels, or plain torch."""
    recipe = RECIPES.get(type(agent))
    refusal: str | None = f"fused_cpu does not know {config.algo_id}"
    if config.engine == "eager":
        refusal = "as configured"
    elif recipe:
        refusal = why_not_here() or recipe.why_not(config, agent.policy, agent.collector.obs) or why_not_known(config)
    if refusal and config.engine == "fused_cpu":
        raise UserError(f"engine: fused_cpu cannot run this config: {refusal}; engine: auto takes eager")
    threads = choose_threads(config, agent, fused=not refusal)
    engine = eager(refusal or "") if refusal or not recipe else fused_cpu(recipe, agent, threads.number)
    return engine._replace(threads=threads)


def choose_on_gpu(config: Config, agent: Agent) -> Engine:
    """Kernels, or graphs, or plain torch; what the processor does beside it is not worth a second thread."""
    kind, asked = RECIPES.get(type(agent)), config.engine
    refusals: dict[str, str | None] = {}
    if asked != "eager":
        refusals = {"fused_gpu": why_not_fused(config, agent, kind), "graphed": why_not_graphed(config, agent)}
    taken = next((name for name, refusal in refusals.items() if refusal is None), "eager")
    if refusal := refusals.get(asked):
        raise UserError(f"engine: {asked} cannot run this config: {refusal}; engine: auto takes {taken}")
    taken = taken if asked == "auto" else asked
    if taken == "fused_gpu" and kind:
        engine = fused_gpu(kind, agent)
    elif taken == "graphed":
        engine = graphed(agent)
        engine = engine if asked == "graphed" else engine._replace(reason=f"fused_gpu: {refusals['fused_gpu']}")
    else:
        engine = eager(refusals.get("graphed") or "as configured")
    return engine._replace(
        threads=Threads(config.torch_threads, "" if config.threads != "auto" else "auto: a GPU works")
    )


def build_agent(config: Config, envs: VecEnv, rank: int = 0) -> Agent:
    """The agent of a config with its sockets: make_agent's, and the engine that the config asks for.

    UserError where the config asks for an engine that cannot be.
    """
    agent = make_agent(config, envs, rank)
    agent.engine = choose_engine(config, agent)
    return agent
