"""One call seeds the three global generators."""

import random

import numpy as np
import torch

from utils.seeding import seed_everything


def draw(seed):
    seed_everything(seed)
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_the_same_seed_gives_the_same_draws_and_another_does_not():
    assert draw(1) == draw(1)
    assert all(a != b for a, b in zip(draw(1), draw(2), strict=True))
    assert draw(2**63 - 1) == draw(2**63 - 1)
