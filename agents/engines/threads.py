"""`threads: auto`: how many threads train, where a config leaves it to us and results do not depend on it.

A rule of sizes, so that it costs nothing and needs no memory; within it the engine measures, iteration by iteration,
whether one thread or all of them are faster just now (fused_cpu/workers.py).
"""

from stride.agents.base import Agent
from stride.agents.engines.fused_cpu.bind import MOST_PARTS, ROWS_PER_PART
from stride.agents.experience.ratio import per_env_step
from stride.agents.model_learning import updates_per_step
from stride.agents.sockets import Threads
from stride.config.schema import Config, ReplayConfig, RolloutConfig, WorldModelConfig
from stride.utils.resources import cores, idle

# multiply-adds of one pass over what an iteration learns from, that make a thread worth waking: half a millisecond of
# updates. Measured on two cores, wall time by two threads: 9 million (REINFORCE on CartPole) 1.1x, 47 (PPO on CartPole)
# 0.8x, 51 (SAC, 256 wide) 0.7x, 550 (DQN, 128 updates) 0.6x
PER_THREAD = 15e6


def choose_threads(config: Config, agent: Agent, fused: bool) -> Threads:
    """As configured; else as many as there is work and room for, one where results would depend on their number."""
    if config.threads != "auto":
        return Threads(config.threads)
    if not fused:
        return Threads(1, "auto: what eager sums up depends on their number")
    limits = {
        "there is one core for it": cores(),
        "other programs keep the cores busy": idle(),
        "its minibatches are too small to be shared": parts(config),
        "its iterations are too short to be shared": int(work(config, agent) // PER_THREAD),
    }
    why, most = min(limits.items(), key=lambda limit: limit[1])
    return Threads(most, "auto: or 1, what is faster as it trains") if most > 1 else Threads(1, f"auto: {why}")


def parts(config: Config) -> int:
    """Into how many parts the engine cuts its work at most."""
    if isinstance(config, RolloutConfig):
        return min(MOST_PARTS, config.minibatch_size // ROWS_PER_PART, config.n_envs)
    rows = config.batch_size if isinstance(config, ReplayConfig) else 0
    return max(2, min(MOST_PARTS, rows // ROWS_PER_PART))


def work(config: Config, agent: Agent) -> float:
    """Multiply-adds of one pass over all rows of an iteration's updates."""
    weights = sum(parameter.numel() for parameter in agent.parameters() if parameter.requires_grad)
    rows = 0.0
    if isinstance(config, RolloutConfig):
        rows = config.n_epochs * config.rollout_size
    elif isinstance(config, WorldModelConfig):
        rows = float(updates_per_step(config)) * config.train_freq * config.n_envs
        rows *= config.batch_size * config.batch_length
    elif isinstance(config, ReplayConfig):
        pace = per_env_step(config.train_freq, config.gradient_steps, config.n_envs, config.updates_per_step)
        rows = float(pace) * config.train_freq * config.n_envs * config.batch_size
    return rows * weights
