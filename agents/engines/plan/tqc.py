"""TQC for fused engines (see recipe.py): SAC whose critics learn quantiles."""

from stride.agents.engines.plan.sac import SACRecipe
from stride.agents.tqc import TQC


class TQCRecipe(SACRecipe):
    """Nets and random numbers as for SAC; a critic's head has one output for each quantile."""

    agent: TQC

    def __init__(self, agent: TQC) -> None:
        super().__init__(agent)
        config = agent.config
        self.shape = self.shape._replace(values=config.n_critics * config.quantiles)
        kept = config.n_critics * (config.quantiles - config.drop_quantiles)
        self.switches |= {"quantiles": config.quantiles, "kept": kept}
