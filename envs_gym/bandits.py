"""`Bandit/NAME`: Bandit-v0 with arms of its own, which the name decides: the same everywhere, others for others."""

import hashlib
from dataclasses import replace

import gymnasium

from stride.envs_fast import bandit, registry


def register(env_id: str) -> None:
    """Make a bandit of this name known, compiled and as Gymnasium's; env_kwargs change it as they change Bandit-v0."""
    digest = hashlib.sha256(env_id.encode()).digest()
    arms = {"arms_seed": int.from_bytes(digest[:4], "big")}
    gymnasium.register(env_id, "stride.envs_fast.bandit:Bandit", kwargs=arms)  # first, as it refuses what is no id
    registry.WORLDS[env_id] = replace(bandit.WORLD, env_id=env_id, default_kwargs=arms)
