"""`lag: 1` overlaps: while an iteration is learnt from, the next rollout is played beside it, on a second stream.

Who plays it is known by then: the actor as it was before these updates. It is played into copies, of rows, slots,
worlds and window, which become the memory's and the collector's own only as the next iteration begins. So all stands
between two iterations where it stands on one stream: a checkpoint holds no half of a rollout, and after a load what was
played ahead is ignored.

Two waits order the streams, and no bit hangs on anything else: `begin` has the second one wait for all that was asked
of the first (the copies, the actor, the draws), `collect` has the first one wait for the second before it copies back.
In between the first writes nothing that the second reads, and the other way round.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from stride.agents.engines.fused_gpu.play import FusedPlay, RolloutBuffers
from stride.agents.sockets import Learner


class Beside:
    """A second stream of a GPU; a processor does at once what it is given."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def begin(self, work: Callable[[], None]) -> None:
        """Behind all that the first stream was asked for."""
        if self._stream is None:
            return work()
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            work()

    def wait(self) -> None:
        """The first stream, for what was begun; nobody else."""
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)


class Ahead:
    """Play that may have been done already. Owns the copies; the rollout in them is scratch."""

    def __init__(self, play: FusedPlay, learner: Learner, beside: Beside) -> None:
        self.name, self._play, self._beside = play.name, play, beside
        self._originals = play.buffers(learner, learner.memory.rows)
        self._copies = RolloutBuffers(*([buffer.clone() for buffer in group] for group in self._originals))
        self._noise: Tensor  # lives as long as the second stream may read it
        self._next: tuple[int, ...] = ()  # which rollout lies in the copies

    @property
    def log_prob(self) -> Tensor:
        """Of the actions of the last rollout that was collected, [T, N]."""
        return self._play.log_prob

    def collect(self, learner: Learner, steps: int) -> None:
        collector, memory = learner.collector, learner.memory
        self._beside.wait()  # also for one that is not taken: it reads the same actor
        if self._next != (*_count(learner), steps):
            return self._play.collect(learner, steps)
        for originals, copies in zip(self._originals, self._copies, strict=True):
            torch._foreach_copy_(originals, copies)
        collector.calls += 1
        memory.written += steps

    @torch.no_grad()
    def begin(self, learner: Learner) -> None:
        """Play the next rollout by the collector's policy as it is now, from where the worlds stand now."""
        collector, steps = learner.collector, learner.memory.rows
        torch._foreach_copy_(self._copies.state, self._originals.state)
        self._play.fetch()
        self._noise = collector.noise(steps)
        collector.calls -= 1  # it counts when it is taken
        self._next = (*_count(learner), steps)
        self._beside.begin(lambda: self._play.launch(self._copies, self._noise))


def _count(learner: Learner) -> tuple[int, ...]:
    """Which rollout is the next one: of which load, behind which."""
    return learner.loads, learner.collector.calls, learner.memory.written
