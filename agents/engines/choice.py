"""Choose the engine that plays and learns for an agent, and its number of threads.

`engine: auto` takes the fastest engine that supports all settings of the config. `threads: auto` computes a maximum
from sizes, which costs no time. Up to this maximum fused_cpu measures in each iteration whether one thread or all of
them are faster (fused_cpu/workers.py).
"""

from stride.agents.algorithms import find_agent, make_agent
from stride.agents.base import Agent
from stride.agents.dqn import DQN
from stride.agents.dreamer import Dreamer
from stride.agents.engines.fused_cpu.bind import MOST_PARTS, ROWS_PER_PART, most_parts_of
from stride.agents.engines.fused_cpu.engine import fused_cpu, why_not_here, why_not_known
from stride.agents.engines.fused_gpu.engine import fused_gpu, why_not_fused
from stride.agents.engines.graphed import graphed, why_not_graphed
from stride.agents.engines.plan.bounded import why_not_plain
from stride.agents.engines.plan.dqn import DQNRecipe
from stride.agents.engines.plan.model import ModelRecipe
from stride.agents.engines.plan.on_policy import PPORecipe, REINFORCERecipe
from stride.agents.engines.plan.pqn import PQNRecipe
from stride.agents.engines.plan.recipe import Recipe
from stride.agents.engines.plan.sac import SACRecipe
from stride.agents.engines.plan.td3 import TD3Recipe
from stride.agents.engines.plan.tqc import TQCRecipe
from stride.agents.experience.ratio import updates_per_step
from stride.agents.planet import PlaNet
from stride.agents.ppo import PPO
from stride.agents.pqn import PQN
from stride.agents.reinforce import REINFORCE
from stride.agents.sac import SAC
from stride.agents.sockets import Engine, Threads, eager
from stride.agents.td3 import TD3
from stride.agents.tqc import TQC
from stride.config.schema import (
    BoundedConfig,
    Config,
    PolicyGradientConfig,
    ReplayConfig,
    RolloutConfig,
    WorldModelConfig,
    explores,
)
from stride.envs_fast.vec_env import VecEnv
from stride.utils.resources import cores, idle
from stride.utils.user_error import UserError

# the algorithms that fused kernels support, by exact class: derived classes may learn in another way
RECIPES: dict[type[Agent], type[Recipe] | type[ModelRecipe]] = {
    PPO: PPORecipe,
    REINFORCE: REINFORCERecipe,
    PQN: PQNRecipe,
    DQN: DQNRecipe,
    SAC: SACRecipe,
    TD3: TD3Recipe,
    TQC: TQCRecipe,
    Dreamer: ModelRecipe,
    PlaNet: ModelRecipe,
}

# multiply-adds of one forward pass over all rows of an iteration's updates that make one more thread pay, about half a
# millisecond of updates. Measured on two cores, time with two threads / with one: 1.1 at 9 million (REINFORCE on
# CartPole), 0.8 at 47 (PPO on CartPole), 0.7 at 51 (SAC, 256 wide), 0.6 at 550 (DQN, 128 updates)
PRODUCTS_PER_THREAD = 15e6


def may_be_fused(config: Config) -> bool:
    """Whether fused_cpu will probably be chosen, by the config alone, so that kernels can be compiled early."""
    possible = config.engine in ("auto", "fused_cpu") and config.precision == 32 and not config.on_cuda
    agent = find_agent(config.algo_id)
    has_recipe = agent in RECIPES
    if config.policy == "cnn" and not explores(config):
        has_recipe = agent in (PPO, REINFORCE, PQN, DQN) and config.policy_kwargs.get("cnn") == "small"
    elif config.policy not in ("mlp", "mingru") or explores(config):
        has_recipe = False
    if isinstance(config, BoundedConfig) and why_not_plain(config):
        has_recipe = False
    if isinstance(config, PolicyGradientConfig) and config.has_blocks:
        has_recipe = False
    return possible and has_recipe and why_not_here() is None


def choose_engine(config: Config, agent: Agent) -> Engine:
    """Return the configured engine, for auto the fastest that supports the config; raises UserError if it cannot run.

    config/checks.py says which engines belong to which device.
    """
    return choose_on_cpu(config, agent) if agent.collector.envs.device.type == "cpu" else choose_on_gpu(config, agent)


