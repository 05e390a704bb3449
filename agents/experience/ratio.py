"""How many updates an algorithm with a replay memory makes for the steps that were just collected."""

from fractions import Fraction

from stride.config.schema import ReplayConfig, WorldModelConfig

TRAIN_RATIO = 128  # steps that a world model replays per env step if the config sets no train_ratio


def updates_per_step(config: ReplayConfig) -> Fraction:
    """Return the updates per env step of all worlds; a fraction, as with floats an update would be lost at times."""
    if config.updates_per_step is not None:
        return Fraction(str(config.updates_per_step))
    if isinstance(config, WorldModelConfig):
        train_ratio = TRAIN_RATIO if config.train_ratio is None else config.train_ratio
        return Fraction(str(train_ratio)) / (config.batch_size * config.batch_length)
    if config.gradient_steps < 0:  # one per env step
        return Fraction(1)
    return Fraction(config.gradient_steps, config.train_freq * config.n_envs)


class Ratio:
    """Counts the updates that are due; the fraction of an update that remains is kept for later, and saved."""

    def __init__(self, updates_per_step: Fraction, warmup: int) -> None:
        self.updates_per_step = updates_per_step
        self.warmup = warmup
        self.debt = Fraction(0)

    def due(self, new_steps: int, env_steps: int, ready: bool = True) -> int:
        """Return the number of updates to make now: 0 up to `warmup` env steps, and while `ready` is False.

        `new_steps` were collected since the last call, `env_steps` in all. `ready`: rows can be drawn from the memory.
        """
        if env_steps <= self.warmup or not ready:
            return 0
        updates, self.debt = divmod(self.debt + new_steps * self.updates_per_step, 1)
        return updates

    def state_dict(self) -> dict:
        return {"debt": [self.debt.numerator, self.debt.denominator]}

    def load_state_dict(self, state: dict) -> None:
        self.debt = Fraction(*state["debt"])
