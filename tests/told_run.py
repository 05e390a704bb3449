"""A run as its sinks are told of it, without a training: what trackers make of it is the same."""

import math

from stride.config.loader import load_config, to_plain
from stride.runstore.history import Alert, Event
from stride.runstore.outcome import Header, Outcome
from stride.runstore.run_dir import RunDir

STEPS, RETURN = "train/clock/env_steps", "train/roll/ep_rew/mean"


def begun(*overrides, group=""):
    """(its folder under $STRIDE_RUNS, header, config)."""
    config = load_config("CartPole-v1", "ppo", overrides)
    known = {"env_id": config.env_id, "variant": "ppo", "seed": 1, "git_hash": "abc"}
    facts = {**known, "group": group, "status": "running", "config": to_plain(config)}
    run = RunDir.create("CartPole-v1", "ppo", 1, facts)
    header = Header(
        config_id="CartPole-v1:ppo", algo_id="ppo", engine="eager", engine_why="", env_backend="gym",
        env_backend_why="", device="cpu", n_envs=8, seed=1, parameters=9155, goal=475.0, max_timesteps=100,
        run_path=str(run.path),
    )  # fmt: skip
    return run, header, config


def row(steps, value=None):
    return {STEPS: float(steps), RETURN: float(steps) if value is None else value, "train/loss/policy": -0.25}


def alert(steps):
    rule = "train/loss/policy", "Policy loss", "above 1"
    return Event(True, Alert(*rule, steps, steps, 1, 1, 2.0, "2", "It is wrong.", "lower it"), steps, "2")


def outcome(run, **changes):
    told = dict(
        solved=True, reason="goal reached", goal=475.0, val_best=480.0, test_mean=490.5, test_std=2.0, test_episodes=10,
        env_steps=40, seconds=1.5, run_path=str(run.path),
    )  # fmt: skip
    return Outcome(**{**told, **changes})


def tell(sinks, run, header, config, rows=4, end=True):
    """From begin to end, with a row that holds what is no number, and an alert."""
    for sink in sinks:
        sink.begin(header, config)
        for number in range(1, rows + 1):
            sink.row(row(10 * number, math.nan if number == 2 else None))
        sink.alert(alert(20))
        if end:
            sink.end(outcome(run))
