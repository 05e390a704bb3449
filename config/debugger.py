"""The config under a debugger: one world, so that a breakpoint sees one thing at a time."""

import sys
from dataclasses import replace

from stride.config.checks import check, nearest_sizes
from stride.config.schema import Config, RolloutConfig

TINY = 10  # iterations of a budget that nobody chose


def attached() -> bool:
    """Whether a debugger is attached: by a trace function, or from Python 3.12 on as the monitoring tool."""
    if sys.gettrace() is not None:
        return True
    return sys.version_info >= (3, 12) and sys.monitoring.get_tool(sys.monitoring.DEBUGGER_ID) is not None


def for_debugger(config: Config, tiny: bool = False) -> Config:
    """The config with one environment and thread; batch_size is kept where it still divides the rollout.

    `tiny`: a few iterations are enough to see what is wrong."""
    config = replace(config, n_envs=1, threads=1, engine="eager", workers=0)
    if isinstance(config, RolloutConfig):
        config = replace(config, n_steps=max(config.n_steps, 2))  # one row has no deviation to normalize by
        if config.policy in ("lstm", "gru"):
            config = replace(config, batch_size=1.0)  # sequences are not cut
        rollout, rows = config.rollout_size, config.minibatch_size
        if rollout % rows or rows == 1:
            sizes = [size for size in nearest_sizes(rollout, max(rows, 2)) if size > 1]
            config = replace(config, batch_size=sizes[0])
        if config.n_epochs * (rollout // config.minibatch_size) % config.accumulate:
            config = replace(config, accumulate=1)
        if tiny:
            config = replace(config, max_timesteps=min(config.max_timesteps, TINY * rollout))
    check(config, f"{config.env_id}:{config.variant} under the debugger")
    return config
