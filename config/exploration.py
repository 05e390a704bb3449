"""The `exploration` block of a config: intrinsic rewards, which an agent gives itself for observations new to it.

checks.py has the ranges of its keys; agents/exploration/ computes the rewards."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Exploration:
    """Settings of intrinsic rewards: how novelty is measured, and how much it weighs."""

    kind: Literal["rnd", "icm", "counts"] = "rnd"
    """rnd = error of predicting a fixed random network, icm = of predicting the next features, counts = 1 / √visits."""
    coef: float = 0.5
    """Weight of the intrinsic advantage, that of the environment's being 1; pqn: of the intrinsic reward."""
    gamma: float = 0.99
    """Discount of intrinsic rewards; pqn discounts them with its own gamma."""
    episodic: bool = False
    """true = intrinsic returns end with the episode, false = they run on into the next; in pqn they always end."""
    lr: float = 1e-3
    """Learning rate of the predictor and of the intrinsic value."""
    width: int = 128
    """Units of the hidden layers, and number of features, of these networks."""
    bits: int = 32
    """With counts: bits of SimHash, by which similar observations share a count; 0 = each observation has its own."""
