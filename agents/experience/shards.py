"""`shards: S`: data-parallel training. The worlds are split into S parts, the shards, which exchange sums.

Of n worlds shard s plays the worlds [s n/S, (s + 1) n/S), and it gives the same number of rows to each minibatch as
every other shard. Each shard has its own agent, which makes every optimizer step itself; every mean over all worlds is
computed by `Shard`. Sums are added over a fixed binary tree, so results depend on S alone: one process with all shards
gives the same bits as S processes with one shard each.
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

REPORT_BYTES = 1000  # of each shard's JSON text in `earliest`, padded: all shards exchange tensors of one shape


class SingleShard:
    """The only shard of a training: the methods of `Shard` without any exchange."""

    count, number = 1, 0

    def sum(self, x: Tensor) -> Tensor:
        """Return the sum over all shards of tensors of one shape. Do not write to it: shards share the tensor."""
        return x

    def mean(self, x: Tensor) -> Tensor:
        """Return the mean over all shards. All have equally many rows, so a mean of their means is exact."""
        return x

    def means(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the mean over all shards of each of these tensors."""
        return tensors

    def variance(self, x: Tensor) -> Tensor:
        """Return the (unbiased) variance of all numbers of all shards."""
        return x.var()

    def deviation(self, x: Tensor) -> Tensor:
        """Return the standard deviation of all numbers of all shards."""
        return x.std()

    def standardize(self, x: Tensor) -> Tensor:
        """Return `x` shifted and scaled to mean 0 and deviation 1 over all numbers of all shards."""
        return standardize(x)

    def standardize_batches(self, batches: Iterable[Any], column: str) -> Iterable[Any]:
        """Return an epoch's minibatches, this column standardized over all shards; a single shard changes nothing."""
        return batches

    def gather_worlds(self, *columns: Tensor) -> Sequence[Tensor]:
        """Return columns [T, N] of all worlds, in their order, from each shard's columns [T, n]."""
        return columns

    def earliest(self, bad: NonFiniteNumber, worlds: int, env_steps: int) -> NonFiniteNumber:
        """Return the first of all shards' non-finite numbers; `worlds` of a shard, `env_steps` of all worlds so far."""
        return bad


class Shard(SingleShard):
    """Shard `number` of `count`; it is number `index` of the shards of this process, which `threads` runs."""

    def __init__(self, number: int, count: int, threads: "ShardThreads", index: int) -> None:
        self.number, self.count = number, count
        self._threads, self._index = threads, index

    def sum(self, x: Tensor) -> Tensor:
        return self._threads.sum(self._index, x.detach())

    def mean(self, x: Tensor) -> Tensor:
        return self.sum(x) / self.count  # a power of two: exact

    def means(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the mean over all shards of each of these tensors, exchanged as one vector."""
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
        """Return the earliest row of all shards; a loss or a gradient only if no shard has a row."""
        first = self.number * worlds
        # compared in this order: no row?, env step, first world of the shard, world, description
        report: list[Any] = [True, 0, first, None, bad.description[: REPORT_BYTES // 10]]
        if bad.world is not None and bad.env_step is not None:
            rows_ago = (env_steps - bad.env_step) // worlds
            report[:4] = False, env_steps - rows_ago * worlds * self.count, first, first + bad.world
        text = json.dumps(report).encode().ljust(REPORT_BYTES)
        texts = self._gather(torch.tensor(list(text))).to(torch.uint8)
        _, env_step, _, world, description = min(json.loads(bytes(text.tolist())) for text in texts)
        return NonFiniteNumber(description, world, env_step or None)

    def _moments(self, x: Tensor) -> Tensor:
        """Return mean and variance of all numbers of all shards, float64 [2], in which squares of float32 are exact."""
        x = x.double()
        mean, square = self.mean(torch.stack([x.mean(), x.square().mean()]))
        return torch.stack([mean, (square - mean.square()).clamp(min=0)])

    def _gather(self, x: Tensor) -> Tensor:
        """Return [shards, ...], the tensors of all shards: a sum to which each shard adds zeros for the others."""
        mine = x.new_zeros(self.count, *x.shape)
        mine[self.number] = x
        return self.sum(mine)


SINGLE = SingleShard()


class ShardGroup(Protocol):
    """All shards of a training, for the agent of shard 0, which is the only agent that the trainer knows."""

    def tick(self) -> None:
        """Do one iteration of all shards."""

    def begin(self, saved: list[dict] | None) -> None:
        """Give every shard the state of shard 0; `saved`: the result of `states`, None in a new training."""

    def states(self) -> list[dict]:
        """Return those states of shards 1 to S - 1 that differ between shards, for a checkpoint."""

    def end(self) -> None:
        """End the other ranks (processes) of the training."""


class AllReduce(Protocol):
    """Adds tensors over all processes of a training (engines/process_group.py)."""

    def sum(self, x: Tensor) -> Tensor:
        """Return the sum over all processes, added in the order of the tree."""


class AbortedError(BaseException):
    """Ends the thread of a shard because another shard of this process has failed."""


class ShardThreads:
    """Runs each shard of this process in its own thread, one at a time, in order; a shard runs until it asks for a sum.

    So results do not depend on timing, and an algorithm is written as if it were alone in the process.
    """

    def __init__(self, shards: int, processes: AllReduce | None = None) -> None:
        self._processes = processes
        self._parts: list[Tensor] = [torch.empty(0)] * shards
        self._total = torch.empty(0)
        self._turns = [threading.Semaphore(0) for _ in range(shards)]
        self._pool = ThreadPoolExecutor(shards - 1) if shards > 1 else None
        self._error: BaseException | None = None

    def run(self, works: Sequence[Callable[[], None]]) -> None:
        """Run the work of every shard, the first in this thread; the first error ends all, and is raised here."""
        for index, work in enumerate(works[1:], 1):
            assert self._pool
            self._pool.submit(self._work, index, work)
        try:
            works[0]()
            self._yield(0)  # wait until the other shards are done
        except AbortedError as aborted:
            assert self._error
            raise self._error from aborted
        except BaseException as error:  # also an interrupt: the other threads would wait forever
            self._abort(error)
            raise

    def sum(self, index: int, x: Tensor) -> Tensor:
        """Return the sum of `x` over all shards of all processes; every shard must call this equally often."""
        self._parts[index] = x
        if index == len(self._parts) - 1:
            total = tree_sum(self._parts)
            self._total = self._processes.sum(total) if self._processes else total
        self._yield(index)
        return self._total

    def _yield(self, index: int) -> None:
        """Let the next shard run, and wait until it is this shard's turn again."""
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
        except BaseException as error:  # `run` raises it in the first thread; the others must not wait
            self._abort(error)
            raise
        self._turns[(index + 1) % len(self._turns)].release()

    def _abort(self, error: BaseException) -> None:
        self._error = self._error or error
        for turn in self._turns:
            turn.release()


def tree_sum(parts: Sequence[Tensor]) -> Tensor:
    """Return the sum of 2^k tensors: first of neighbours, then of neighbouring pairs, and so on."""
    while len(parts) > 1:
        parts = [left + right for left, right in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]
