"""Trains every shipped variant for two iterations, evaluation included, each by the command that a person would type.

It proves that the variants run, not that they learn. Runs are stored in a temporary folder.
"""

import os
import sys
import tempfile
import time

import stride.agents.algorithms  # noqa: F401  # makes every algorithm's keys known
from stride.commands.usage import parser_of
from stride.config.extras import missing
from stride.config.listing import list_environments
from stride.config.loader import load_config, parse_config_id
from stride.config.schema import ReplayConfig, RolloutConfig
from stride.runstore.many.process_pool import run_all
from stride.utils import entry
from stride.utils.provenance import PROJECT

ITERATIONS = 2
STEPS = 2000  # env steps of algorithms without rollouts
EVALUATION = ("eval_freq_epochs=1", "eval_warmup_epochs=0", "eval_episodes=2", "eval_max_steps=50")
TAIL = 12  # last lines of output that are shown if a variant fails


def main(argv: list[str]) -> int:
    """Exit code 1: a variant failed."""
    parser = parser_of(__doc__)
    parser.add_argument("--filter", default="", metavar="TERM", help="only variants that --list-envs TERM shows")
    parser.add_argument("--timesteps", type=int, metavar="N", help=f"env steps of each (or {ITERATIONS} iterations)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="variants side by side")
    arguments = parser.parse_args(argv)

    rows = list_environments(arguments.filter)
    variants = [f"{row.env}:{row.variant}" for row in rows if not missing(row.env_id)]
    commands = [command(variant, arguments.timesteps) for variant in variants]
    started, failed = time.monotonic(), list[str]()
    with tempfile.TemporaryDirectory(prefix="stride-smoke-") as runs:  # so @last of the user stays
        for ended in run_all(commands, arguments.workers, {"STRIDE_RUNS": runs}):
            lines = ended.output_tail.strip().splitlines() or ["(no output)"]
            status, seconds = "FAILED" if ended.returncode else "ok", time.monotonic() - started
            print(f"{status:<7} {seconds:6.1f} s  {variants[ended.index]:<32} {result(lines[-1])}", flush=True)
            if ended.returncode:
                failed.append(variants[ended.index])
                print("\n".join(f"        | {line}" for line in lines[-TAIL:]), flush=True)
    count, seconds = f"{len(variants) - len(failed)} of {len(variants)}", time.monotonic() - started
    print(f"\n{count} variants run, {seconds:.1f} s, {arguments.workers} at a time")
    for env, extra in {row.env: missing(row.env_id) for row in rows}.items():
        if extra:
            print(f"{env} was not tried; it needs {extra.title}: {extra.cure}")
    if failed:
        print(f"failed: {', '.join(sorted(failed))}")
    return 1 if failed else 0


def command(variant: str, timesteps: int | None) -> list[str]:
    """Return the command for one variant; a budget below one rollout (or before the first update) is raised."""
    config = load_config(*parse_config_id(variant))
    minimum, default = 1, STEPS
    if isinstance(config, RolloutConfig):
        minimum, default = config.rollout_size, ITERATIONS * config.rollout_size
    if isinstance(config, ReplayConfig):
        minimum = config.learning_starts + 1
    budget = max(default if timesteps is None else timesteps, minimum)
    return [sys.executable, str(PROJECT / "train.py"), variant, f"max_timesteps={budget}", *EVALUATION, "--quiet"]


def result(line: str) -> str:
    """Return the result line of a training without its last sentence."""
    return line.rpartition(". ")[0] or line


if __name__ == "__main__":
    entry.run(main)
