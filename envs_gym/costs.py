"""The time of an env step and of an update on this machine, in about a second, for `ENV:auto`."""

from time import perf_counter

import torch
from torch import nn

from stride.config.general import Costs
from stride.config.schema import Config
from stride.envs_gym.make import make_envs
from stride.utils.devices import training_device

SECONDS = 1.0  # of steps
MOST_STEPS = 2000
WIDTH = BATCH = 256
SHARE = 3 * 2 * WIDTH * BATCH * (WIDTH + WIDTH) / 0.59e9  # arithmetic of the two layers below, of an update's
ROUNDS = 20


def measured_costs(config: Config) -> Costs:
    """Of one environment of the config with random actions, and of SAC's arithmetic on its device."""
    torch.set_num_threads(config.torch_threads)
    return Costs(step_seconds(config), update_seconds(config))


def step_seconds(config: Config) -> float:
    """Mean seconds of a step with an action in [-1, 1], resets included; the first step, which may compile, is not."""
    envs = make_envs(config, 1)
    try:
        envs.reset(config.seed)
        generator = torch.Generator().manual_seed(config.seed)
        shape, steps = (1, *(envs.action_space.shape or ())), 0
        envs.step(torch.zeros(shape))
        begun = perf_counter()
        while steps < MOST_STEPS and (steps == 0 or perf_counter() - begun < SECONDS):
            envs.step(2 * torch.rand(shape, generator=generator) - 1)
            steps += 1
        return (perf_counter() - begun) / steps
    finally:
        envs.close()


def update_seconds(config: Config) -> float:
    """Seconds of as much arithmetic as an update of SAC with 256 x 2 units and a batch of 256 has (0.59 GFLOP)."""
    device = training_device(config.device)
    layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)).to(device)
    x = torch.ones(BATCH, WIDTH, device=device, requires_grad=True)
    fastest = float("inf")
    for _ in range(ROUNDS):  # the fastest: whatever else runs on the machine only adds
        begun = perf_counter()
        layers(x).sum().backward()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        fastest = min(fastest, perf_counter() - begun)
    return fastest / SHARE
