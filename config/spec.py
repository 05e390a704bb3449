"""The `spec` block of a YAML file: a description of the environment, for lists, `stride play` and the inspector.

Nothing here changes the environment; training reads only `goal`."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Quantity:
    """One number of an observation or of a continuous action."""

    name: str
    """Its name."""
    low: float | None = None
    """Smallest value; null = unbounded."""
    high: float | None = None
    """Largest value; null = unbounded."""

    def __str__(self) -> str:
        """Return the name with its bounds: `speed (-2 to 2)`, `height (0 or more)`."""
        if self.low is None:
            return self.name if self.high is None else f"{self.name} ({self.high:g} or less)"
        return f"{self.name} ({self.low:g} {'or more' if self.high is None else f'to {self.high:g}'})"


@dataclass(frozen=True)
class Spec:
    """A description of an environment: its task, goal, reward, actions and observations."""

    goal: float | None = None
    """Mean return over evaluation episodes that counts as solved; null = no goal."""
    description: str = ""
    """The task in one sentence."""
    source: str = ""
    """Link to the environment's documentation."""
    returns: tuple[float, float] | None = None
    """Lowest and highest return an episode can have."""
    rewards: dict[str, str] = field(default_factory=dict)
    """What is rewarded: one text per part of the reward."""
    actions: tuple[str | Quantity, ...] = ()
    """Names of the discrete actions in order, or {name, low, high} per dimension."""
    observations: tuple[Quantity, ...] = ()
    """{name, low, high} per number observed, in order."""
    valid_actions: tuple[int, ...] | None = None
    """The only discrete actions that make sense; null = all."""
    max_episode_steps: int | None = None
    """Time limit of the environment as published (the config's own max_episode_steps changes it)."""

    def action_text(self) -> str:
        """Return names and bounds of the actions, and which of them are valid; "" if the spec has none."""
        text = ", ".join(map(str, self.actions))
        if self.valid_actions is None:
            return text
        names = [str(self.actions[index]) if self.actions else str(index) for index in self.valid_actions]
        return f"{text}{'; ' if text else ''}valid: {', '.join(names)}"

    def observation_text(self) -> str:
        """Return names and bounds of the observed numbers; "" if the spec has none."""
        return ", ".join(map(str, self.observations))
