"""Seeds the global generators that initialise weights; every other draw comes from counter_rng."""

import random

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Seed Python's, NumPy's and torch's global generators; any seed in [0, 2**63)."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # third-party code may draw from it
    torch.manual_seed(seed)
