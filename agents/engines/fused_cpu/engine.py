"""`engine: fused_cpu`: the same agent, draws and memory, with play, learn or both in compiled kernels.

An algorithm's recipe is in ../plan; frame.py and bind.py say how its kernels find their data.
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
    """Why none of the kernels can run: they know memory of the CPU only, and were tried with AVX-512 and AVX2 only."""
    if device.type != "cpu":
        return f"it learns on the CPU, but the environments are on {device}"
    return None if {"avx2", "fma"} <= FEATURES else "its kernels need a processor with AVX2 and FMA"


def why_not_known(config: Config) -> str | None:
    """What a recipe knows and these kernels do not."""
    if config.precision != 32:
        return f"it does not support precision: {config.precision}"
    return "it does not support lag" if isinstance(config, PPOConfig) and config.lag else None


def why_not_played(recipe: type[Recipe], learner: Learner) -> str | None:
    """Why it must be the collector that plays, a step at a time; None where the kernels can."""
    envs = learner.collector.envs
    if isinstance(envs, CudaEnv):
        return "its kernels cannot play environments on a GPU"
    if not isinstance(envs, NumbaEnv):
        return "Gymnasium's environments step one by one"
    return recipe.why_not_played(learner.policy, envs.observation_space)


def fused_cpu(recipe: type[Recipe] | type[ModelRecipe], learner: Learner, threads: int) -> Engine:
    """The sockets for an agent of this recipe; that of learning alone where the kernels cannot play its worlds."""
    usable = usable_threads(threads)
    if issubclass(recipe, ModelRecipe):
        return Engine("fused_cpu", "updates only: the model acts one step at a time", EagerPlay(), ModelLearn(usable))
    make: Any = recipe  # its argument is an agent of its own class
    refusal = why_not_played(recipe, learner)
    reason = f"updates only: {refusal}" if refusal else "supports everything this config uses"
    dicts = isinstance(learner.collector.envs.observation_space, spaces.Dict)
    if issubclass(recipe, RolloutRecipe):
        rollouts = Binding(lambda agent: RolloutBound(make(agent), usable))
        play = EagerPlay() if refusal else FusedPlay(rollouts)
        remembers = bool(leaves(learner.collector.carry))  # the kernel of episodes knows no carry
        episodes = EagerEpisodes() if dicts or remembers else FusedEpisodes(rollouts)
        return Engine("fused_cpu", reason, play, RolloutLearn(rollouts), episodes)
    replays = Binding(lambda agent: ReplayBound(make(agent), usable))
    replay_play = AttachedPlay(replays) if refusal else FusedPlay(replays)
    replay_episodes = EagerEpisodes() if dicts else FusedEpisodes(replays)
    return Engine("fused_cpu", reason, replay_play, ReplayLearn(replays), replay_episodes)
