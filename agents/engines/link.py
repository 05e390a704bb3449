"""Leads from one process of a training to the others: tensors, and texts as bytes; never objects, which would be code.

Processes of one machine meet in a file and talk over its loopback; those of several where whoever started them says.
Who reaches that port takes part in the training: let only its machines reach it.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

PATIENCE = timedelta(days=7)  # rank 0 may evaluate for hours; a process that dies is noticed by its closed connection
TICK = 0.02  # seconds


class LinkLostError(Exception):
    """A process of this training is gone."""


class ProcessLink:
    """Of process `rank` among `ranks`, a power of two."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks

    def sum(self, x: Tensor) -> Tensor:
        """Neighbours first, then neighbouring pairs: both of a pair add the same two numbers, in whatever order."""
        distance = 1
        with self._watched():
            while distance < self.ranks:
                theirs = torch.empty_like(x)
                works = [dist.isend(x, self.rank ^ distance), dist.irecv(theirs, self.rank ^ distance)]
                for work in works:
                    assert work is not None  # this process is in the group
                    work.wait()
                x = x + theirs
                distance *= 2
        return x

    def say(self, order: Mapping[str, Any]) -> None:
        """Rank 0: tell every other process."""
        text = json.dumps(order).encode()
        for rank in range(1, self.ranks):
            self.send(rank, text)

    def hear(self) -> dict[str, Any]:
        """What rank 0 says next."""
        order = json.loads(self.receive(0))
        assert isinstance(order, dict)
        return order

    def send(self, rank: int, data: bytes) -> None:
        with self._watched():
            dist.send(torch.tensor([len(data)]), rank)
            dist.send(torch.frombuffer(bytearray(data), dtype=torch.uint8), rank)

    def receive(self, rank: int) -> bytes:
        with self._watched():
            length = torch.zeros(1, dtype=torch.int64)
            dist.recv(length, rank)
            data = torch.empty(int(length), dtype=torch.uint8)
            dist.recv(data, rank)
        return data.numpy().tobytes()

    def close(self) -> None:
        """Leave: whoever still waits for this process learns that it is gone."""
        dist.destroy_process_group()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            line = f"another process of this training has ended, which process {self.rank} of {self.ranks} noticed"
            raise LinkLostError(line) from error


def connect(rank: int, ranks: int, meeting: str = "", watch: Callable[[], None] = lambda: None) -> ProcessLink:
    """The link of this process. `meeting`: a file in which the processes of one machine find each other, else
    MASTER_ADDR and MASTER_PORT say where rank 0 is. `watch` is called while rank 0 waits for the others, and may raise.
    """
    if not meeting:
        dist.init_process_group("gloo", "env://", rank=rank, world_size=ranks, timeout=PATIENCE)
        return ProcessLink(rank, ranks)
    if sys.platform == "linux":
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = dist.FileStore(meeting, ranks)
    store.set(f"here {rank}", "")
    while rank == 0 and not store.check([f"here {other}" for other in range(ranks)]):
        watch()
        time.sleep(TICK)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=PATIENCE)
    return ProcessLink(rank, ranks)
