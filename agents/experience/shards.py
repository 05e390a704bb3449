"""`shards: S`: one training as S parts of its worlds which exchange sums, so that its bits depend on S alone.

Shard s plays the worlds [s n/S, (s + 1) n/S) of n and gives as many rows to each minibatch as every other shard. It is
an agent like any other, and makes every step itself; whatever is a mean over all worlds goes through `Shard`. Sums run
over a fixed binary tree: IEEE addition commutes, and aligned blocks of the tree are associated alike wherever they are
added. So one process that carries all shards has the bits of S processes with one each.
"""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import torch
from torch import Tensor

from stride.agents.experience.finite_guard import NonFiniteNumber
from stride.agents.returns import standardize

TEXT = 1000  # bytes of a text that shards tell each other


class OneShard:
    """The only part of a training: what is true of it is true of all. The methods are those of `Shard`."""

    count, number = 1, 0

    def sum(self, x: Tensor) -> Tensor:
        """The sum over all shards of tensors of one shape, equal in each of them; not to be written to."""
        return x

    def mean(self, x: Tensor) -> Tensor:
        """The mean over all shards; of means over their rows, which are as many in each, that over all rows."""
        return x

    def means(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """The mean over all shards of each of these tensors."""
        return tensors

    def variance(self, x: Tensor) -> Tensor:
        """Of all numbers of all shards."""
        return x.var()

    def deviation(self, x: Tensor) -> Tensor:
        """Of all numbers of all shards."""
        return x.std()

    def standardize(self, x: Tensor) -> Tensor:
        """Mean 0, deviation 1 over all numbers of all shards."""
        return standardize(x)

    def standardized(self, batches: Iterable[Any], column: str) -> Iterable[Any]:
        """The minibatches of a pass, this column of each standardized over all shards; here as they come."""
        return batches

    def worlds(self, *columns: Tensor) -> Sequence[Tensor]:
        """Columns [T, n] of a shard's worlds -> [T, N] of all worlds, in their order."""
        return columns

    def first_of(self, bad: NonFiniteNumber, worlds: int, env_steps: int) -> NonFiniteNumber:
        """Of what each shard found in its `worlds` up to now, `env_steps` of all worlds, what to report."""
        return bad


class Shard(OneShard):
    """Shard `number` of `count`, at a place of its process's table."""

    def __init__(self, number: int, count: int, table: "Table", place: int) -> None:
        self.number, self.count = number, count
        self._table, self._place = table, place

    def sum(self, x: Tensor) -> Tensor:
        return self._table.sum(self._place, x.detach())

    def mean(self, x: Tensor) -> Tensor:
        return self.sum(x) / self.count  # a power of two: exact

    def means(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The mean over all shards of each of these tensors, exchanged as one vector."""
        vector = self.mean(torch.cat([x.detach().flatten() for x in tensors]))
        return [x.view_as(old) for x, old in zip(vector.split([x.numel() for x in tensors]), tensors, strict=True)]

    def variance(self, x: Tensor) -> Tensor:
        numbers = x.numel() * self.count
        return (self._moments(x)[1] * (numbers / (numbers - 1))).to(x.dtype)

    def deviation(self, x: Tensor) -> Tensor:
        return self.variance(x).sqrt()

    def standardize(self, x: Tensor) -> Tensor:
        mean, variance = self._moments(x)
        return ((x - mean) / (variance.sqrt() + 1e-8)).to(x.dtype)

    def standardized(self, batches: Iterable[Any], column: str) -> Iterator[Any]:
        batches = list(batches)
        x = torch.stack([getattr(batch, column).flatten().double() for batch in batches])  # [minibatches, rows]
        mean, square = self.mean(torch.stack([x.mean(1), x.square().mean(1)]))
        deviation = (square - mean.square()).clamp(min=0).sqrt() + 1e-8
        for batch, m, d in zip(batches, mean, deviation, strict=True):
            old = getattr(batch, column)
            yield batch._replace(**{column: ((old - m) / d).to(old.dtype)})

    def worlds(self, *columns: Tensor) -> Sequence[Tensor]:
        gathered = self._gather(torch.stack([x.float() for x in columns]))  # [shards, columns, T, n]
        everywhere = gathered.permute(1, 2, 0, 3).flatten(2)
        return [x.to(old.dtype) for x, old in zip(everywhere, columns, strict=True)]

    def first_of(self, bad: NonFiniteNumber, worlds: int, env_steps: int) -> NonFiniteNumber:
        """The earliest row; a loss or a gradient only where no shard found a row."""
        found: list[Any] = [True, 0, self.number, None, bad.description[: TEXT // 10]]
        if bad.world is not None and bad.env_step is not None:
            rows_ago = (env_steps - bad.env_step) // worlds
            found[:4] = False, env_steps - rows_ago * worlds * self.count, self.number, self.number * worlds + bad.world
        text = json.dumps(found).encode().ljust(TEXT)
        texts = self._gather(torch.tensor(list(text))).to(torch.uint8)
        _, env_step, _, world, description = min(json.loads(bytes(text.tolist())) for text in texts)
        return NonFiniteNumber(description, world, env_step or None)

    def _moments(self, x: Tensor) -> Tensor:
        """Mean and variance of all numbers of all shards, [2] float64: squares of float32 are exact in it."""
        x = x.double()
        mean, square = self.mean(torch.stack([x.mean(), x.square().mean()]))
        return torch.stack([mean, (square - mean.square()).clamp(min=0)])

    def _gather(self, x: Tensor) -> Tensor:
        """[shards, ...]: a sum to which each shard adds zeros for all others."""
        mine = x.new_zeros(self.count, *x.shape)
        mine[self.number] = x
        return self.sum(mine)


ALONE = OneShard()


class Crew(Protocol):
    """The shards of a training beside that of rank 0's first agent, who leads them."""

    def tick(self) -> None:
        """An iteration of all shards, the leader's included."""

    def begin(self, saved: list[dict] | None) -> None:
        """Give everybody the leader's state; `saved`: what `states` once answered, None where a training begins."""

    def states(self) -> list[dict]:
        """What the parts of all shards but the leader's would have in a checkpoint, in their order."""

    def end(self) -> None:
        """Dismiss the others."""


class Link(Protocol):
    """Leads to the other processes of a training."""

    def sum(self, x: Tensor) -> Tensor:
        """The sum over all processes, in the order of the tree."""


class OverError(BaseException):
    """Another shard of this process has failed: this one gives up its work."""


class Table:
    """Where the shards of one process meet: a thread for each, of which one runs at a time, in their order.

    So nothing depends on timing, and an algorithm reads as if it had its process to itself.
    """

    def __init__(self, places: int, link: Link | None = None) -> None:
        self._link = link
        self._said: list[Tensor] = [torch.empty(0)] * places
        self._total = torch.empty(0)
        self._turns = [threading.Semaphore(0) for _ in range(places)]
        self._threads = ThreadPoolExecutor(places - 1) if places > 1 else None
        self._error: BaseException | None = None

    def run(self, works: Sequence[Callable[[], None]]) -> None:
        """Do the work of every place, the first in this thread. The first error of any of them ends all."""
        for place, work in enumerate(works[1:], 1):
            assert self._threads
            self._threads.submit(self._attend, place, work)
        try:
            works[0]()
            self._hand_on(0)  # until the others have done theirs, too
        except OverError as over:
            assert self._error
            raise self._error from over
        except BaseException as error:
            self._leave(error)
            raise

    def sum(self, place: int, x: Tensor) -> Tensor:
        """The sum of what is said at every place of every process; each place comes here as often as all others."""
        self._said[place] = x
        if place == len(self._said) - 1:
            total = tree_sum(self._said)
            self._total = self._link.sum(total) if self._link else total
        self._hand_on(place)
        return self._total

    def _hand_on(self, place: int) -> None:
        """Let the next place run, until it is this one's turn again."""
        if len(self._turns) > 1:
            self._turns[(place + 1) % len(self._turns)].release()
            self._await_turn(place)

    def _await_turn(self, place: int) -> None:
        self._turns[place].acquire()
        if self._error is not None:
            raise OverError

    def _attend(self, place: int, work: Callable[[], None]) -> None:
        try:
            self._await_turn(place)
            work()
        except BaseException as error:
            self._leave(error)
            raise
        self._turns[(place + 1) % len(self._turns)].release()

    def _leave(self, error: BaseException) -> None:
        self._error = self._error or error
        for turn in self._turns:
            turn.release()


def tree_sum(parts: Sequence[Tensor]) -> Tensor:
    """Of as many parts as a power of two: neighbours first, then neighbouring pairs, and so on."""
    while len(parts) > 1:
        parts = [left + right for left, right in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]
