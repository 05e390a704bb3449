"""How many updates a replay-based algorithm owes for the steps just collected."""


class Ratio:
    """Learning owed per env step; the fraction left over is kept, and saved."""

    def __init__(self, per_env_step: float, warmup: int) -> None:
        self.per_env_step, self.warmup, self.debt = per_env_step, warmup, 0.0

    def due(self, new_steps: int, remembered: int) -> int:
        """Whole updates to do now; nothing is owed before `warmup` steps are remembered."""
        self.debt += new_steps * self.per_env_step * (remembered >= self.warmup)
        whole = int(self.debt)
        self.debt -= whole
        return whole

    def state_dict(self) -> dict:
        return {"debt": self.debt}

    def load_state_dict(self, state: dict) -> None:
        self.debt = state["debt"]
