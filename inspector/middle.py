"""The value at which a group of runs stands in a column of the table."""

from collections.abc import Sequence

from stride.runstore.run_query import Value
from stride.utils.statistics import iqm

LARGEST = 1e100  # what is beyond has no mean


def middle(values: Sequence[Value]) -> Value:
    """Of a group: the interquartile mean of its numbers, the first of its words; None where there is nothing."""
    there = [value for value in values if value is not None and value != ""]
    numbers = [float(value) for value in there if not isinstance(value, str) and abs(value) < LARGEST]
    return iqm(numbers) if numbers else min((str(value) for value in there), default=None)
