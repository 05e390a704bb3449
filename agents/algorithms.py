"""The table of algorithms: the class for each `algo_id`, and `make_agent`, which builds an agent in plain torch.

agents/engines/choice.py calls it, and adds a faster engine that plays and learns for the agent.
"""

from collections.abc import Callable
from inspect import get_annotations

from stride.agents.base import Agent
from stride.agents.dqn import DQN
from stride.agents.dreamer import Dreamer
from stride.agents.networks.layers import one_thread
from stride.agents.networks.precision import compute_in
from stride.agents.planet import PlaNet
from stride.agents.ppo import PPO
from stride.agents.pqn import PQN
from stride.agents.q_learning import QLearning
from stride.agents.reinforce import REINFORCE
from stride.agents.sac import SAC
from stride.agents.td3 import TD3
from stride.agents.tqc import TQC
from stride.config.plugins import find
from stride.config.schema import Config, register_algorithm
from stride.envs_fast.vec_env import VecEnv
from stride.utils.user_error import UserError

ALGORITHMS: dict[str, type[Agent]] = {
    "ppo": PPO,
    "reinforce": REINFORCE,
    "dqn": DQN,
    "sac": SAC,
    "td3": TD3,
    "tqc": TQC,
    "q_learning": QLearning,
    "pqn": PQN,
    "dreamer": Dreamer,
    "planet": PlaNet,
}
# the annotation `config: PPOConfig` of an agent class says which dataclass has the keys of the algorithm
for _name, _agent in ALGORITHMS.items():
    register_algorithm(_name, get_annotations(_agent)["config"])


def find_agent(algo_id: str) -> type[Agent]:
    """Return the agent class for an `algo_id`: a row of ALGORITHMS, or a user's own class (`module:Name` or a plugin).

    UserError if there is no such class, or it is not a subclass of Agent.
    """
    if algo_id in ALGORITHMS:
        return ALGORITHMS[algo_id]
    agent_class = find("algo_id", "algorithms", algo_id)
    if not isinstance(agent_class, type) or not issubclass(agent_class, Agent):
        raise UserError(f"algo_id: {algo_id} is not an agent: it must be a subclass of stride.agents.base.Agent")
    return agent_class


def make_agent(config: Config, envs: VecEnv, rank: int = 0) -> Agent:
    """Build the agent of a config in plain torch, whatever engine is configured. Resets the environments.

    The first weights depend on config.seed only, not on the number of threads. `rank` is the number of the shard.
    UserError if the memory would not fit, or if the policy does not fit the environment.
    """
    with one_thread():
        make: Callable[..., Agent] = find_agent(config.algo_id)
        agent = make(config, envs, rank)
    compute_in(config.precision, agent)
    return agent
