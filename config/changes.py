"""What may be changed about a run that goes on: every difference is named, those that break its state are refused."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from stride.config.loader import to_plain
from stride.config.schema import Config
from stride.utils.user_error import UserError

# what a state was made for: with another value it would not fit, or would silently mean something else
IDENTITY = ("env_id", "algo_id", "seed", "n_envs", "n_steps", "epoch_iterations")
WORLDS = (
    "env_backend", "env_kwargs", "env_wrappers", "frame_skip", "obs", "grayscale_obs", "resize_obs", "frame_stack",
    "action_mask", "max_episode_steps", "normalize_obs", "normalize_reward",
)  # fmt: skip
REPLAY = ("buffer_size", "prioritised", "quantiles", "n_step", "noise_correlation")
NETWORK = ("policy", "policy_kwargs", "hidden_dims", "activation", "share_trunk", "optimizer", "policy_targets", "lag")
FIXED = frozenset((*IDENTITY, *WORLDS, *REPLAY, *NETWORK))
# how often a run is looked at, told of and saved: tests/test_exactness.py holds the weights behind them to the bit
NEUTRAL = frozenset((
    "log_freq_epochs", "eval_freq_epochs", "eval_warmup_epochs", "eval_episodes", "eval_deterministic", "test_episodes",
    "early_stop_on_train_threshold", "early_stop_on_eval_threshold", "early_stop_patience",
    "checkpoint_freq_epochs", "checkpoint_minutes", "checkpoint_keep_last", "checkpoint_keep_best",
    "video_freq_epochs", "video_max_steps", "description", "project_id", "engine", "device", "workers",
))  # fmt: skip

LOOKS = frozenset((
    "log_freq_epochs", "eval_freq_epochs", "eval_warmup_epochs", "eval_episodes", "eval_deterministic", "max_timesteps",
))  # fmt: skip


class Change(NamedTuple):
    """A key whose value is another one now."""

    key: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.key} {_shown(self.before)} -> {_shown(self.after)}"


def changes(before: Config, after: Config, may_differ: Sequence[str] = ()) -> list[Change]:
    """Every key that differs, in the order of the schema; UserError names those that break what is being continued.

    `may_differ`: keys that break nothing where a new run begins: its seed draws other numbers from here on.
    """
    old, new = to_plain(before), to_plain(after)
    found = [Change(key, old[key], new[key]) for key in new if old.get(key) != new[key]]
    broken = [change for change in found if change.key in FIXED and change.key not in may_differ]
    if broken:
        names = ", ".join(str(change) for change in broken)
        raise UserError(f"{names}: the saved state was made for the old value; start a new run for that")
    return found


def unproven(found: Sequence[Change], config: Config, engine: str) -> list[Change]:
    """Those of the changes behind which the rest of the run may be another one. Engines and devices are compared by
    the names of those that were taken."""
    neutral = set(NEUTRAL)
    if not config.schedules():  # they may count from the budget's end
        neutral.add("max_timesteps")
    if config.plateau:  # how often is looked, which may follow from the budget, says when something happens
        neutral -= LOOKS
    if engine == "fused_cpu":
        neutral.add("threads")
    return [change for change in found if change.key not in neutral]


def _shown(value: object) -> str:
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
