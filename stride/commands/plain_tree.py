"""Compare nested plain data, such as two checkpoints: list its values by name, fingerprint it, find the differences."""

import hashlib
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor


class NamedValue(NamedTuple):
    """A tensor or a primitive value, and the keys that lead to it: ("optimizer_states", "0", "step")."""

    path: tuple[str, ...]
    value: object

    @property
    def name(self) -> str:
        return ".".join(self.path)


def walk(tree: object, path: tuple[str, ...] = ()) -> Iterator[NamedValue]:
    """Yield every tensor and primitive in nested dicts and lists; an empty dict or list counts as a value."""
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from walk(value, (*path, str(key)))
    elif isinstance(tree, list | tuple) and tree:
        for index, value in enumerate(tree):
            yield from walk(value, (*path, str(index)))
    else:
        yield NamedValue(path, tree)


def fingerprint(tree: object) -> str:
    """Return a SHA-256 of all names, types, shapes and bits."""
    digest = hashlib.sha256()
    for path, value in walk(tree):
        digest.update(repr(path).encode())
        if isinstance(value, Tensor):
            digest.update(f"{value.dtype}{list(value.shape)}".encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        else:
            digest.update(repr(value).encode())
    return digest.hexdigest()


class Difference(NamedTuple):
    """A value that differs. `size`: the largest absolute difference, infinity if the kinds differ."""

    name: str
    size: float
    words: str


def differences(first_tree: object, second_tree: object) -> list[Difference]:
    """Return where two trees differ: missing values first, then differing ones in the order of the first tree."""
    first = {item.name: item.value for item in walk(first_tree)}
    second = {item.name: item.value for item in walk(second_tree)}
    results = [Difference(name, math.inf, "is missing in the second") for name in first if name not in second]
    results += [Difference(name, math.inf, "is only in the second") for name in second if name not in first]
    for name in first:
        if name in second and (difference := _difference(name, first[name], second[name])):
            results.append(difference)
    return results


def _difference(name: str, a: object, b: object) -> Difference | None:
    if isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape and a.dtype == b.dtype:
        if fingerprint(a) == fingerprint(b):
            return None
        x, y = a.double().flatten(), b.double().flatten()
        size = (x - y).abs().nan_to_num(nan=math.inf).max().item()
        return Difference(name, size, f"differs by up to {size:.3g}")
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return Difference(name, math.inf, "differs in shape or type")
    if repr(a) == repr(b):
        return None
    size = math.inf
    if isinstance(a, int | float) and isinstance(b, int | float) and bool not in (type(a), type(b)):
        size = abs(a - b)
    return Difference(name, size, f"is {a!r}, not {b!r}"[:120])
