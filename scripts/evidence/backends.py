"""Does PPO learn on the compiled worlds what it learns on Gymnasium's? Trains CartPole-v1:ppo on both, same seeds.

    python -m scripts.evidence.backends --seeds 5       trains what is missing, writes docs/results/backends
    python -m scripts.evidence.backends --only-report   the verdict again, nothing is trained

Exit code 1: they differ, or a seed failed.
"""

from scripts.evidence.comparison import Ways, arguments, difference, iqm_text
from utils import entry

BACKENDS = Ways("env_backend", ("gym", "fast"), {"CartPole-v1:ppo": ()})


def main(argv: list[str]) -> int:
    """Exit code."""
    given = arguments(__doc__, argv, seeds=5)
    failed = 0 if given.only_report else BACKENDS.train_missing(given)
    compared = BACKENDS.compare(BACKENDS.read())
    for (variant, measure), each in compared.items():
        print(
            f"  {variant} {measure:5} gym {iqm_text(each.first)}, fast {iqm_text(each.second)}, {len(each.first)} seeds"
        )
        print(f"        fast - gym {difference(each)}")
    verdict = BACKENDS.verdict(compared)
    print(f"\n  {verdict or 'no difference'}")
    return 1 if failed or verdict else 0


if __name__ == "__main__":
    entry.run(main)
