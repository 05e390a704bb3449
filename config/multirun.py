"""Several trainings of one command line: each ENV:VARIANT with each combination of the values that `-m` multiplies."""

from collections.abc import Sequence
from itertools import product

from stride.utils.user_error import UserError

MOST = 1000  # runs of one command


def combinations(overrides: Sequence[str]) -> list[tuple[str, ...]]:
    """`a=1,2 b=3` as (a=1, b=3) and (a=2, b=3): Hydra's own grammar, where a list, [64,64], is one value."""
    found: list[tuple[str, ...]] = [()]
    for values in map(values_of, overrides):
        found = [*map(lambda pair: (*pair[0], pair[1]), product(found, values))]
        if len(found) > MOST:
            raise UserError(f"-m: these values make more than {MOST:,} combinations")
    return found


def values_of(word: str) -> list[str]:
    """One override as many, each with a single value."""
    from hydra.core.override_parser.overrides_parser import OverridesParser  # 0.2 s
    from hydra.core.override_parser.types import Glob
    from hydra.errors import HydraException

    plain = word.removeprefix("--")
    key = plain.partition("=")[0]
    try:
        override = OverridesParser.create().parse_override(plain)
        if not override.is_sweep_override():
            return [word]
        if not override.is_discrete_sweep() or isinstance(override.value(), Glob):
            raise UserError(f"-m {word}: takes values, such as {key}=1e-3,3e-4 or {key}=range(1,5)")
        values = [f"{key}={value}" for value in override.sweep_string_iterator()]
    except HydraException as error:
        raise UserError(f"-m {word}: {str(error).splitlines()[0]}") from error
    if key == "seed":
        raise UserError(f"-m {word}: --seed 1,2,3 says several seeds")
    if len({*values}) < len(values):
        raise UserError(f"-m {word}: a value is given twice")
    return values
