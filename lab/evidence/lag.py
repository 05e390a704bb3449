"""Does PPO learn with `lag: 1` what it learns without? Trains CartPole-v1:ppo with both, by eager, on the same seeds.

    python -m lab.evidence.lag --seeds 5       trains what is missing, writes docs/results/lags
    python -m lab.evidence.lag --only-report   the verdict again, nothing is trained

Exit code 1: they differ, or a seed failed.
"""

from lab.evidence.comparison import Ways, arguments
from utils import entry

LAGS = Ways("lag", ("0", "1"), {"CartPole-v1:ppo": ("engine=eager", "max_timesteps=20_480")})  # eager takes long


def main(argv: list[str]) -> int:
    """Exit code."""
    return LAGS.tell(arguments(__doc__, argv, seeds=5))


if __name__ == "__main__":
    entry.run(main)
