"""`python -m lab.evidence` measures the shipped variants."""

from lab.evidence.campaign import main
from stride.utils import entry

if __name__ == "__main__":
    entry.run(main)
