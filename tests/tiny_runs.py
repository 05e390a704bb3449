"""Real runs of a second or so, for tests of what is done with a run afterwards."""

import os

import train
from utils.run_dir import RunDir

TINY = {"n_envs": 2, "n_steps": 8, "batch_size": 1.0, "max_timesteps": 64, "eval_freq_epochs": 2}
TINY |= {"eval_warmup_epochs": 0, "eval_episodes": 2, "early_stop_on_eval_threshold": "false"}


def tiny_run(config_id: str = "CartPole-v1:ppo", *flags: str, **changes: object) -> RunDir:
    """A finished run under $STRIDE_RUNS; a key that is None is left out."""
    assert "STRIDE_RUNS" in os.environ
    words = [f"{key}={value}" for key, value in {**TINY, **changes}.items() if value is not None]
    assert train.command([config_id, "-q", *flags, *words]) == 0
    return RunDir.find("@last")
