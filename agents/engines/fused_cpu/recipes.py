"""What the kernels know: which configs, policies and worlds, and what each algorithm asks of them and is told back."""

import math
from typing import Any, NamedTuple

import torch
from gymnasium import spaces
from torch import nn

from agents.engines.fused_cpu.frame import Stat
from agents.engines.fused_cpu.layout import PARTS
from agents.networks.actor_critic import ActorCritic
from agents.networks.encoders import FlatEncoder, Float, OneHot, RunningNorm, StaticNorm
from agents.networks.heads import Categorical, Gaussian
from agents.networks.q_network import QPolicy
from agents.networks.squashed import SquashedPolicy
from config.schema import Config, DQNConfig, PPOConfig, REINFORCEConfig, ReplayConfig, RolloutConfig
from envs_fast.numba_env import NumbaEnv
from envs_fast.vec_env import VecEnv
from envs_gym.spaces import MASK
from utils.processor import FEATURES

NORMALIZE = {"off": 0, "batch": 1, "rollout": 2}
KINDS = (torch.int8, torch.uint8, torch.bool)  # of a mask


class Recipe(NamedTuple):
    """An algorithm as the kernels see it."""

    reinforce: bool
    whole_episode: bool
    normalize: int


def recipe_of(config: Config) -> Recipe:
    """The switches an algorithm's config stands for."""
    if isinstance(config, REINFORCEConfig):
        return Recipe(True, config.returns_type == "mc:episode", NORMALIZE[config.normalize_returns])
    assert isinstance(config, PPOConfig)
    return Recipe(False, False, NORMALIZE[config.normalize_advantages])


def told(config: Config, policy: ActorCritic) -> dict[str, Stat]:
    """Which statistic each of the agent's own metrics is."""
    names = {
        "train/loss/policy": Stat.POLICY_LOSS,
        "train/loss/total": Stat.TOTAL_LOSS,
        "train/policy/entropy": Stat.ENTROPY,
        "train/grad_norm/total": Stat.NORM_TOTAL,
    }
    names |= {f"train/grad_norm/{part}": Stat(Stat.NORM_ACTOR + PARTS.index(part)) for part in policy.parts}
    if policy.critic is not None:
        names |= {"train/loss/value": Stat.VALUE_LOSS, "train/value/explained_variance": Stat.EXPLAINED}
    if isinstance(config, REINFORCEConfig):
        return names | {"train/return/mean": Stat.RETURN_MEAN}
    return names | {
        "train/policy/approx_kl": Stat.KL,
        "train/policy/clip_fraction": Stat.CLIPPED,
        "train/policy/kl_stopped": Stat.STOPPED,
        "train/advantage/mean": Stat.WEIGHT_MEAN,
        "train/advantage/std": Stat.WEIGHT_STD,
    }


def why_not_here() -> str | None:
    """Why this processor runs none of the kernels: they were tried with AVX-512 and with AVX2 only."""
    return None if {"avx2", "fma"} <= FEATURES else "its kernels need a processor with AVX2 and FMA"


def why_not(config: Config, policy: nn.Module, obs: Any) -> str | None:
    """What the kernels cannot learn from here, in the config's own words; None where they can."""
    if refusal := why_not_here():
        return refusal
    if config.optimizer not in ("adam", "adamw"):
        return f"it does not know optimizer: {config.optimizer}"
    if config.nan_guard != "stop":
        return f"it does not know nan_guard: {config.nan_guard}"
    if not config.hidden_dims:
        return "hidden_dims is empty"
    if isinstance(config, ReplayConfig):
        return _why_not_replayed(config, policy, obs)
    if type(config) not in (PPOConfig, REINFORCEConfig):
        return f"it does not know {config.algo_id}"
    if type(policy) is not ActorCritic:
        return f"it does not know policy: {config.policy}"
    if isinstance(config, RolloutConfig) and config.accumulate > 1:
        return "it does not know accumulate"
    if not isinstance(policy.head, Categorical | Gaussian):
        return "an action is more than one choice"
    return _why_not_read(policy.encoder, obs)


def _why_not_replayed(config: ReplayConfig, policy: nn.Module, obs: Any) -> str | None:
    if isinstance(config, DQNConfig):
        assert isinstance(policy, QPolicy)
        if config.prioritised:
            return "it does not know prioritised"
        if config.quantiles:
            return "it does not know quantiles"
        if policy.masked:
            return "it does not know action masks"
        return _why_not_read(policy.network.encoder, obs)
    assert isinstance(policy, SquashedPolicy)
    return _why_not_read(policy.encoder, obs)


def _why_not_read(encoder: FlatEncoder, obs: Any) -> str | None:
    if len(encoder.leaf) > 1:
        return "the observation has more than one part"
    leaf = encoder.leaf[0]
    if not isinstance(leaf, Float | RunningNorm | StaticNorm | OneHot):
        return f"it cannot read {type(leaf).__name__} observations"
    if (kind := main_leaf(obs).dtype) != (torch.int64 if isinstance(leaf, OneHot) else torch.float32):
        return f"it cannot read {kind} observations"
    return None


def why_not_played(policy: nn.Module, envs: VecEnv) -> str | None:
    """Why it must be the collector that plays, a step at a time; None where the kernels can."""
    if not isinstance(envs, NumbaEnv):
        return "Gymnasium's worlds step one by one"
    if isinstance(envs.observation_space, spaces.Dict):
        return "the observation is a dict"
    if isinstance(policy, SquashedPolicy) and policy.correlation:
        return "it does not know noise_correlation"
    return None


def main_leaf(obs: Any) -> torch.Tensor:
    """The observation without its mask."""
    if isinstance(obs, dict):
        (leaf,) = (value for key, value in obs.items() if key != MASK)
        return leaf
    return obs


def normalisation(leaf: nn.Module, size: int) -> tuple[torch.Tensor, torch.Tensor, float]:
    """(x - centre) * scale within +-bound: what the encoder does to a number."""
    if isinstance(leaf, RunningNorm):
        return leaf.mean, (leaf.var + 1e-8).rsqrt(), 10.0
    if isinstance(leaf, StaticNorm):
        return leaf.centre, leaf.scale, math.inf
    return torch.zeros(size), torch.ones(size), math.inf
