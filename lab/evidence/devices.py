"""Does PPO learn on a GPU what it learns on the CPU? `engine: auto`: fused_gpu against fused_cpu, on the same seeds.

    python -m lab.evidence.devices --seeds 20      trains what is missing, writes docs/results/devices
    python -m lab.evidence.devices --only-report   the verdict again, nothing is trained

Exit code 1: they differ, or a seed failed.
"""

from lab.evidence.comparison import Ways, arguments
from lab.evidence.engines import VARIANTS
from utils import entry

DEVICES = Ways("device", ("cpu", "cuda"), VARIANTS)


def main(argv: list[str]) -> int:
    """Exit code."""
    return DEVICES.tell(arguments(__doc__, argv, seeds=20))


if __name__ == "__main__":
    entry.run(main)
