"""How long does `runs list` take with many runs, and finding one run of a group? Makes the runs, deletes them again.

    python -m lab.bench.runs --runs 10000
    python -m lab.bench.runs --group 1000     in one process: a run of so many is found by its config, a new one claimed

Each run is a folder as a training leaves it, without weights; a few are damaged. Times are of whole commands, from the
shell to the last line. The first command reads every run. For comparison, an interpreter that does nothing is timed.
"""

import json
import random
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from lab.bench.pairs import measured
from stride.commands.usage import parser_of
from stride.config.loader import load_config, to_plain
from stride.runstore import seed_group
from stride.runstore.run_dir import RunDir, new_id, runs_root
from stride.runstore.run_names import temporary_runs
from stride.utils import entry
from stride.utils.places import PROJECT

ENVS = ("CartPole-v1", "Acrobot-v1", "Pendulum-v1", "LunarLander-v3")
ROWS, METRICS = 20, ("train/loss/policy", "train/policy/entropy", "train/policy/approx_kl", "train/grad_norm/total")
DAMAGED = 3
QUERY = ("list", "--filter", "env=CartPole and test>=475", "--sort", "-test", "--json")
KEYS = ("list", "--filter", "policy_lr<2e-4 and train/policy/entropy<1", "--sort", "-test", "--json")


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--group", type=int, default=0, metavar="RUNS", help="find and claim runs of one so large")
    args = parser.parse_args(argv)
    with temporary_runs() as root:
        if args.group:
            time_group(args.group)
            return 0
        began = time.perf_counter()
        make(root, args.runs)
        print(f"{args.runs:,} runs made in {time.perf_counter() - began:.1f} s, {DAMAGED} of them damaged", flush=True)
        time.sleep(1.1)  # the index does not trust files that changed within the last second
        time_command("an interpreter that does nothing", ("-c", "pass"), root, args.repeats)
        time_command("the first list: every run is read", ("-m", "stride.commands.runs", *QUERY), root, 1)
        time_command("list, by two fields", ("-m", "stride.commands.runs", *QUERY), root, args.repeats)
        time_command("list, by a key and a metric", ("-m", "stride.commands.runs", *KEYS), root, args.repeats)
        time_command("list, all of them", ("-m", "stride.commands.runs", "list"), root, args.repeats)
    return 0


def time_command(title: str, arguments: tuple[str, ...], root: Path, repeats: int) -> None:
    costs = [measured(PROJECT, arguments, STRIDE_RUNS=str(root)) for _ in range(repeats)]
    wall, cpu = (statistics.median(seconds) for seconds in zip(*(cost[:2] for cost in costs), strict=True))
    print(f"{title:<40} {wall:7.3f} s, {cpu:7.3f} s of a core", flush=True)


def time_group(count: int) -> None:
    """Time finding and claiming runs of a group of `count` runs; a command takes its start-up time beside this."""
    env_id, variant, group = ENVS[0], "ppo", "night"
    plain = to_plain(load_config(env_id, variant))

    def claimed(seed: int) -> str:
        config = {**plain, "seed": seed}
        return seed_group.claimed(group, config) or seed_group.claim(group, config, new_id(env_id, variant, seed))

    def read(seed: int) -> None:
        facts = RunDir(runs_root() / seed_group.claimed(group, {**plain, "seed": seed})).facts()
        assert facts["seed"] == seed

    for seed in range(count):
        facts = {"env_id": env_id, "variant": variant, "seed": seed, "group": group, "config": {**plain, "seed": seed}}
        RunDir.create(env_id, variant, seed, facts, claimed(seed))
    print(f"a group of {count:,} runs", flush=True)
    time_calls("a run is found by its config, and config.json read", read, (seed * 7919 % count for seed in range(200)))
    time_calls("a run that is not there is claimed", claimed, range(count, count + 200))


def time_calls(title: str, call: Callable[[int], object], seeds: Iterable[int]) -> None:
    times = []
    for seed in seeds:
        began = time.perf_counter()
        call(seed)
        times.append(1e3 * (time.perf_counter() - began))
    print(f"{title:<52} median {statistics.median(times):6.2f} ms, longest {max(times):6.2f} ms", flush=True)


def make(root: Path, count: int, damaged: int = DAMAGED) -> list[str]:
    """Make `count` runs in `root`, the newest first, the last `damaged` of them damaged; return their ids."""
    rng = random.Random(count)
    ids = [make_run(root, number, rng) for number in range(count)]
    damaged_files = {"config.json": "{", "metrics.csv": "nothing,of,ours\n1,2,3\n"}
    damaged_files["checkpoints/best.json"] = '{"score": "high"}'
    for run_id, (name, text) in zip(reversed(ids), [*damaged_files.items()][:damaged], strict=False):
        (root / run_id / name).write_text(text)
    return ids


def make_run(root: Path, number: int, rng: random.Random) -> str:
    env, seed, test = rng.choice(ENVS), number % 10, rng.uniform(0.0, 500.0)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(1.79e9 - 97 * number))
    run = root / f"{stamp}-{env}-ppo-s{seed}-r{number}"
    (run / "checkpoints").mkdir(parents=True)
    config = {"env_id": env, "algo_id": "ppo", "variant": "ppo", "seed": seed, "n_envs": 8, "gamma": 0.99}
    config["policy_lr"] = rng.choice((1e-3, 3e-4, 1e-4))
    outcome = {"solved": test >= 475.0, "reason": "budget spent", "goal": 475.0, "val_best": test, "test_mean": test}
    outcome |= {"test_std": 9.0, "test_episodes": 100, "env_steps": 20_000, "seconds": rng.uniform(1.0, 900.0)}
    facts = {"env_id": env, "variant": "ppo", "seed": seed, "status": rng.choice(("finished",) * 9 + ("failed",)),
             "goal": 475.0, "group": None, "git_hash": "0" * 40, "config": config, "outcome": outcome}  # fmt: skip
    (run / "config.json").write_text(json.dumps(facts))
    (run / "checkpoints" / "best.json").write_text(json.dumps({"score": test}))
    (run / "metrics.csv").write_text(rows(test, rng))
    return run.name


def rows(test: float, rng: random.Random) -> str:
    names = ("train/clock/env_steps", "train/time/seconds", "val/roll/ep_rew/mean", *METRICS, "test/roll/ep_rew/mean")
    lines = [",".join(names)]
    for row in range(1, ROWS + 1):
        numbers = ",".join(f"{rng.random():.7g}" for _ in METRICS)
        lines.append(f"{1000 * row},{row},{test * row / ROWS:.7g},{numbers},{f'{test:.7g}' if row == ROWS else ''}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    entry.run(main)
