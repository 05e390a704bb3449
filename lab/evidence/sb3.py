"""Trains Stable-Baselines3 with rl-zoo's numbers, to compare with rows of docs/results.md.

    python -m lab.evidence.sb3                          three seeds of every row below; what is recorded is kept
    python -m lab.evidence.sb3 CartPole --seeds 5       of the rows with this in their name

Env steps, seeds and test are those of Stride's row: the score is the mean of 100 greedy episodes with the final
weights. It uses one thread. It needs stable-baselines3, which Stride does not install.
"""

import importlib
import os
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import gymnasium
import torch

import stride.agents.algorithms  # noqa: F401  # makes every algorithm's keys known
from lab.evidence.file import file_stem, named, this_machine
from lab.evidence.rows import row_of
from lab.evidence.runs import Store
from stride.commands.usage import parser_of
from stride.utils import entry
from stride.utils.durable_file import write_json
from stride.utils.provenance import git_hash, processor
from stride.utils.user_error import UserError, nearest

SOURCE = "DLR-RM/rl-baselines3-zoo, hyperparams at 00128b5d46 (PPO, SAC) and 019107eb14 (DQN)"
EPISODES = 100
TEST_SEED = 1_000_000  # added to the training's seed, so that no training has begun an episode with the same seed
DQN_SMALL = {
    "learning_rate": 2.5e-4, "batch_size": 512, "buffer_size": 100_000, "learning_starts": 0, "gamma": 0.99,
    "target_update_interval": 5000, "train_freq": 16, "gradient_steps": 4, "exploration_fraction": 0.06,
    "exploration_final_eps": 0.11,
}  # fmt: skip
# "lin_X": from X linearly to 0; `normalize` and `n_envs` belong to the environments, the others to the algorithm
NUMBERS: dict[str, dict[str, Any]] = {
    "CartPole-v1:ppo": {
        "n_envs": 8, "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20,
        "ent_coef": 0.0, "learning_rate": "lin_0.001", "clip_range": "lin_0.2",
    },
    "Acrobot-v1:ppo": {
        "normalize": True, "n_envs": 16, "n_steps": 256, "gae_lambda": 0.94, "gamma": 0.99, "n_epochs": 4,
        "ent_coef": 0.0,
    },
    "MountainCar-v0:ppo": {
        "normalize": True, "n_envs": 16, "n_steps": 16, "gae_lambda": 0.98, "gamma": 0.99, "n_epochs": 4,
        "ent_coef": 0.0,
    },
    "Pendulum-v1:ppo": {
        "n_envs": 4, "n_steps": 1024, "gae_lambda": 0.95, "gamma": 0.9, "n_epochs": 10, "ent_coef": 0.0,
        "learning_rate": 1e-3, "clip_range": 0.2, "use_sde": True, "sde_sample_freq": 4,
    },
    "LunarLander-v3:ppo": {
        "n_envs": 16, "n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999, "n_epochs": 4,
        "ent_coef": 0.01,
    },
    "CartPole-v1:dqn": DQN_SMALL,
    "Acrobot-v1:dqn": DQN_SMALL,
    "Pendulum-v1:sac": {"learning_rate": 1e-3},
}  # fmt: skip


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("pattern", nargs="?", default="", help="a part of the names")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="how many seeds of the row (default 3)")
    arguments = parser.parse_args(argv)
    names = named(arguments.pattern, [*NUMBERS])
    if not names:
        raise UserError(f"no row has {arguments.pattern!r} in its name{nearest(arguments.pattern, NUMBERS)}")
    store = Store()
    for name in names:
        for seed in store.seeds(row_of(name))[: arguments.seeds]:
            path = store.runs / file_stem(name) / f"sb3-seed-{seed}.json"
            if path.is_file():
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            record = trained(name, seed)
            write_json(path, record)
            print(f"  {name} seed {seed}: {record['final']['mean']:.4g} in {record['seconds']:.0f} s", flush=True)
    return 0


def trained(name: str, seed: int) -> dict[str, Any]:
    """Train one seed of a row by Stable-Baselines3, test it, and return its record."""
    torch.set_num_threads(1)
    library = importlib.import_module("stable_baselines3")
    began, budget = time.perf_counter(), row_of(name).config().max_timesteps
    model, test_envs = made(library, name, seed)
    model.learn(budget)
    seconds = time.perf_counter() - began
    evaluate = importlib.import_module("stable_baselines3.common.evaluation").evaluate_policy
    returns, _ = evaluate(model, test_envs, n_eval_episodes=EPISODES, return_episode_rewards=True, warn=False)
    return {
        "variant": name, "seed": seed, "budget": budget, "env_steps": model.num_timesteps, "seconds": seconds,
        "final": {"mean": sum(returns) / len(returns), "min": min(returns), "episodes": len(returns)},
        "numbers": SOURCE, "git_hash": git_hash(), "machine": this_machine(), "processor": processor(),
        "versions": {package: version(package) for package in ("stable-baselines3", "torch", "gymnasium", "numpy")},
    }  # fmt: skip


def made(library: Any, name: str, seed: int) -> tuple[Any, Any]:
    """Return the algorithm with its environments, and the environments of the test.

    With `normalize`, both share the running statistics of observations.
    """
    env_id, _, algorithm = name.rpartition(":")
    numbers: dict[str, Any] = {key: linear(value) for key, value in NUMBERS[name].items()}
    n_envs, normalize = numbers.pop("n_envs", 1), numbers.pop("normalize", False)
    vec = importlib.import_module("stable_baselines3.common.vec_env")
    monitor = importlib.import_module("stable_baselines3.common.monitor").Monitor  # counts raw returns
    envs = vec.DummyVecEnv([lambda: monitor(gymnasium.make(env_id))] * n_envs)
    test_envs = vec.DummyVecEnv([lambda: monitor(gymnasium.make(env_id))])
    if normalize:
        envs = vec.VecNormalize(envs, gamma=numbers["gamma"])
        test_envs = vec.VecNormalize(test_envs, training=False, norm_reward=False)
        test_envs.obs_rms = envs.obs_rms
    test_envs.seed(TEST_SEED + seed)
    model = vars(library)[algorithm.upper()]("MlpPolicy", envs, seed=seed, device="cpu", **numbers)
    return model, test_envs


def linear(value: float | str) -> float | Callable[[float], float]:
    """Return rl-zoo's "lin_X" as a function of the fraction of the training that is left; numbers as they are."""
    if not isinstance(value, str):
        return value
    first = float(value.removeprefix("lin_"))
    return lambda left: first * left


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    entry.run(main)
