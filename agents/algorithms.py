"""Which class an algorithm's name stands for, and which engine runs it."""

from inspect import get_annotations
from typing import Any, NamedTuple

from agents.base import Agent
from agents.dqn import DQN
from agents.engines.eager import Eager, Engine
from agents.engines.fused_cpu.engine import FusedCPU
from agents.engines.fused_cpu.recipes import why_not, why_not_here, why_not_played
from agents.engines.fused_cpu.replay_engine import FusedReplay
from agents.networks.threads import one_thread
from agents.ppo import PPO
from agents.pqn import PQN
from agents.q_learning import QLearning
from agents.reinforce import REINFORCE
from agents.sac import SAC
from config.schema import Config, register_algorithm
from envs_fast.vec_env import VecEnv
from utils.user_error import UserError

ALGORITHMS: dict[str, Any] = {
    "ppo": PPO,
    "reinforce": REINFORCE,
    "dqn": DQN,
    "sac": SAC,
    "q_learning": QLearning,
    "pqn": PQN,
}
# whose iteration fused kernels know: these classes, not what is derived from them
FUSED: dict[type[Agent], Any] = {PPO: FusedCPU, REINFORCE: FusedCPU, DQN: FusedReplay, SAC: FusedReplay}

for _name, _agent in ALGORITHMS.items():  # its keys are those of the class its `config` is declared to be
    register_algorithm(_name, get_annotations(_agent)["config"])


class Choice(NamedTuple):
    """An engine and why it was taken."""

    engine: Engine
    reason: str


def may_be_fused(config: Config) -> bool:
    """Whether the fused engine's kernels are wanted, as far as can be told before there is an agent."""
    wanted = config.engine != "eager" and config.policy == "mlp" and ALGORITHMS[config.algo_id] in FUSED
    return wanted and why_not_here() is None


def choose_engine(config: Config, agent: Agent) -> Choice:
    """`auto` takes the fastest engine that knows everything the config asks for."""
    if config.device not in ("auto", "cpu"):
        raise UserError(f"device: {config.device} has no engine yet; auto and cpu do")
    if config.engine == "eager":
        return Choice(Eager(), "as configured")
    refusal = f"fused_cpu does not know {config.algo_id}"
    if type(agent) in FUSED:
        refusal = why_not(config, agent.policy, agent.collector.obs) or ""
    if refusal and config.engine == "fused_cpu":
        raise UserError(f"engine: fused_cpu cannot run this config: {refusal}; engine: auto takes eager")
    if refusal:
        return Choice(Eager(), refusal)
    alone = why_not_played(agent.policy, agent.collector.envs)
    reason = f"updates only: {alone}" if alone else "knows all the config asks for"
    return Choice(FUSED[type(agent)](config.threads), reason)


def build_agent(config: Config, envs: VecEnv, rank: int = 0) -> Agent:
    """The agent of a config, on these worlds, with its engine."""
    with one_thread():
        agent: Agent = ALGORITHMS[config.algo_id](config, envs, rank)
    choice = choose_engine(config, agent)
    agent.engine, agent.engine_reason = choice
    return agent
