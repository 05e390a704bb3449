"""Runs that were never trained: weights and statistics are drawn, so that every part of a policy tells."""

from dataclasses import replace
from pathlib import Path

import torch

from stride.agents.engines.choice import build_agent
from stride.agents.trained.loading import LoadedRun, build_player, to_play
from stride.config.loader import load_config
from stride.envs_gym.make import make_envs
from stride.runstore.run_dir import RunDir


def untrained(config_id, *overrides, spread=0.3, **changes):
    """ENV:VARIANT with overrides, or with other fields of its config, as load_run would give it."""
    env_id, variant = config_id.rsplit(":", 1)
    config = load_config(env_id, variant, ["max_timesteps=1e6", "engine=eager", *overrides])
    config = to_play(replace(config, **changes))
    envs = make_envs(config, config.n_envs)
    weights = drawn(build_agent(config, envs).policy.state_dict(), spread)
    envs.close()
    player = build_player(config, weights, "drawn")
    progress = {"env_steps": 0, "iterations": 0, "updates": 0}
    return LoadedRun(RunDir(Path("drawn")), config, player, "epoch=00", progress, {})


def drawn(weights, spread):
    """Weights with noise; variances between a half and two."""
    generator = torch.Generator().manual_seed(1)

    def noise(tensor):
        return torch.rand(tensor.shape, generator=generator)

    moved = {}
    for name, tensor in weights.items():
        if name.endswith(".var"):
            moved[name] = 0.5 + 1.5 * noise(tensor)
        else:
            moved[name] = tensor + spread * (2 * noise(tensor) - 1) if tensor.dtype == torch.float32 else tensor
    return moved
