"""How long it takes to learn which run of a group has a config:   python -m lab.bench.claims --runs 1000

Made in a temporary folder: a group with so many runs. Then, in one process, runs of it are found by their config, and
new ones claimed; medians. What a command takes beside that is its own start.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence

from stride.commands.usage import parser_of
from stride.config.loader import load_config, to_plain
from stride.runstore import claim
from stride.runstore.run_dir import RunDir, new_id, runs_root
from stride.utils import entry

GROUP, ENV, VARIANT = "night", "CartPole-v1", "ppo"


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--looks", type=int, default=200)
    asked = parser.parse_args(argv)
    plain = to_plain(load_config(ENV, VARIANT))
    with tempfile.TemporaryDirectory(prefix="stride-claims-") as folder:
        os.environ["STRIDE_RUNS"] = folder  # of this process alone
        for seed in range(asked.runs):
            facts = {"env_id": ENV, "variant": VARIANT, "seed": seed, "group": GROUP, "config": {**plain, "seed": seed}}
            RunDir.create(ENV, VARIANT, seed, facts, claimed(plain, seed))
        print(f"a group of {asked.runs:,} runs", flush=True)
        old = [seed * 7919 % asked.runs for seed in range(asked.looks)]
        tell("a run is found by its config, and config.json read", lambda seed: found(plain, seed), old)
        new = range(asked.runs, asked.runs + asked.looks)
        tell("a run that is not there is claimed", lambda seed: claimed(plain, seed), new)
    return 0


def claimed(plain: dict[str, object], seed: int) -> str:
    config = {**plain, "seed": seed}
    return claim.claimed(GROUP, config) or claim.claim(GROUP, config, new_id(ENV, VARIANT, seed))


def found(plain: dict[str, object], seed: int) -> None:
    facts = RunDir(runs_root() / claim.claimed(GROUP, {**plain, "seed": seed})).facts()
    assert facts["seed"] == seed


def tell(what: str, look: Callable[[int], object], seeds: Sequence[int]) -> None:
    times = []
    for seed in seeds:
        began = time.perf_counter()
        look(seed)
        times.append(1e3 * (time.perf_counter() - began))
    print(f"{what:<52} median {statistics.median(times):6.2f} ms, longest {max(times):6.2f} ms", flush=True)


if __name__ == "__main__":
    entry.run(main)
