"""The words that draws are made of, without end, for a test battery to read.

    python -m lab.evidence.random_words | dieharder -g 200 -a                    tables as a training draws them
    python -m lab.evidence.random_words --words 4 --by seed | dieharder -g 200 -d 15

A table has so many words; the next one is of the next iteration, or of the next seed: neighbours in what names a table
must be as strange to one another as words within one.
"""

import os
import sys
from itertools import count

import numpy as np

from stride.commands.usage import parser_of
from stride.utils import entry
from stride.utils.counter_rng import ACT, Key, counters, fill_words

AT_ONCE = 1 << 18  # words written together


def main(argv: list[str]) -> int:
    """Exit code, once whoever reads has had enough."""
    parser = parser_of(__doc__)
    parser.add_argument("--words", type=int, default=4096, metavar="N", help="of a table")
    parser.add_argument("--by", choices=("iteration", "seed"), default="iteration", help="what names the next table")
    asked = parser.parse_args(argv)
    buffer = np.empty((max(1, AT_ONCE // asked.words), asked.words), np.uint32)
    for number in count():
        for place, table in enumerate(buffer, number * len(buffer)):
            key = Key(place, ACT) if asked.by == "seed" else Key(1, ACT, iteration=place)
            fill_words(table, *counters(key))
        try:
            os.write(sys.stdout.fileno(), buffer.data)
        except BrokenPipeError:
            break
    return 0


if __name__ == "__main__":
    entry.run(main)
