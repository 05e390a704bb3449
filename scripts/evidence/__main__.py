"""`python -m scripts.evidence` measures the shipped variants."""

from scripts.evidence.variants import main
from utils import entry

if __name__ == "__main__":
    entry.run(main)
