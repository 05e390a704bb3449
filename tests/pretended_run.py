"""A run that trains nothing and is one in every other respect: its folder, lock, metrics.csv and metrics.mmap, a row
each PAUSE seconds, until a signal or its budget ends it.   python -m tests.pretended_run SEED [GROUP [PAUSE]]"""

import math
import os
import signal
import sys
import time

from stride.report.metrics_sinks import MetricsCsv
from stride.runstore.metrics_layout import NAME
from stride.runstore.metrics_writer import MetricsWriter
from stride.runstore.run_dir import RunDir
from stride.runstore.run_files import write_json
from stride.runstore.run_lock import locked

BUDGET, STEP, GOAL = 100_000, 500, 475.0
CONFIG = {"env_id": "CartPole-v1", "variant": "ppo", "algo_id": "ppo", "max_timesteps": BUDGET}


def facts(seed=1, group="", status="running", **more):
    """config.json of such a run."""
    told = {"env_id": "CartPole-v1", "variant": "ppo", "seed": seed, "group": group, "goal": GOAL, "status": status}
    return {**told, "config": {**CONFIG, "seed": seed}, **more}


def outcome(mean=480.0, env_steps=BUDGET, reason="goal reached"):
    ended = {"solved": mean >= GOAL, "reason": reason, "goal": GOAL, "val_best": mean, "test_mean": mean}
    return {**ended, "test_std": 1.0, "test_episodes": 100, "env_steps": env_steps, "seconds": 20.0}


def row(number):
    """Metrics as they might be: the return rises towards its goal."""
    told = {"train/clock/env_steps": STEP * number, "train/time/seconds": number / 10}
    told |= {"train/roll/ep_rew/mean": 500 * (1 - math.exp(-number / 40)), "train/loss/policy": -0.01 / number}
    told |= {"train/policy/approx_kl": 0.01 + 0.002 * math.sin(number), "train/policy/entropy": 0.7 - number / 500}
    told |= {"train/time/env_steps_per_second": 5000.0, "train/time/learn": 0.6, "train/time/other": 0.4}
    if number % 10 == 0:
        told |= {"val/roll/ep_rew/mean": 500 * (1 - math.exp(-number / 30)), "val/roll/episodes": 20}
    return told


def main(seed, group="", pause="0.1"):
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.append(True))
    stopped = []
    run = RunDir.create("CartPole-v1", "ppo", seed, facts(seed, group))
    with locked(run.path):
        table = MetricsCsv(run.metrics_csv)
        file = MetricsWriter(run.path / NAME, run.id, {"config_id": "CartPole-v1:ppo", "goal": GOAL})
        file.max_timesteps = BUDGET
        print(run.id, flush=True)
        for number in range(1, BUDGET // STEP + 1):
            table.row(row(number))
            file.row(STEP * number, row(number))
            time.sleep(float(pause))
            if stopped:
                break
        status = "interrupted" if stopped else "finished"
        write_json(run.config_json, facts(seed, group, status, outcome=outcome(reason=status)))
        file.end(status, "the end")
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
