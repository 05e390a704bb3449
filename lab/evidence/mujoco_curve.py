"""One training of the comparison with Stable-Baselines3, ours or theirs, as a process of its own; writes its curve.

Called by lab.evidence.mujoco:   python -m lab.evidence.mujoco_curve ENV:ALGORITHM WHO SEED BUDGET CURVE.json
"""

import importlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import torch
from torch import nn

from lab.evidence.mujoco import EPISODES, LOOKS
from stride.commands import train
from stride.commands.usage import parser_of
from stride.config.commands.train import parse_arguments
from stride.config.general import load_general
from stride.config.schedule import Schedule
from stride.config.schema import Config, PPOConfig, SACConfig
from stride.envs_gym.task import task_of
from stride.runstore.history import VAL
from stride.runstore.metrics_csv import points, read_csv
from stride.runstore.run_dir import list_runs
from stride.utils import entry
from stride.utils.durable_file import write_json

SB3 = "stable_baselines3"


def main(argv: list[str]) -> int:
    """Exit code."""
    parser = parser_of(__doc__)
    for name in ("words", "who", "seed", "budget", "out"):
        parser.add_argument(name)
    asked = parser.parse_args(argv)
    overrides = [f"max_timesteps={asked.budget}", f"seed={asked.seed}", "threads=1"]
    config = load_general(asked.words, overrides, task_of)
    began = time.perf_counter()
    curve = ours(asked.words, overrides, config) if asked.who == "ours" else theirs(config)
    write_json(Path(asked.out), {"points": curve, "seconds": time.perf_counter() - began})
    return 0


def ours(words: str, overrides: list[str], config: Config) -> list[tuple[int, float]]:
    """By the command that everybody types."""
    looks = [*often(config), "eval_warmup_epochs=0", f"eval_episodes={EPISODES}", "test_episodes=0"]
    with tempfile.TemporaryDirectory() as runs:
        os.environ["STRIDE_RUNS"] = runs
        code = train.train(parse_arguments([words, *overrides, *looks, "early_stop_on_eval_threshold=false", "-q"]))
        if code:
            sys.exit(code)
        found = points(read_csv(list_runs()[0].metrics_csv), VAL)
    return [(int(x), y) for x, y in found]


def often(config: Config) -> list[str]:
    """LOOKS evaluations: an epoch of PPO is a rollout, of SAC as many steps as lie between two of them."""
    between = config.max_timesteps // LOOKS
    if isinstance(config, PPOConfig):
        return [f"eval_freq_epochs={max(1, between // config.rollout_size)}"]
    return [f"epoch_iterations={max(1, between)}", "eval_freq_epochs=1"]


def theirs(config: Config) -> list[tuple[int, float]]:
    """By the same numbers; evaluated between two stretches of one training."""
    torch.set_num_threads(1)
    env = importlib.import_module(f"{SB3}.common.vec_env")
    evaluate = importlib.import_module(f"{SB3}.common.evaluation").evaluate_policy
    worlds = env.DummyVecEnv([lambda: monitored(config.env_id)] * config.n_envs)
    judge = env.DummyVecEnv([lambda: monitored(config.env_id)])
    if isinstance(config, PPOConfig):
        worlds = env.VecNormalize(worlds, gamma=float(config.gamma), norm_reward=config.normalize_reward)
        judge = env.VecNormalize(judge, training=False, norm_reward=False)
        judge.obs_rms = worlds.obs_rms
    judge.seed(config.seed + 1000)
    peer = peer_of(config, worlds)
    found: list[tuple[int, float]] = []
    callbacks = importlib.import_module(f"{SB3}.common.callbacks")

    class Look(callbacks.BaseCallback):  # type: ignore[name-defined]  # theirs is imported by name
        """Evaluates where one is due, as soon as a rollout is whole."""

        def _on_step(self) -> bool:
            due = (len(found) + 1) * config.max_timesteps // LOOKS
            if self.num_timesteps >= due and len(found) < LOOKS:
                mean, _ = evaluate(peer, judge, n_eval_episodes=EPISODES, warn=False)
                found.append((self.num_timesteps, float(mean)))
            return True

    peer.learn(config.max_timesteps, callback=Look())
    return found


def monitored(env_id: str) -> gymnasium.Env:
    """What counts raw returns there."""
    made: gymnasium.Env = importlib.import_module(f"{SB3}.common.monitor").Monitor(gymnasium.make(env_id))
    return made


def peer_of(config: Config, worlds: object) -> Any:
    """Their algorithm with the config's numbers."""
    library = importlib.import_module(SB3)
    common: dict[str, Any] = {"learning_rate": rate(config.policy_lr), "gamma": config.gamma, "seed": config.seed}
    widths = [*config.hidden_dims]
    if isinstance(config, PPOConfig):
        kwargs: dict[str, Any] = {"net_arch": {"pi": widths, "vf": widths}}
        sizes = {"n_steps": config.n_steps, "batch_size": config.minibatch_size, "n_epochs": config.n_epochs}
        return library.PPO("MlpPolicy", worlds, gae_lambda=config.gae_lambda, policy_kwargs=kwargs, device="cpu",
                           **sizes, **common)  # fmt: skip
    assert isinstance(config, SACConfig)
    kwargs = {"net_arch": widths, "activation_fn": nn.ReLU}
    sizes = {"buffer_size": config.buffer_size, "batch_size": config.batch_size, "train_freq": config.train_freq}
    more = {"learning_starts": config.learning_starts, "gradient_steps": config.gradient_steps, "tau": config.tau}
    return library.SAC("MlpPolicy", worlds, policy_kwargs=kwargs, device="cpu", **sizes, **more, **common)


def rate(value: float | Schedule) -> float | Callable[[float], float]:
    """A linear schedule as they have it: of the share that is left."""
    if not isinstance(value, Schedule):
        return value
    first, last = value.start_value, value.end_value
    return lambda left: last + (first - last) * left


if __name__ == "__main__":
    entry.run(main)
