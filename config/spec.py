"""The `spec` block of a YAML file: an environment described for listing, play and inspector.

Nothing here changes the environment; `goal` is the one entry that training reads."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Quantity:
    """One number of an observation or of a continuous action."""

    name: str
    """What it is called."""
    low: float | None = None
    """Smallest value; null where unbounded."""
    high: float | None = None
    """Largest value; null where unbounded."""


@dataclass(frozen=True)
class Spec:
    """The environment described: its goal, its numbers and their names."""

    goal: float | None = None
    """Mean return over evaluation episodes that counts as solved; null where nothing does."""
    description: str = ""
    """The task in one sentence."""
    source: str = ""
    """Where the environment is documented."""
    returns: tuple[float, float] | None = None
    """Lowest and highest return an episode can have."""
    rewards: dict[str, str] = field(default_factory=dict)
    """What is rewarded: a text per part."""
    actions: tuple[str | Quantity, ...] = ()
    """Names of the discrete actions in order, or {name, low, high} per dimension."""
    observations: tuple[Quantity, ...] = ()
    """{name, low, high} per number observed, in order."""
    valid_actions: tuple[int, ...] | None = None
    """The only discrete actions that make sense; null = all."""
    max_episode_steps: int | None = None
    """Time limit of the environment as published (the config's own max_episode_steps changes it)."""
