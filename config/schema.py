"""The table of algorithms and their config classes. A class in config/algorithms/ gives each key's type and default.

Other modules import the classes from here. Ranges and rules between keys are in checks.py, reading is in loader.py."""

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
    """Return whether a config asks for intrinsic rewards."""
    return isinstance(config, PPOConfig | PQNConfig) and config.exploration is not None


def register_algorithm(algo_id: str, config: type[Config]) -> None:
    """Add an algorithm to the table; ValueError if it is there with another config class.

    agents/algorithms.py calls it for each of its rows. The shipped algorithms are already in the table, because code
    that never imports torch needs their keys, too."""
    if ALGORITHMS.setdefault(algo_id, config) is not config:
        raise ValueError(f"{algo_id} has the keys of {ALGORITHMS[algo_id].__name__}, not of {config.__name__}")