def choose_on_cpu(config: Config, agent: Agent) -> Engine:
    """Choose between fused_cpu and eager (plain torch)."""
    recipe = RECIPES.get(type(agent))
    refusal: str | None = f"fused_cpu does not support {config.algo_id}"
    if config.engine == "eager":
        refusal = "as configured"
    elif recipe:
        refusal = why_not_here() or recipe.why_not(config, agent.policy, agent.collector.obs) or why_not_known(config)
    if refusal and config.engine == "fused_cpu":
        raise UserError(f"engine: fused_cpu does not support this config: {refusal}; engine=auto takes eager")
    threads = choose_threads(config, agent, fused=not refusal)
    engine = eager(refusal or "") if refusal or not recipe else fused_cpu(recipe, agent, threads.number)
    return engine._replace(threads=threads)


def choose_on_gpu(config: Config, agent: Agent) -> Engine:
    """Choose between fused_gpu, graphed (CUDA graphs) and eager; the CPU has too little work for a second thread."""
    recipe = RECIPES.get(type(agent))
    name: str = config.engine
    refusals: dict[str, str | None] = {}
    if name != "eager":
        refusals = {"fused_gpu": why_not_fused(config, agent, recipe), "graphed": why_not_graphed(config, agent)}
    fastest = next((engine for engine, refusal in refusals.items() if refusal is None), "eager")
    if refusal := refusals.get(name):
        raise UserError(f"engine: {name} does not support this config: {refusal}; engine=auto takes {fastest}")
    if name == "auto":
        name = fastest
    if name == "fused_gpu" and recipe:
        engine = fused_gpu(recipe, agent)
    elif name == "graphed":
        engine = graphed(agent)
        if config.engine == "auto":
            engine = engine._replace(reason=f"fused_gpu: {refusals['fused_gpu']}")
    else:
        engine = eager(refusals.get("graphed") or "as configured")
    reason = "auto: the GPU does the work" if config.threads == "auto" else ""
    return engine._replace(threads=Threads(config.torch_threads, reason))


def choose_threads(config: Config, agent: Agent, fused: bool) -> Threads:
    """Return the configured threads; for auto as many as work and cores allow, 1 if results depend on the number."""
    if config.threads != "auto":
        return Threads(config.threads)
    if not fused:
        return Threads(1, "auto: results of eager depend on the number of threads")
    limits = {
        "only one core is available": cores(),
        "other programs use the cores": idle(),
        "the minibatches are too small to split": most_parts(config),
        "the iterations are too short to split": int(multiply_adds(config, agent) // PRODUCTS_PER_THREAD),
    }
    reason, number = min(limits.items(), key=lambda limit: limit[1])
    return Threads(number, "auto: switches to 1 if that is faster") if number > 1 else Threads(1, f"auto: {reason}")


def most_parts(config: Config) -> int:
    """Return into how many parts fused_cpu can split its work at most."""
    if isinstance(config, RolloutConfig):
        return min(most_parts_of(config), config.n_envs)
    rows = config.batch_size if isinstance(config, ReplayConfig) else 0
    return max(2, min(MOST_PARTS, rows // ROWS_PER_PART))


def multiply_adds(config: Config, agent: Agent) -> float:
    """Return the multiply-adds of one forward pass over all rows of an iteration's updates: rows * weights."""
    weights = sum(parameter.numel() for parameter in agent.parameters() if parameter.requires_grad)
    rows = 0.0  # of all updates of an iteration together
    if isinstance(config, RolloutConfig):
        rows = config.n_epochs * config.rollout_size
    elif isinstance(config, WorldModelConfig):
        rows = float(updates_per_step(config)) * config.train_freq * config.n_envs
        rows *= config.batch_size * config.batch_length
    elif isinstance(config, ReplayConfig):
        rows = float(updates_per_step(config)) * config.train_freq * config.n_envs * config.batch_size
    return rows * weights


def build_agent(config: Config, envs: VecEnv, rank: int = 0) -> Agent:
    """Return the agent of a config with the engine that the config asks for.

    Raises UserError if that engine does not support the config.
    """
    assert config.shards == 1, "local_shards.py builds the agents of shards"
    agent = make_agent(config, envs, rank)
    agent.engine = choose_engine(config, agent)
    return agent
