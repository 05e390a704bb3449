"""Times purejaxql's PQN and PureJaxRL's PPO on MinAtar Breakout, for jax_minatar.py; their code is on PYTHONPATH."""

import statistics
import sys
import time
from importlib import import_module
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import distrax  # type: ignore[import-not-found]
import flax.linen as nn  # type: ignore[import-not-found]
import jax  # type: ignore[import-not-found]

GAME = {"ENV_NAME": "Breakout-MinAtar", "ENV_KWARGS": {}}
PQN = {
    "NUM_ENVS": 128, "NUM_STEPS": 32, "EPS_START": 1.0, "EPS_FINISH": 0.05, "EPS_DECAY": 0.1, "NUM_MINIBATCHES": 32,
    "NUM_EPOCHS": 2, "NORM_TYPE": "layer_norm", "LR": 5e-4, "MAX_GRAD_NORM": 10, "LR_LINEAR_DECAY": True,
    "GAMMA": 0.99, "LAMBDA": 0.65, "TEST_DURING_TRAINING": False, "WANDB_MODE": "disabled", "ALG_NAME": "pqn",
}  # fmt: skip
PPO = {
    "NUM_ENVS": 64, "NUM_STEPS": 128, "UPDATE_EPOCHS": 4, "NUM_MINIBATCHES": 8, "LR": 1e-3, "ANNEAL_LR": True,
    "GAMMA": 0.99, "GAE_LAMBDA": 0.95, "CLIP_EPS": 0.2, "ENT_COEF": 0.01, "VF_COEF": 0.25, "MAX_GRAD_NORM": 0.5,
    "ACTIVATION": "relu", "DEBUG": False,
}  # fmt: skip
STUBS = (  # modules that their code imports but a timing does not need
    "wandb",
    "hydra",
    "omegaconf",
    "brax",
    "brax.envs",
    "brax.envs.wrappers",
    "brax.envs.wrappers.training",
    "navix",
)


def env_steps_per_second(learner: str, iterations: int, turns: int) -> float:
    """Return the median rate of `turns` trainings by "pqn" or "ppo", each of so many iterations."""
    for name in STUBS:
        sys.modules[name] = MagicMock()
    if learner == "pqn":
        return rate(import_module("purejaxql.pqn_minatar"), {**GAME, **PQN}, iterations, turns)
    return rate(ppo(), {**GAME, **PPO}, iterations, turns)


def rate(module: ModuleType, config: dict[str, Any], iterations: int, turns: int) -> float:
    jax.tree_map = jax.tree_util.tree_map  # the name that gymnax 0.0.8 calls
    steps = config["NUM_ENVS"] * config["NUM_STEPS"] * iterations
    budget = {"TOTAL_TIMESTEPS": steps, "TOTAL_TIMESTEPS_DECAY": steps}
    train, seconds = jax.jit(module.make_train({**config, **budget})), []
    for turn in range(turns + 1):  # the first one compiles
        began = time.perf_counter()
        jax.block_until_ready(train(jax.random.PRNGKey(turn)))
        seconds.append(time.perf_counter() - began)
    return steps / statistics.median(seconds[1:])


class ActorCritic(nn.Module):
    """Stride's network for MinAtar: one convolution and one dense layer, shared by actor and critic."""

    action_dim: int
    activation: str

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.relu(nn.Conv(16, (3, 3), padding="VALID")(x))
        x = nn.relu(nn.Dense(128)(x.reshape((*x.shape[:-3], -1))))
        return distrax.Categorical(nn.Dense(self.action_dim)(x)), nn.Dense(1)(x).squeeze(-1)


def ppo() -> ModuleType:
    """Return PureJaxRL's PPO with this network, and without the wrapper that flattens images."""
    module: Any = import_module("ppo")
    module.ActorCritic, module.FlattenObservationWrapper = ActorCritic, lambda env: env
    return module
