"""Dreamer and PlaNet to a fused engine: it knows their model's ways through time, and leaves the rest to them."""

from torch import nn

from stride.agents.engines.plan.layout import LANES
from stride.agents.experience.nouns import Tree
from stride.agents.networks.dreamer_policy import ModelPolicy
from stride.config.schema import Config, WorldModelConfig


class ModelRecipe:
    """What can be known, and what is refused; losses, metrics and the optimizer's step stay the agent's own."""

    @classmethod
    def why_not(cls, config: Config, policy: nn.Module, obs: Tree) -> str | None:
        """What it cannot unroll, in the config's own words; None where it can."""
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
