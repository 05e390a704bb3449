"""Means of scalar metrics, summed on the device until a row of metrics is due: adding never waits for the GPU.

What a metric means (title, unit, bounds) is declared in config/metrics.yaml, not here.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from stride.envs_fast.vec_env import CPU

Counts = Counter[tuple[str, ...]]  # names added together -> how many samples of them


class Metrics:
    """Collects means of the samples that were `add`ed, and last values that were `set`, since the last `flush`.

    Scalars added together are summed as one vector in float64, so an `add` costs two small operations however many
    names it brings, and a NaN spoils its own name only.
    """

    def __init__(self, device: torch.device = CPU, check: Callable[[str], None] = lambda name: None) -> None:
        """`device`: the device of the samples. `check` raises an error for a name that must not be logged."""
        self.device = device
        self._check = check
        self.stay = False
        """whether sums keep their addresses after a flush, because a CUDA graph adds to them"""
        self._sums: dict[tuple[str, ...], Tensor] = {}  # names added together -> their sums, float64
        self._counts = Counts()
        self._last: dict[str, Tensor | float] = {}
        self._due: Callable[[], None] | None = None

    def later(self, add: Callable[[], None]) -> None:
        """Call `add` later, when a device has computed the samples: before the next flush, state_dict or `later`."""
        self.settle()
        self._due = add

    def settle(self) -> None:
        """Call the function that was passed to `later`, if it was not called yet."""
        pending, self._due = self._due, None
        if pending:
            pending()

    def add(self, values: Mapping[str, Tensor]) -> None:
        """Add one sample of each name; the tensors are scalars on one device.

        The host does not wait. A name is checked when it is first added after a flush. A NaN spoils only its own mean.
        """
        if not values:
            return
        self._add(tuple(values), torch.stack([value.detach() for value in values.values()]), 1)

    def add_all(self, samples: Sequence[Mapping[str, Tensor]]) -> None:
        """Add several samples of the same names at once: one stack for all of them, however many there are."""
        if not samples:
            return
        names = tuple(samples[0])
        sample_rows = torch.stack([value.detach() for sample in samples for value in sample.values()])
        self._add(names, sample_rows.view(len(samples), len(names)).double().sum(0), len(samples))

    def add_sums(self, names: tuple[str, ...], sums: np.ndarray, count: int) -> None:
        """Add `count` samples of each name at once, given as their sums, float64."""
        if count:
            self._add(names, torch.from_numpy(sums), count)

    def _add(self, names: tuple[str, ...], sums: Tensor, count: int) -> None:
        if names in self._sums:
            self._sums[names] += sums
        else:  # once after each flush
            for name in names:
                self._check(name)
            self._sums[names] = sums.to(torch.float64, copy=True)
        self._counts[names] += count

    @property
    def counts(self) -> Counts:
        """How many samples were added since the last flush, by the names that were added together."""
        return self._counts.copy()

    def count(self, samples: Counts) -> None:
        """Count samples that a CUDA graph added to the sums on the device, without a call of `add`."""
        self._counts += samples

    def set(self, values: Mapping[str, Tensor | float]) -> None:
        """Report these values as they are now; a later `set` of the same name replaces them."""
        for name, value in values.items():
            if name not in self._last:
                self._check(name)
            self._last[name] = value.detach().clone() if isinstance(value, Tensor) else float(value)

    def flush(self) -> dict[str, float]:
        """Return means and last values by name, fetched with one transfer per device, and start anew."""
        self.settle()
        fetched = _fetch([*self._sums.values(), *(torch.as_tensor(value) for value in self._last.values())])
        totals: dict[str, float] = defaultdict(float)
        counts: Counter[str] = Counter()
        for names, sums in zip(self._sums, fetched, strict=False):
            for name, total in zip(names, sums, strict=True):
                totals[name] += total
                counts[name] += self._counts[names]
        means = {name: totals[name] / count for name, count in counts.items() if count}
        last_values = {name: value for name, [value] in zip(self._last, fetched[len(self._sums) :], strict=True)}
        if duplicates := means.keys() & last_values.keys():
            raise ValueError(f"metrics both added and set: {', '.join(sorted(duplicates))}")
        if self.stay:
            for gathered_sums in self._sums.values():
                gathered_sums.zero_()
        else:
            self._sums = {}
        self._counts = Counts()
        self._last = {}
        return means | last_values

    def state_dict(self) -> dict:
        """Return everything added since the last flush as plain data, for a checkpoint between two flushes."""
        self.settle()
        sum_groups = [
            {"names": list(names), "sums": sums.clone(), "count": self._counts[names]}
            for names, sums in self._sums.items()
            if self._counts[names]
        ]
        return {"groups": sum_groups, "last": dict(self._last)}

    def load_state_dict(self, state: dict) -> None:
        """Continue from a `state_dict`; the sums get new addresses."""
        self._due = None
        self._sums = {tuple(group["names"]): group["sums"].to(self.device, copy=True) for group in state["groups"]}
        self._counts = Counts({tuple(group["names"]): group["count"] for group in state["groups"]})
        self._last = dict(state["last"])


def _fetch(tensors: list[Tensor]) -> list[list[float]]:
    """Return the numbers of each tensor, with one copy to the host for all tensors of a device."""
    numbers: list[list[float]] = [[] for _ in tensors]
    for device in {tensor.device for tensor in tensors}:
        indices = [i for i, tensor in enumerate(tensors) if tensor.device == device]
        flat_numbers = torch.cat([tensors[i].reshape(-1).double() for i in indices]).cpu()
        for i, piece in zip(indices, flat_numbers.split([tensors[i].numel() for i in indices]), strict=True):
            numbers[i] = piece.tolist()
    return numbers
