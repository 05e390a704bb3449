"""What would fit where memory ran out: the largest buffer_size or n_envs, as an override of the same command."""

import math
import re
from itertools import pairwise

from stride.agents.experience.storage import SPARE, TooLargeError, free_bytes
from stride.config.loader import from_plain, to_plain
from stride.config.plugins import EVERYBODY
from stride.config.schema import Config, ReplayConfig
from stride.utils.user_error import UserError

STEADY = 0.95  # of what would fit now: other programs take some meanwhile
TRIES = 200  # smaller values, until one keeps every rule (a batch_size in rows has to divide the rollout)
UNITS = {"": 1, "bytes": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
ASKED = re.compile(r"(?:tried to allocate|unable to allocate) ([\d.]+) ?(bytes|[KMGT]?i?B)\b", re.IGNORECASE)
FREE = re.compile(r"of which ([\d.]+) ?(bytes|[KMGT]?i?B) is free")


def offer(config: Config, error: BaseException, held: int = 0) -> str:
    """`key=value, said to fit`; "" where lowering neither would help. `held`: bytes of the agent's memory."""
    if isinstance(error, TooLargeError):
        replayed = isinstance(config, ReplayConfig)
        if error.key != ("buffer_size" if replayed else "n_steps"):
            return ""  # its own line says what fits
        return _lowered(config, error.key if replayed else "n_envs", STEADY * error.fraction)
    asked = _bytes(ASKED, str(error))
    if not asked or 2 * _weights(config) > asked:
        return ""
    free = _bytes(FREE, str(error)) or free_bytes("ram")
    if isinstance(config, ReplayConfig) and held > asked:
        share = (SPARE * (free + held) - asked) / held
        return _lowered(config, "buffer_size", STEADY * min(share, 1.0))
    return _lowered(config, "n_envs", STEADY * min(SPARE * (free + held) / (asked + held), 1.0))


def _lowered(config: Config, key: str, share: float) -> str:
    """The largest value below this share of it with which the config keeps every rule."""
    value = math.floor(vars(config)[key] * share)
    step = max(1, value // TRIES)
    for less in range(value, max(0, value - TRIES * step), -step):
        try:
            from_plain(to_plain(config), overrides=(f"{key}={less}",), trust=EVERYBODY)
        except UserError:
            continue
        return f"{key}={less}"
    return ""


def _bytes(form: re.Pattern[str], text: str) -> int:
    """As torch and NumPy say them, 0 where they do not."""
    found = form.search(text)
    return int(float(found[1]) * UNITS[found[2]]) if found and found[2] in UNITS else 0


def _weights(config: Config) -> int:
    """Bytes of the largest layer between two hidden ones: where that was asked for, fewer worlds do not help."""
    return 4 * max((a * b for a, b in pairwise(config.hidden_dims)), default=0)
