"""Which class an algorithm's name stands for, and which engine runs it."""

from inspect import get_annotations
from typing import Any, NamedTuple

from agents.base import Agent
from agents.dqn import DQN
from agents.engines.eager import Eager, Engine
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

for _name, _agent in ALGORITHMS.items():  # its keys are those of the class its `config` is declared to be
    register_algorithm(_name, get_annotations(_agent)["config"])


class Choice(NamedTuple):
    """An engine and why it was taken."""

    engine: Engine
    reason: str


def choose_engine(config: Config) -> Choice:
    """`auto` takes the best engine that knows everything the config asks for; eager is the only one so far."""
    if config.device not in ("auto", "cpu"):
        raise UserError(f"device: {config.device} has no engine yet; auto and cpu do")
    return Choice(Eager(), "the only engine so far" if config.engine == "auto" else "as configured")


def build_agent(config: Config, envs: VecEnv, rank: int = 0) -> Agent:
    """The agent of a config, on these worlds, with its engine."""
    agent: Agent = ALGORITHMS[config.algo_id](config, envs, rank)
    agent.engine = choose_engine(config).engine
    return agent
