"""Does PPO learn with `lag: 1` what it learns without? Trains CartPole-v1:ppo with both, by eager, on the same seeds.

    python -m scripts.evidence.lag --seeds 5       trains what is missing, writes docs/results/lags
    python -m scripts.evidence.lag --only-report   the verdict again, nothing is trained

Exit code 1: they differ, or a seed failed.
"""

from scripts.evidence.comparison import Ways, arguments, difference, iqm_text
from utils import entry

LAGS = Ways("lag", ("0", "1"), {"CartPole-v1:ppo": ("engine=eager", "max_timesteps=20_480")})  # eager takes long


def main(argv: list[str]) -> int:
    """Exit code."""
    given = arguments(__doc__, argv, seeds=5)
    failed = 0 if given.only_report else LAGS.train_missing(given)
    compared = LAGS.compare(LAGS.read())
    for (variant, measure), each in compared.items():
        print(f"  {variant} {measure:5} 0 {iqm_text(each.first)}, 1 {iqm_text(each.second)}, {len(each.first)} seeds")
        print(f"        1 - 0 {difference(each)}")
    verdict = LAGS.verdict(compared)
    print(f"\n  {verdict or 'no difference'}")
    return 1 if failed or verdict else 0


if __name__ == "__main__":
    entry.run(main)
