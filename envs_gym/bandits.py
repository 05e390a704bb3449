"""Registers `Bandit/NAME`: Bandit-v0 with arms that depend only on NAME, so they are the same on every machine."""

import hashlib
from dataclasses import replace

import gymnasium

from stride.envs_fast import bandit, registry


def register(env_id: str) -> None:
    """Register a bandit of this name in Gymnasium and as a compiled world; env_kwargs work as for Bandit-v0."""
    digest = hashlib.sha256(env_id.encode()).digest()
    arms = {"arms_seed": int.from_bytes(digest[:4], "big")}
    # first, as it raises for an invalid id
    gymnasium.register(env_id, "stride.envs_fast.bandit:Bandit", kwargs=arms)
    registry.WORLDS[env_id] = replace(bandit.WORLD, env_id=env_id, default_kwargs=arms)
