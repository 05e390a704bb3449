"""Count the cuts (truncations) of each world for the memory: each leaves a final observation, which takes a slot."""

import numpy as np
import torch
from torch import Tensor

from stride.utils.kernel_cache import njit


def most_cuts(cut: Tensor) -> Tensor | int:
    """Return the number of cuts of the world that has most; `cut` bool [T, N]."""
    return most_of(cut.view(torch.uint8).numpy()) if cut.device.type == "cpu" else cut.sum(0).max()


@njit(cache=True, nogil=True)
def most_of(cut: np.ndarray) -> int:
    """Return `most_cuts` on the CPU; `cut` uint8 [T, N]."""
    cut_counts = np.zeros(cut.shape[1], np.int32)
    for t in range(cut.shape[0]):
        for world_index in range(cut.shape[1]):
            cut_counts[world_index] += cut[t, world_index]
    most = 0
    for count in cut_counts:  # cut_counts.max() would load Numba's linear algebra and SciPy's: 16 MB
        most = max(most, int(count))
    return most


@njit(cache=True)
def count_cuts(new_cuts: np.ndarray, old_cuts: np.ndarray, cuts: np.ndarray) -> None:
    """Update `cuts` [2, N], each world's number now and its maximum so far, as rows [T, N] replace older ones."""
    for t in range(new_cuts.shape[0]):
        for i in range(new_cuts.shape[1]):
            cuts[0, i] += np.int64(new_cuts[t, i]) - np.int64(old_cuts[t, i])
            cuts[1, i] = max(cuts[0, i], cuts[1, i])
