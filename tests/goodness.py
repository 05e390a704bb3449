"""How likely a sample is under an exact distribution: chi-square and Kolmogorov-Smirnov tail probabilities."""

import numpy as np
import torch

ALPHA = 1e-6  # of a whole test; divided by the number of comparisons it makes
LEAST = 20.0  # expected counts below this are pooled, where the chi-square distribution is a poor approximation


def chi_square(counts, probabilities):
    """The tail probability of `counts` [cells]; something impossible having happened has probability 0."""
    counts, expected = np.asarray(counts, np.float64), np.sum(counts) * np.asarray(probabilities, np.float64)
    assert abs(np.sum(probabilities) - 1.0) < 1e-9
    if counts[expected == 0.0].any():
        return 0.0
    order = np.argsort(expected)
    counts, expected = counts[order], expected[order]
    small = int(np.searchsorted(np.cumsum(expected), LEAST)) + 1 if expected[0] < LEAST else 0
    small = max(small, int(np.searchsorted(expected, LEAST)))
    if small:
        counts = np.append(counts[small:], counts[:small].sum())
        expected = np.append(expected[small:], expected[:small].sum())
    if len(counts) < 2:
        return 1.0
    statistic = ((counts - expected) ** 2 / expected).sum()
    tail = torch.special.gammaincc(
        torch.tensor((len(counts) - 1) / 2, dtype=torch.float64), torch.tensor(statistic / 2, dtype=torch.float64)
    )
    return float(tail)


def kolmogorov_smirnov(sample, distribution):
    """The tail probability of a large `sample` under a continuous `distribution(x)` function."""
    heights, n = distribution(np.sort(np.asarray(sample, np.float64))), len(sample)
    distance = max((np.arange(1, n + 1) / n - heights).max(), (heights - np.arange(n) / n).max())
    x, k = distance * np.sqrt(n), np.arange(1, 101)
    return 1.0 if x < 0.2 else float(np.clip(2 * ((-1.0) ** (k - 1) * np.exp(-2 * (k * x) ** 2)).sum(), 0.0, 1.0))


def uniform(low, high):
    return lambda x: np.clip((x - low) / (high - low), 0.0, 1.0)
