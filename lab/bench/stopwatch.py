"""Calls timed from outside, by putting a watch around functions and methods for as long as a block lasts."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import NamedTuple, ParamSpec, TypeVar

Place = tuple[object, str]  # a class or a module, and the name of a function in it
P = ParamSpec("P")
T = TypeVar("T")


class Span(NamedTuple):
    """One call, in seconds of the performance counter."""

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


@contextmanager
def timed(places: Mapping[str, Sequence[Place]]) -> Iterator[dict[str, list[Span]]]:
    """Under each name, in order, every call that ends while the block lasts of any of its places."""
    found: dict[str, list[Span]] = {name: [] for name in places}
    before = [(owner, name, getattr(owner, name)) for group in places.values() for owner, name in group]
    try:
        for label, group in places.items():
            for owner, name in group:
                setattr(owner, name, _noting(getattr(owner, name), found[label]))
        yield found
    finally:
        for owner, name, own in before:
            setattr(owner, name, own)


def _noting(call: Callable[P, T], found: list[Span]) -> Callable[P, T]:
    @wraps(call)  # Lightning looks at the names of training_step's arguments
    def noted(*args: P.args, **options: P.kwargs) -> T:
        began = time.perf_counter()
        answer = call(*args, **options)
        found.append(Span(began, time.perf_counter()))
        return answer

    return noted
