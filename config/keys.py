"""Whether an algorithm has a key; if not, one line that says whose it is or which name was meant."""

from stride.config.field_types import hints, schedulable
from stride.config.plugins import algorithms, learn_algorithm
from stride.config.schedule import SCHEDULE_PARTS
from stride.config.schedule_keys import key_of, schedule_key
from stride.config.schema import ALGORITHMS
from stride.utils.user_error import UserError, nearest

FOREIGN = {  # what others call it
    "learning_rate": "policy_lr", "lr": "policy_lr", "total_timesteps": "max_timesteps", "n_timesteps": "max_timesteps",
    "max_env_steps": "max_timesteps", "num_envs": "n_envs", "num_steps": "n_steps", "clip_coef": "clip_range",
    "update_epochs": "n_epochs", "net_arch": "hidden_dims", "reward_threshold": "spec.goal", "goal": "spec.goal",
    "threshold_solved": "spec.goal", "normalize_advantage": "normalize_advantages",
}  # fmt: skip
SET_BY_LOADER = {"variant": "variant is set by ENV:VARIANT"}


def check_algorithm(algo_id: object, where: str) -> str:
    """The name, its keys known from now on: one of your own (`module:Agent`, an entry point) is imported for them."""
    if not isinstance(algo_id, str) or (algo_id not in ALGORITHMS and not learn_algorithm(algo_id, where)):
        known = ", ".join(algorithms())
        raise UserError(f"{where}: no algorithm {algo_id!r} ({known}){nearest(str(algo_id), algorithms())}")
    return algo_id


def is_field(key: str) -> bool:
    """Whether any algorithm knows the key, so that at the top of a file it is no variant."""
    return any(key in known_keys(algo_id) for algo_id in ALGORITHMS)


def known_keys(algo_id: str) -> list[str]:
    """Fields, then the schedule keys of those that can follow one."""
    cls = ALGORITHMS[algo_id]
    scheduled = [key_of(name, part) for name in schedulable(cls) for part in ("kind", *SCHEDULE_PARTS)]
    return [*hints(cls), *scheduled]


def check_key(key: object, algo_id: str, where: str) -> None:
    """UserError unless a config of this algorithm may set the key."""
    if not isinstance(key, str):
        raise UserError(f"{where}: the key {key!r} is not text")
    if key in SET_BY_LOADER:
        raise UserError(f"{where}: {SET_BY_LOADER[key]}")
    known = known_keys(algo_id)
    if key in known:
        return
    parsed = schedule_key(key)
    name = parsed[0] if parsed else key
    cls = ALGORITHMS[algo_id]
    if parsed and name in hints(cls):
        raise UserError(f"{where}: {cannot_schedule(name, algo_id)}")
    owners = [other for other, owner in ALGORITHMS.items() if name in hints(owner)]
    if owners:
        belongs = f"{name} belongs to {' and '.join(owners)}"
        raise UserError(f"{where}: {belongs}; {algo_id} has {', '.join(own_keys(algo_id))}")
    meant = f"; it is called {FOREIGN[key]} here" if key in FOREIGN else nearest(key, known)
    raise UserError(f"{where}: unknown key {key!r}{meant or nearest(key, everyones_keys())}")


def cannot_schedule(name: str, algo_id: str) -> str:
    return f"{name} cannot follow a schedule; {', '.join(schedulable(ALGORITHMS[algo_id]))} can"


def own_keys(algo_id: str) -> list[str]:
    """The fields no other algorithm has."""
    others = {name for other, cls in ALGORITHMS.items() if other != algo_id for name in hints(cls)}
    return [name for name in hints(ALGORITHMS[algo_id]) if name not in others]


def everyones_keys() -> list[str]:
    return [key for algo_id in ALGORITHMS for key in known_keys(algo_id)]
