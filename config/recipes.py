"""Recipes: published settings under one name. A variant with `recipe: flash` gets the values of FLASH below.

Other keys of the same block or command override them, and so does everything that is put on top later (raw.py)."""

from typing import Any

# FlashSAC (2026), CPU setting: https://github.com/Holiday-Robot/FlashSAC, configs/agent/flashSAC.yaml; there, the
# critic is twice as wide as the actor (256 and 128)
FLASH = {
    "norm": "batch", "blocks": 2, "init": "orthogonal", "weight_projection": True, "hidden_dims": [128],
    "joint_batch": True, "tau": 0.01, "bins": 101, "bin_range": 5.0, "normalize_reward": True,
    "initial_alpha": 0.01, "target_std": 0.15, "noise_hold": 16, "actor_every": 2, "batch_size": 512,
    "policy_lr": {"kind": "cosine", "start_value": 3e-4, "end_value": 1.5e-4},
}  # fmt: skip
# CrossQ (Bhatt et al. 2024) has no target network; `tau: 1.0` makes it a copy of the critic, which is the same
CROSSQ = {
    "norm": "batch", "joint_batch": True, "tau": 1.0, "actor_every": 3, "policy_lr": 1e-3,
    "critic": {"hidden_dims": [1024, 1024]},
}  # fmt: skip
RECIPES: dict[str, dict[str, Any]] = {"flash": FLASH, "crossq": CROSSQ}
