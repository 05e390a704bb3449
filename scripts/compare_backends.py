"""Does PPO learn on the compiled worlds what it learns on Gymnasium's? Trains CartPole-v1:ppo on both, same seeds.

    python scripts/compare_backends.py --seeds 5       trains what is missing, writes docs/results/backends
    python scripts/compare_backends.py --only-report   the verdict again, nothing is trained

Every run spends its whole budget, so that finals and areas are of equal experience. Exit code 1: they differ, or a
seed failed.
"""

import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # run as a file from anywhere

import agents.algorithms  # noqa: E402, F401  # makes every algorithm's keys known
from scripts.compare_engines import begin, curves, parser_of, reached, signed, spread  # noqa: E402
from scripts.evidence import run_as_command, train  # noqa: E402
from scripts.evidence_file import Evidence  # noqa: E402
from utils.durable_file import write_json  # noqa: E402
from utils.statistics import interval, iqm  # noqa: E402
from utils.user_error import UserError  # noqa: E402

VARIANT = "CartPole-v1:ppo"
BACKENDS = ("gym", "fast")
MEASURES = ("final", "area")  # of 100 fresh episodes; mean height of the curve of evaluations
LEVEL = 1 - 0.05 / len(MEASURES)  # both are to hold in 95 of 100 tries of two equal worlds
RESULTS = ROOT / "docs" / "results" / "backends"


def main(argv: list[str]) -> int:
    given, failed = parser_of("compare_backends.py", __doc__, 5).parse_args(argv), 0
    for backend in BACKENDS if not given.only_report else ():
        given.set = [f"env_backend={backend}", "early_stop_on_eval_threshold=false"]
        failed += train({VARIANT: begin(VARIANT, place(backend), given.set)}, RESULTS / backend, given)
    found = {backend: Evidence.read(place(backend)) for backend in BACKENDS}
    rows = [compare(found, measure) for measure in MEASURES]
    write_json(RESULTS / "comparison.json", rows)
    (RESULTS / "CartPole-v1-ppo.svg").write_text(curves(VARIANT, found), encoding="utf-8")
    different = [str(row["measure"]) for row in rows if not row["same"]]
    print("\n  " + (f"different: {', '.join(different)}" if different else "no difference"))
    return 1 if failed or different else 0


def place(backend: str) -> Path:
    return RESULTS / backend / "CartPole-v1-ppo.json"


def compare(found: dict[str, Evidence], measure: str) -> dict[str, object]:
    """Over the seeds that both backends finished; same: the intervals overlap and that of the difference contains 0."""
    records = [{record["seed"]: record for record in found[backend].finished()} for backend in BACKENDS]
    seeds = sorted(records[0].keys() & records[1].keys())
    if len(seeds) < 2:
        raise UserError("a comparison takes at least two seeds that both backends finished")
    values = [[reached(by_seed[seed], measure) for seed in seeds] for by_seed in records]
    difference = np.subtract(values[1], values[0])
    low, high = interval(difference, np.mean, LEVEL)
    (first, last), (begins, ends) = (interval(each) for each in values)
    mean = float(difference.mean())
    print(f"  {measure:5} gym {spread(values[0])}, fast {spread(values[1])}, {len(seeds)} seeds")
    print(f"        fast - gym {signed(mean)} [{signed(low)}, {signed(high)}]")
    both = {
        backend: {"iqm": iqm(each), "interval": interval(each), "seeds": each}
        for backend, each in zip(BACKENDS, values, strict=True)
    }
    return {
        "measure": measure,
        **both,
        "difference": {"mean": mean, "interval": (low, high), "level": LEVEL},
        "same": bool(first <= ends and begins <= last and low <= 0 <= high),
    }


if __name__ == "__main__":
    run_as_command(main)
