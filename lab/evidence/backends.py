"""Does PPO learn on the compiled worlds what it learns on Gymnasium's? Trains CartPole-v1:ppo on both, same seeds.

    python -m lab.evidence.backends --seeds 5       trains what is missing, writes docs/results/backends
    python -m lab.evidence.backends --only-report   the verdict again, nothing is trained

Exit code 1: they differ, or a seed failed.
"""

from lab.evidence.comparison import Ways, arguments
from utils import entry

BACKENDS = Ways("env_backend", ("gym", "fast"), {"CartPole-v1:ppo": ()})


def main(argv: list[str]) -> int:
    """Exit code."""
    return BACKENDS.tell(arguments(__doc__, argv, seeds=5))


if __name__ == "__main__":
    entry.run(main)
