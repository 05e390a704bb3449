"""Plain data as a list of leaves: to fingerprint a checkpoint, and to say where two of them first differ."""

import hashlib
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor


class Leaf(NamedTuple):
    """A tensor or a primitive, and the names that lead to it."""

    path: tuple[str, ...]
    value: object

    @property
    def name(self) -> str:
        return ".".join(self.path)


def walk(tree: object, path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Every leaf; an empty mapping or list is a leaf of its own."""
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from walk(value, (*path, str(key)))
    elif isinstance(tree, list | tuple) and tree:
        for index, value in enumerate(tree):
            yield from walk(value, (*path, str(index)))
    else:
        yield Leaf(path, tree)


def fingerprint(tree: object) -> str:
    """SHA-256 over names, types, shapes and bits."""
    found = hashlib.sha256()
    for leaf in walk(tree):
        found.update(repr(leaf.path).encode())
        if isinstance(leaf.value, Tensor):
            found.update(f"{leaf.value.dtype}{list(leaf.value.shape)}".encode())
            found.update(leaf.value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        else:
            found.update(repr(leaf.value).encode())
    return found.hexdigest()


class Difference(NamedTuple):
    """A leaf that is not the same; `size` is the largest distance, infinite where the kinds differ."""

    name: str
    size: float
    words: str


def differences(one: object, other: object) -> list[Difference]:
    """Where two trees differ, in the order of the first."""
    mine, theirs = ({leaf.name: leaf.value for leaf in walk(tree)} for tree in (one, other))
    found = [Difference(name, math.inf, "is missing in the other") for name in mine if name not in theirs]
    found += [Difference(name, math.inf, "is only in the other") for name in theirs if name not in mine]
    return found + [d for name in mine if name in theirs and (d := _difference(name, mine[name], theirs[name]))]


def _difference(name: str, a: object, b: object) -> Difference | None:
    if isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape and a.dtype == b.dtype:
        if fingerprint(a) == fingerprint(b):
            return None
        x, y = a.double().flatten(), b.double().flatten()
        size = (x - y).abs().nan_to_num(nan=math.inf).max().item()
        return Difference(name, size, f"differs by up to {size:.3g}")
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return Difference(name, math.inf, "is another tensor")
    if repr(a) == repr(b):
        return None
    size = math.inf
    if isinstance(a, int | float) and isinstance(b, int | float) and bool not in (type(a), type(b)):
        size = abs(a - b)
    return Difference(name, size, f"is {a!r}, not {b!r}"[:120])
