"""The processes (ranks) of one training exchange tensors and JSON. Never pickled objects: these could run code.

Ranks of one machine find each other through a file, and use only the loopback device. Ranks of several machines need
MASTER_ADDR and MASTER_PORT. Any computer that can reach that port can join the training: open it to its machines only.
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

from stride.utils.user_error import UserError

JOIN_SECONDS = 300.0  # time in which all ranks must start
TIMEOUT = timedelta(days=7)  # of one exchange: rank 0 may evaluate for hours, and a dead rank is noticed at once
POLL_SECONDS = 0.02  # pause between checks whether all ranks have started
LOOPBACK = {"linux": "lo", "darwin": "lo0"}  # the network device of a machine for itself


class RankLostError(Exception):
    """Another process of this training has ended."""


class ProcessGroup:
    """Communication of this rank with all ranks, whose number is a power of two."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks

    def sum(self, x: Tensor) -> Tensor:
        """Return the sum of `x` over all ranks, added over a tree: neighbours first, then neighbouring pairs.

        Both ranks of a pair get equal bits, since a + b = b + a. (The order of gloo's all_reduce depends on the ranks.)
        """
        distance = 1
        with self._losses_reported():
            while distance < self.ranks:
                received = torch.empty_like(x)
                transfers = [dist.isend(x, self.rank ^ distance), dist.irecv(received, self.rank ^ distance)]
                for transfer in transfers:
                    assert transfer is not None  # this process is in the group
                    transfer.wait()
                x = x + received
                distance *= 2
        return x

    def broadcast(self, message: Mapping[str, Any]) -> None:
        """Send a message as JSON to every other rank; only on rank 0."""
        for rank in range(1, self.ranks):
            self.send_message(rank, message)

    def send_message(self, rank: int, message: Mapping[str, Any]) -> None:
        self.send(rank, json.dumps(message).encode())

    def receive_message(self, rank: int = 0) -> dict[str, Any]:
        message = json.loads(self.receive(rank))
        assert isinstance(message, dict)
        return message

    def send(self, rank: int, data: bytes) -> None:
        with self._losses_reported():
            dist.send(torch.tensor([len(data)]), rank)
            dist.send(torch.frombuffer(bytearray(data), dtype=torch.uint8), rank)

    def receive(self, rank: int) -> bytes:
        with self._losses_reported():
            length = torch.zeros(1, dtype=torch.int64)
            dist.recv(length, rank)
            data = torch.empty(int(length), dtype=torch.uint8)
            dist.recv(data, rank)
        return data.numpy().tobytes()

    def close(self) -> None:
        """Leave the group: ranks that still wait for this one get a RankLostError."""
        dist.destroy_process_group()

    @contextmanager
    def _losses_reported(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            line = f"another process of this training has ended, as rank {self.rank} of {self.ranks} has noticed"
            raise RankLostError(line) from error


def init_process_group(rank: int, ranks: int, file: str = "", check: Callable[[], None] = lambda: None) -> ProcessGroup:
    """Wait until all ranks have started, and return the group; raises UserError after JOIN_SECONDS.

    `file`: a path through which ranks of one machine find each other; "": MASTER_ADDR and MASTER_PORT are the address
    of rank 0. `check` is called while this rank waits, and may raise.
    """
    host, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    local = file or host in ("127.0.0.1", "localhost") or os.environ.get("LOCAL_WORLD_SIZE") == str(ranks)
    if local and sys.platform in LOOPBACK:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK[sys.platform])
    store = dist.FileStore(file, ranks) if file else _store(host, port, rank)
    deadline = time.monotonic() + JOIN_SECONDS
    store.set(f"joined {rank}", "")
    while missing := [str(other) for other in range(ranks) if not store.check([f"joined {other}"])]:
        check()
        if time.monotonic() > deadline:
            raise UserError(f"rank {', '.join(missing)} of {ranks} did not start within {JOIN_SECONDS:g} s")
        time.sleep(POLL_SECONDS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=TIMEOUT)
    return ProcessGroup(rank, ranks)


def _store(host: str, port: str, rank: int) -> dist.Store:
    """Return the store through which ranks of several machines find each other, served by rank 0 or by torchrun."""
    if not host or not port.isdecimal():
        raise UserError(f"MASTER_ADDR and MASTER_PORT must say where rank 0 is, not {host!r} and {port!r}")
    serves = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    limit = timedelta(seconds=JOIN_SECONDS)
    try:
        return dist.TCPStore(host, int(port), is_master=serves, timeout=limit, wait_for_workers=False)
    except (RuntimeError, ValueError) as error:
        problem = "cannot be opened by rank 0" if serves else f"did not answer rank {rank} within {JOIN_SECONDS:g} s"
        raise UserError(f"port {port} of {host} (MASTER_PORT, MASTER_ADDR) {problem}") from error
