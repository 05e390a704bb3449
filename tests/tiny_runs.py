"""Real runs of a second or so, for tests of what is done with a run afterwards."""

import os

from stride.commands import train
from stride.runstore.run_dir import RunDir

TINY = {"n_envs": 2, "n_steps": 8, "batch_size": 1.0, "max_timesteps": 64, "eval_freq_epochs": 2}
TINY |= {"eval_warmup_epochs": 0, "eval_episodes": 2, "early_stop_on_eval_threshold": "false"}

DREAMER = dict(
    n_envs=4, n_steps=None, batch_size=4, batch_length=8, deter=16, width=16, stoch=3, classes=4, depth=4, bins=21,
    imagined_starts=8, test_episodes=0, learning_starts=160, train_ratio=8, max_timesteps=224, buffer_size=2000,
    eval_freq_epochs="null",
)  # fmt: skip


def tiny_run(config_id: str = "CartPole-v1:ppo", *flags: str, **changes: object) -> RunDir:
    """A finished run under $STRIDE_RUNS; a key that is None is left out."""
    assert "STRIDE_RUNS" in os.environ
    words = [f"{key}={value}" for key, value in {**TINY, **changes}.items() if value is not None]
    assert train.command([config_id, "-q", *flags, *words]) == 0
    return RunDir.find("@last")


def tiny_dreamer(**changes: object) -> RunDir:
    """The same with a world model, which remembers enough to be judged by its dreams."""
    return tiny_run("CartPole-v1:dreamer", **{**DREAMER, **changes})
