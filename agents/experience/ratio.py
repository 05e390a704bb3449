"""How many updates a replay-based algorithm owes for the steps just collected."""

from fractions import Fraction

from stride.config.schema import ReplayConfig, WorldModelConfig

TRAIN_RATIO = 128  # remembered steps that a world model learns from per env step, where the config says nothing


def updates_per_step(config: ReplayConfig) -> Fraction:
    """Updates per env step over all worlds. A fraction, because a float's debt would now and then miss an update."""
    if config.updates_per_step is not None:
        return Fraction(str(config.updates_per_step))
    if isinstance(config, WorldModelConfig):
        train_ratio = TRAIN_RATIO if config.train_ratio is None else config.train_ratio
        return Fraction(str(train_ratio)) / (config.batch_size * config.batch_length)
    if config.gradient_steps < 0:  # one per env step
        return Fraction(1)
    return Fraction(config.gradient_steps, config.train_freq * config.n_envs)


class Ratio:
    """Learning owed per env step; the remaining fraction of an update is carried on, and saved."""

    def __init__(self, updates_per_step: Fraction, warmup: int) -> None:
        self.updates_per_step = updates_per_step
        self.warmup = warmup
        self.debt = Fraction(0)

    def due(self, new_steps: int, env_steps: int, ready: bool = True) -> int:
        """Complete updates to do now; nothing is owed up to `warmup` env steps, nor before a row can be drawn."""
        if env_steps <= self.warmup or not ready:
            return 0
        updates, self.debt = divmod(self.debt + new_steps * self.updates_per_step, 1)
        return updates

    def state_dict(self) -> dict:
        return {"debt": [self.debt.numerator, self.debt.denominator]}

    def load_state_dict(self, state: dict) -> None:
        self.debt = Fraction(*state["debt"])
