"""Where the time of a training went: its phases, and a line that tells them."""

from collections.abc import Mapping

PHASES = ("collect", "learn", "evaluate", "save", "other")  # every second is in one of them
PREFIX = "train/time/"  # of a row: the share of each in the time since the row before


def shares(seconds: Mapping[str, float]) -> dict[str, float]:
    """Of all seconds the part of each phase; {} where none has passed."""
    total = sum(seconds.values())
    return {phase: seconds[phase] / total for phase in PHASES} if total > 0 else {}


def told(parts: Mapping[str, float]) -> str:
    """`learn 61 %, collect 20 %, ..`, the largest first and other last, without those that round to 0 %."""
    seen = [phase for phase in parts if parts[phase] >= 0.005]
    order = sorted(seen, key=lambda phase: (phase == "other", -parts[phase]))
    return ", ".join(f"{phase} {100 * parts[phase]:.0f} %" for phase in order)
