"""Dreamer and PlaNet for fused engines: kernels run their world model through time.

Losses, metrics and the optimizer's step stay with the agents, in torch.
"""

from torch import nn

from stride.agents.engines.plan.layout import LANES
from stride.agents.experience.nouns import Tree
from stride.agents.networks.dreamer_policy import ModelPolicy
from stride.config.schema import Config, WorldModelConfig


class ModelRecipe:
    """Says whether kernels support a world model; unlike a Recipe it passes no sizes or settings."""

    @classmethod
    def why_not(cls, config: Config, policy: nn.Module, obs: Tree) -> str | None:
        """Return why kernels cannot run this model, naming the config's key; None if they can."""
        assert isinstance(config, WorldModelConfig) and isinstance(policy, ModelPolicy)
        if config.precision != 32:
            return f"it does not support precision: {config.precision}"
        if (blocks := policy.sizes.blocks) > 1:
            return f"it does not support cells of {blocks} blocks, as in size: {config.size}"
        if not policy.sizes.stoch:
            return "it does not support stoch: 0"
        if config.batch_size % LANES:
            return f"batch_size {config.batch_size} is not a multiple of {LANES}, its number of parallel sequences"
        return None
