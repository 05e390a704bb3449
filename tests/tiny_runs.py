"""Real runs of a second or so, for tests that need one of their own; `gallery` has runs that are there already."""

import os

import torch

from stride.commands import train
from stride.commands.plain_tree import fingerprint
from stride.runstore.metrics_table import read_csv
from stride.runstore.run_dir import RunDir

TINY = {"n_envs": 2, "n_steps": 8, "batch_size": 1.0, "max_timesteps": 64, "eval_freq_epochs": 2}
TINY |= {"eval_warmup_epochs": 0, "eval_episodes": 2, "early_stop_on_eval_threshold": "false"}
SHORT = {"max_timesteps": 16, "eval_freq_epochs": "null"}
SCREEN = {"obs": "pixels", "grayscale_obs": "true", "resize_obs": 12, "frame_stack": 2}
PIXELS = {**SCREEN, "resize_obs": 36, "policy": "cnn", "policy_kwargs.features": 8}
REPLAY = {"n_steps": None, "train_freq": 16, "gradient_steps": 1, "batch_size": 4, "buffer_size": 200}
REPLAY |= {"learning_starts": 0, "epoch_iterations": 1, "hidden_dims": 8}

WORLD_MODEL = {"n_envs": 4, "n_steps": None, "batch_size": 4, "test_episodes": 0, "eval_freq_epochs": "null"}
WORLD_MODEL |= {"batch_length": 8, "deter": 16, "width": 16, "stoch": 3, "buffer_size": 2000}
WORLD_MODEL |= {"learning_starts": 160, "max_timesteps": 224}
DREAMER = {**WORLD_MODEL, "classes": 4, "depth": 4, "bins": 21, "imagined_starts": 8, "train_ratio": 8}


def tiny_run(config_id: str = "CartPole-v1:ppo", *flags: str, exit_code: int = 0, **changes: object) -> RunDir:
    """A run under $STRIDE_RUNS that ends with this code; a key that is None is left out."""
    assert "STRIDE_RUNS" in os.environ
    words = [f"{key}={value}" for key, value in {**TINY, **changes}.items() if value is not None]
    assert train.command([config_id, "-q", *flags, *words]) == exit_code
    return RunDir.find("@last")


def tiny_dreamer(**changes: object) -> RunDir:
    """One with a world model, which remembers enough to be judged by its dreams."""
    return tiny_run("CartPole-v1:dreamer", **{**DREAMER, **changes})


def ended(run: RunDir) -> tuple[str, list[dict[str, str]]]:
    """Everything in the last checkpoint that the future depends on, and metrics.csv without wall time."""
    state = torch.load(run.checkpoints / "last.ckpt", weights_only=True)
    kept = {name: state[name] for name in ("state_dict", "optimizer_states", "stride")}
    rows = [{k: repr(v) for k, v in row.items() if "/time/" not in k} for row in read_csv(run.metrics_csv)]
    return fingerprint(kept), rows
