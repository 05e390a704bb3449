"""`shards: S`: one training as S parts of its worlds which exchange sums, so that its bits depend on S alone.

Shard s plays the worlds [s n/S, (s + 1) n/S) of n and gives as many rows to each minibatch as every other shard. It has
an agent of its own, which makes every optimizer step itself; each mean over all worlds goes through `Shard`. Sums run
over a fixed binary tree: IEEE addition commutes, and aligned blocks of the tree are associated alike on whichever rank
they are added. So one process with all shards has the bits of S processes with one each.
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

REPORT_BYTES = 1000  # of a text that is gathered from all shards


class SingleShard:
    """The only shard of a training: nothing is exchanged. The methods are those of `Shard`."""

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

    def standardize_batches(self, batches: Iterable[Any], column: str) -> Iterable[Any]:
        """The minibatches of a pass, this column of each standardized over all shards; here as they come."""
        return batches

    def gather_worlds(self, *columns: Tensor) -> Sequence[Tensor]:
        """Columns [T, n] of a shard's worlds -> [T, N] of all worlds, in their order."""
        return columns

    def earliest(self, bad: NonFiniteNumber, worlds: int, env_steps: int) -> NonFiniteNumber:
        """The first of the numbers that shards of so many worlds report after `env_steps` of all worlds."""
        return bad


class Shard(SingleShard):
    """Shard `number` of `count`, of which this process has as many as `threads`."""

    def __init__(self, number: int, count: int, threads: "ShardThreads", index: int) -> None:
        self.number, self.count = number, count
        self._threads, self._index = threads, index

    def sum(self, x: Tensor) -> Tensor:
        return self._threads.sum(self._index, x.detach())

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

    def standardize_batches(self, batches: Iterable[Any], column: str) -> Iterator[Any]:
        batches = list(batches)
        x = torch.stack([getattr(batch, column).flatten().double() for batch in batches])  # [minibatches, rows]
        mean, square = self.mean(torch.stack([x.mean(1), x.square().mean(1)]))
        deviation = (square - mean.square()).clamp(min=0).sqrt() + 1e-8
        for batch, m, d in zip(batches, mean, deviation, strict=True):
            old = getattr(batch, column)
            yield batch._replace(**{column: ((old - m) / d).to(old.dtype)})

    def gather_worlds(self, *columns: Tensor) -> Sequence[Tensor]:
        gathered = self._gather(torch.stack([x.float() for x in columns]))  # [shards, columns, T, n]
        everywhere = gathered.permute(1, 2, 0, 3).flatten(2)
        return [x.to(old.dtype) for x, old in zip(everywhere, columns, strict=True)]

    def earliest(self, bad: NonFiniteNumber, worlds: int, env_steps: int) -> NonFiniteNumber:
        """The earliest row; a loss or a gradient only where no shard has a row."""
        first = self.number * worlds
        report: list[Any] = [True, 0, first, None, bad.description[: REPORT_BYTES // 10]]
        if bad.world is not None and bad.env_step is not None:
            rows_ago = (env_steps - bad.env_step) // worlds
            report[:4] = False, env_steps - rows_ago * worlds * self.count, first, first + bad.world
        text = json.dumps(report).encode().ljust(REPORT_BYTES)
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


SINGLE = SingleShard()


class ShardGroup(Protocol):
    """All shards of a training, as seen by the agent of shard 0, the only one that a trainer knows."""

    def tick(self) -> None:
        """One iteration of all shards."""

    def begin(self, saved: list[dict] | None) -> None:
        """Give every shard the state of shard 0; `saved`: what `states` returned, None where a training begins."""

    def states(self) -> list[dict]:
        """The state of shards 1 to S - 1 that differs between shards, for a checkpoint."""

    def end(self) -> None:
        """End the other ranks."""


class AllReduce(Protocol):
    """The other processes of a training."""

    def sum(self, x: Tensor) -> Tensor:
        """The sum over all processes, in the order of the tree."""


class AbortedError(BaseException):
    """Another shard of this process has failed."""


class ShardThreads:
    """A thread for each shard of this process; one runs at a time, in the order of shards, until it waits for a sum.

    So nothing depends on timing, and an algorithm is written as if it had the process to itself.
    """

    def __init__(self, shards: int, processes: AllReduce | None = None) -> None:
        self._processes = processes
        self._parts: list[Tensor] = [torch.empty(0)] * shards
        self._total = torch.empty(0)
        self._turns = [threading.Semaphore(0) for _ in range(shards)]
        self._pool = ThreadPoolExecutor(shards - 1) if shards > 1 else None
        self._error: BaseException | None = None

    def run(self, works: Sequence[Callable[[], None]]) -> None:
        """Do the work of every shard, the first in this thread. The first error of any of them ends all."""
        for index, work in enumerate(works[1:], 1):
            assert self._pool
            self._pool.submit(self._work, index, work)
        try:
            works[0]()
            self._yield(0)  # until the other shards have done theirs
        except AbortedError as aborted:
            assert self._error
            raise self._error from aborted
        except BaseException as error:  # an interrupt, too, must wake the other threads, or they wait for ever
            self._abort(error)
            raise

    def sum(self, index: int, x: Tensor) -> Tensor:
        """The sum of what all shards of all processes pass; every shard calls this equally often."""
        self._parts[index] = x
        if index == len(self._parts) - 1:
            total = tree_sum(self._parts)
            self._total = self._processes.sum(total) if self._processes else total
        self._yield(index)
        return self._total

    def _yield(self, index: int) -> None:
        """Let the next shard run, until it is this one's turn again."""
        if len(self._turns) > 1:
            self._turns[(index + 1) % len(self._turns)].release()
            self._await_turn(index)

    def _await_turn(self, index: int) -> None:
        self._turns[index].acquire()
        if self._error is not None:
            raise AbortedError

    def _work(self, index: int, work: Callable[[], None]) -> None:
        try:
            self._await_turn(index)
            work()
        except BaseException as error:  # of this thread: the first one reports it, and the others must not wait
            self._abort(error)
            raise
        self._turns[(index + 1) % len(self._turns)].release()

    def _abort(self, error: BaseException) -> None:
        self._error = self._error or error
        for turn in self._turns:
            turn.release()


def tree_sum(parts: Sequence[Tensor]) -> Tensor:
    """The sum of a power of two of tensors: neighbours first, then neighbouring pairs, and so on."""
    while len(parts) > 1:
        parts = [left + right for left, right in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]
