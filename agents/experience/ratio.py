"""How many updates a replay-based algorithm owes for the steps just collected."""

from fractions import Fraction


def per_env_step(train_freq: int, gradient_steps: int, n_envs: int, ratio: float | None = None) -> Fraction:
    """Updates per env step: `gradient_steps` after `train_freq` steps of each of `n_envs` worlds, -1 = one per step.

    A `ratio` says it directly and wins. Fractions, because a float's debt would now and then miss an update.
    """
    if ratio is not None:
        return Fraction(str(ratio))
    return Fraction(1) if gradient_steps < 0 else Fraction(gradient_steps, train_freq * n_envs)


class Ratio:
    """Learning owed per env step; the remaining fraction of an update is carried on, and saved."""

    def __init__(self, per_env_step: Fraction, warmup: int) -> None:
        self.per_env_step = per_env_step
        self.warmup = warmup
        self.debt = Fraction(0)

    def due(self, new_steps: int, env_steps: int, ready: bool = True) -> int:
        """Complete updates to do now; nothing is owed up to `warmup` env steps, nor before a row can be drawn."""
        if env_steps <= self.warmup or not ready:
            return 0
        updates, self.debt = divmod(self.debt + new_steps * self.per_env_step, 1)
        return updates

    def state_dict(self) -> dict:
        return {"debt": [self.debt.numerator, self.debt.denominator]}

    def load_state_dict(self, state: dict) -> None:
        self.debt = Fraction(*state["debt"])
