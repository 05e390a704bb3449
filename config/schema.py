"""Every key a config may have, its type and default: config/algorithms holds the classes, this is their table.

Ranges and rules between fields live in checks.py, reading files and overrides in loader.py."""

from stride.config.algorithms.every import CHANGES as CHANGES
from stride.config.algorithms.every import SCHEMA_VERSION as SCHEMA_VERSION
from stride.config.algorithms.every import Config as Config
from stride.config.algorithms.models import DreamerConfig as DreamerConfig
from stride.config.algorithms.models import PlaNetConfig as PlaNetConfig
from stride.config.algorithms.models import WorldModelConfig as WorldModelConfig
from stride.config.algorithms.off_policy import BoundedConfig as BoundedConfig
from stride.config.algorithms.off_policy import DQNConfig as DQNConfig
from stride.config.algorithms.off_policy import QLearningConfig as QLearningConfig
from stride.config.algorithms.off_policy import ReplayConfig as ReplayConfig
from stride.config.algorithms.off_policy import SACConfig as SACConfig
from stride.config.algorithms.off_policy import TD3Config as TD3Config
from stride.config.algorithms.off_policy import TQCConfig as TQCConfig
from stride.config.algorithms.off_policy import TransitionConfig as TransitionConfig
from stride.config.algorithms.on_policy import PolicyGradientConfig as PolicyGradientConfig
from stride.config.algorithms.on_policy import PPOConfig as PPOConfig
from stride.config.algorithms.on_policy import PQNConfig as PQNConfig
from stride.config.algorithms.on_policy import REINFORCEConfig as REINFORCEConfig
from stride.config.algorithms.on_policy import RolloutConfig as RolloutConfig

ALGORITHMS: dict[str, type[Config]] = {
    "ppo": PPOConfig,
    "reinforce": REINFORCEConfig,
    "dqn": DQNConfig,
    "sac": SACConfig,
    "td3": TD3Config,
    "tqc": TQCConfig,
    "q_learning": QLearningConfig,
    "pqn": PQNConfig,
    "dreamer": DreamerConfig,
    "planet": PlaNetConfig,
}


def explores(config: Config) -> bool:
    """Whether it asks for intrinsic rewards."""
    return isinstance(config, PPOConfig | PQNConfig) and config.exploration is not None


def register_algorithm(algo_id: str, config: type[Config]) -> None:
    """Makes the keys of an algorithm known; agents/algorithms.py says it of each of its rows.

    A class written above is known without it, also to programs that never load torch."""
    if ALGORITHMS.setdefault(algo_id, config) is not config:
        raise ValueError(f"{algo_id} has the keys of {ALGORITHMS[algo_id].__name__}, not of {config.__name__}")
