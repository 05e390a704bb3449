"""Measures, in about a second, how long an env step and an update take on this machine; `ENV:auto` uses the result."""

from time import perf_counter

import torch
from torch import nn

from stride.config.general import Costs
from stride.config.schema import Config
from stride.envs_gym.make import make_envs
from stride.utils.devices import training_device

STEP_SECONDS = 1.0  # time limit for the steps that are measured
MAX_STEPS = 2000
WIDTH = BATCH = 256
ROUND_FRACTION = 3 * 2 * WIDTH * BATCH * (WIDTH + WIDTH) / 0.59e9  # arithmetic of a round below / of SAC's update
ROUNDS = 20


def measured_costs(config: Config) -> Costs:
    """Return the seconds of a step of one environment of the config, and of an update's arithmetic on its device."""
    torch.set_num_threads(config.torch_threads)
    return Costs(step_seconds(config), update_seconds(config))


def step_seconds(config: Config) -> float:
    """Return the mean seconds of a step with random actions in [-1, 1].

    Resets are included; the first step is not, because it may compile.
    """
    envs = make_envs(config, 1)
    try:
        envs.reset(config.seed)
        generator = torch.Generator().manual_seed(config.seed)
        shape, steps = (1, *(envs.action_space.shape or ())), 0
        envs.step(torch.zeros(shape))
        begun = perf_counter()
        while steps < MAX_STEPS and (steps == 0 or perf_counter() - begun < STEP_SECONDS):
            envs.step(2 * torch.rand(shape, generator=generator) - 1)
            steps += 1
        return (perf_counter() - begun) / steps
    finally:
        envs.close()


def update_seconds(config: Config) -> float:
    """Return the seconds of 0.59 GFLOP, the arithmetic of an update of SAC with 2 x 256 units and a batch of 256."""
    device = training_device(config.device)
    layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)).to(device)
    x = torch.ones(BATCH, WIDTH, device=device, requires_grad=True)
    fastest = float("inf")
    for _ in range(ROUNDS):  # the fastest round counts: other programs on the machine only add time
        begun = perf_counter()
        layers(x).sum().backward()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        fastest = min(fastest, perf_counter() - begun)
    return fastest / ROUND_FRACTION
