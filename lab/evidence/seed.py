"""One seed of the evidence, in its own process: trains, plays the final and the best weights, writes the record.

Called by lab.evidence:   python -m lab.evidence.seed ENV:VARIANT SEED GROUP RECORD.json [key=value ...]
"""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from lab.evidence.exact import exact
from lab.evidence.file import TEST_CONFIGS, configured, is_solved
from stride.agents.experience.collector import Policy
from stride.agents.networks.dreamer_policy import ModelPolicy
from stride.agents.trained.loading import LoadedRun, load_run
from stride.commands.usage import parser_of
from stride.config.schema import Config
from stride.envs_gym.make import make_envs
from stride.report.page import Row
from stride.runstore.history import TRAIN, VAL
from stride.runstore.metrics_table import points, read_csv
from stride.runstore.run_dir import RunDir, list_runs
from stride.trainer_callbacks.evaluate import Evaluate
from stride.utils import entry
from stride.utils.durable_file import write_json
from stride.utils.provenance import PROJECT
from stride.utils.user_error import UserError

SECONDS = "train/time/seconds"
SCORES = {  # key of a record -> metric of the test episodes
    "mean": "test/roll/ep_rew/mean", "std": "test/roll/ep_rew/std", "min": "test/roll/ep_rew/min",
    "max": "test/roll/ep_rew/max", "length": "test/roll/ep_len/mean", "episodes": "test/roll/episodes",
}  # fmt: skip


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    for name in ("variant", "seed", "group", "record"):
        parser.add_argument(name)
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    arguments = parser.parse_args(argv)
    flags = ["--seed", arguments.seed, "--quiet", "--group", arguments.group]
    flags += ["--config", str(TEST_CONFIGS[arguments.variant])] if arguments.variant in TEST_CONFIGS else []
    command = [sys.executable, str(PROJECT / "train.py"), arguments.variant, *flags, *arguments.overrides]
    code = subprocess.run(command, check=False).returncode
    if code == 0:
        write_json(Path(arguments.record), measure(find_run(arguments.group, arguments.variant, int(arguments.seed))))
    return code


def find_run(group: str, variant: str, seed: int) -> RunDir:
    """Return the newest run of a variant and seed in a group; UserError if there is none."""
    config = configured(variant)
    for run in list_runs():
        facts = run.facts() if run.config_json.is_file() else {}
        wanted = {"group": group, "env_id": config.env_id, "variant": config.variant, "seed": seed}
        if all(facts.get(key) == value for key, value in wanted.items()):
            return run
    raise UserError(f"the training of {variant} seed {seed} left no run of group {group}")


def measure(run: RunDir) -> dict[str, Any]:
    """Return the record of a finished run: steps and seconds, what final and best weights reach, its curves.

    Weights that the run has not tested play 100 episodes now.
    """
    last, best = load_run(str(run.path), "last"), load_run(str(run.path), "best")
    torch.set_num_threads(last.config.torch_threads)
    rows, outcome = read_csv(run.metrics_csv), last.facts["outcome"]
    tested = [row for row in rows if SCORES["mean"] in row]
    final = tested[-1] if tested else play(last)  # the run's own test if it made one
    is_last_best = best.progress == last.progress  # the best checkpoint is the last one
    reached = scores(final) | exact(last)
    return {
        "seed": last.config.seed,
        "status": "finished",
        "solved": is_solved(reached, outcome["goal"]),
        **{key: outcome[key] for key in ("reason", "env_steps", "seconds")},
        "goal": outcome["goal"],
        "final": reached,
        "best": (scores(final) if is_last_best else scores(play(best))) | exact(best),
        "best_env_steps": best.progress["env_steps"],
        "run": run.id,
        "command": last.facts["command"].replace(f"{PROJECT}/", ""),  # as it is typed in a checkout
        **{key: last.facts[key] for key in ("engine", "git_hash", "versions")},
        "curve": {"val": coordinates(rows, VAL), "train": coordinates(rows, TRAIN)},
        **of_a_model(last, rows),
    }


def of_a_model(loaded: LoadedRun, rows: list[dict[str, float]]) -> dict[str, Any]:
    """Return the further keys of a run with a world model; {} for other runs.

    "val_seconds": [[env steps, seconds since the start], ..] of evaluations; "ms_per_action": of a greedy action.
    """
    if not isinstance(loaded.agent.policy, ModelPolicy):
        return {}
    seconds = coordinates([row for row in rows if VAL in row], SECONDS)
    return {"val_seconds": seconds, "ms_per_action": milliseconds(loaded.config, loaded.agent.policy)}


@torch.no_grad()
def milliseconds(config: Config, policy: Policy, n_actions: int = 100) -> float:
    """Return the median milliseconds of choosing a greedy action for one environment, without its step."""
    worlds, noise, seconds = make_envs(config, 1), torch.full((1, policy.draws), 0.5), []
    obs, carry, is_first = worlds.reset(config.seed), policy.initial(1), torch.ones(1, dtype=torch.bool)
    for _ in range(n_actions):
        began = perf_counter()
        act = policy.act(obs, carry, is_first, noise, True)
        seconds.append(perf_counter() - began)
        step = worlds.step(act.action)
        obs, carry, is_first = step.obs, act.carry, step.terminated | step.truncated
    worlds.close()
    return float(np.median(seconds) * 1000)


def play(loaded: LoadedRun) -> dict[str, float]:
    """Play 100 fresh episodes with loaded weights; return metrics "test/...", as a run's own test logs them."""
    evaluate = Evaluate(replace(loaded.config, test_episodes=100), lambda n: make_envs(loaded.config, n))
    tested = evaluate.test(loaded.agent.policy)
    evaluate.close()
    return tested


def scores(row: Row) -> dict[str, float]:
    """Return the scores of a row of metrics under the keys of a record: {"mean": 498.2, "std": 3.1, ..}."""
    return {key: row[name] for key, name in SCORES.items() if name in row}


def coordinates(rows: list[dict[str, float]], name: str) -> list[list[float]]:
    """Return a metric's curve, [[env steps, value], ..], with five digits of each value."""
    return [[int(x), float(f"{y:.5g}")] for x, y in points(rows, name)]


if __name__ == "__main__":
    entry.run(main)
