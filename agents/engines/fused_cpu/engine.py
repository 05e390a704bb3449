"""Builds the sockets of `engine: fused_cpu`: compiled CPU kernels that play, learn, or both, for an ordinary agent.

The agent, its random draws and its memory stay the same. The recipe of each algorithm is in ../plan; frame.py and
bind.py say how kernels find their data. A `why_not_...` function returns the reason for a refusal, None where there is
none.
"""

from typing import Any

import torch
from gymnasium import spaces

from stride.agents.engines.fused_cpu.bind import Binding, ReplayBound, RolloutBound
from stride.agents.engines.fused_cpu.episodes import FusedEpisodes
from stride.agents.engines.fused_cpu.learn import ReplayLearn, RolloutLearn
from stride.agents.engines.fused_cpu.model_learn import ModelLearn
from stride.agents.engines.fused_cpu.play import AttachedPlay, FusedPlay
from stride.agents.engines.fused_cpu.workers import usable_threads
from stride.agents.engines.plan.model import ModelRecipe
from stride.agents.engines.plan.recipe import Recipe, RolloutRecipe
from stride.agents.experience.nouns import leaves
from stride.agents.sockets import EagerEpisodes, EagerPlay, Engine, Learner
from stride.config.schema import Config, PPOConfig
from stride.envs_fast.cuda_env import CudaEnv
from stride.envs_fast.numba_env import NumbaEnv
from stride.envs_fast.vec_env import CPU
from stride.utils.kernel_folder import FEATURES


def why_not_here(device: torch.device = CPU) -> str | None:
    """Return why no kernel can run here: kernels need the CPU's memory, and were tested with AVX-512 and AVX2 only."""
    if device.type != "cpu":
        return f"it learns on the CPU, but the environments are on {device}"
    return None if {"avx2", "fma"} <= FEATURES else "its kernels need a processor with AVX2 and FMA"


def why_not_known(config: Config) -> str | None:
    """Return which setting recipes support but these kernels do not."""
    if config.precision != 32:
        return f"it does not support precision: {config.precision}"
    return "it does not support lag" if isinstance(config, PPOConfig) and config.lag else None


def why_not_played(recipe: type[Recipe], learner: Learner) -> str | None:
    """Return why kernels cannot play these environments, so that the collector plays them step by step."""
    envs = learner.collector.envs
    if isinstance(envs, CudaEnv):
        return "its kernels cannot play environments on a GPU"
    if not isinstance(envs, NumbaEnv):
        return "Gymnasium's environments step one by one"
    return recipe.why_not_played(learner.policy, envs.observation_space)


def fused_cpu(recipe: type[Recipe] | type[ModelRecipe], learner: Learner, threads: int) -> Engine:
    """Return the sockets for an agent of this recipe.

    Where kernels cannot play the environments, the collector plays and only learning is compiled.
    """
    usable = usable_threads(threads)
    if issubclass(recipe, ModelRecipe):
        return Engine("fused_cpu", "updates only: the model acts one step at a time", EagerPlay(), ModelLearn(usable))
    make: Any = recipe  # Any: each recipe takes an agent of its own class, which the types here do not say
    refusal = why_not_played(recipe, learner)
    reason = f"updates only: {refusal}" if refusal else "supports everything this config uses"
    dicts = isinstance(learner.collector.envs.observation_space, spaces.Dict)
    if issubclass(recipe, RolloutRecipe):
        rollouts = Binding(lambda agent: RolloutBound(make(agent), usable))
        play = EagerPlay() if refusal else FusedPlay(rollouts)
        remembers = bool(leaves(learner.collector.carry))  # the kernel that plays episodes has no recurrent state
        episodes = EagerEpisodes() if dicts or remembers else FusedEpisodes(rollouts)
        return Engine("fused_cpu", reason, play, RolloutLearn(rollouts), episodes)
    replays = Binding(lambda agent: ReplayBound(make(agent), usable))
    replay_play = AttachedPlay(replays) if refusal else FusedPlay(replays)
    replay_episodes = EagerEpisodes() if dicts else FusedEpisodes(replays)
    return Engine("fused_cpu", reason, replay_play, ReplayLearn(replays), replay_episodes)
