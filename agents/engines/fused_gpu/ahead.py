"""`lag: 1` on a GPU: while one rollout is learnt from, the next one is already played, on a second CUDA stream.

With `lag: 1` the actor from before the updates plays, so it is known when the updates begin. It plays into copies of
rows, slots, worlds and window. They are copied into the memory and the collector when the next iteration begins. So
between two iterations the state is the same as with one stream: a checkpoint has no half rollout, and after a load the
rollout that was played ahead is ignored.

Two waits order the streams, so that results do not depend on timing: in `begin` the second stream waits for all earlier
work of the first (copies, actor, random numbers), in `collect` the first waits for the second before it copies back. In
between neither stream writes what the other reads.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from stride.agents.engines.fused_gpu.play import FusedPlay, RolloutBuffers
from stride.agents.sockets import Learner


class Beside:
    """A second CUDA stream for work beside the first stream's; on the CPU the work is done at once."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def begin(self, work: Callable[[], None]) -> None:
        """Do `work` on the second stream, after all that the first stream was given so far."""
        if self._stream is None:
            return work()
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            work()

    def wait(self) -> None:
        """Make the first stream (not the host) wait for the second stream's work."""
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)


class Ahead:
    """The socket Play that plays the next rollout ahead (`begin`), and takes it over in `collect`. Owns the copies."""

    def __init__(self, play: FusedPlay, learner: Learner, beside: Beside) -> None:
        self.name, self._play, self._beside = play.name, play, beside
        self._originals = play.buffers(learner, learner.memory.rows)
        self._copies = RolloutBuffers(*([buffer.clone() for buffer in group] for group in self._originals))
        self._noise: Tensor  # kept here while the second stream may read it
        self._next: tuple[int, ...] = ()  # which rollout is in the copies, as _rollout_key numbers it

    @property
    def log_prob(self) -> Tensor:
        """Log-probabilities [T, N] of the actions of the last collected rollout."""
        return self._play.log_prob

    def collect(self, learner: Learner, steps: int) -> None:
        collector, memory = learner.collector, learner.memory
        self._beside.wait()  # even if that rollout is not used: it reads the same actor
        if self._next != (*_rollout_key(learner), steps):
            return self._play.collect(learner, steps)
        for originals, copies in zip(self._originals, self._copies, strict=True):
            torch._foreach_copy_(originals, copies)
        collector.calls += 1
        memory.written += steps

    @torch.no_grad()
    def begin(self, learner: Learner) -> None:
        """Start to play the next rollout, with the collector's current policy, from the current state of the worlds."""
        collector, steps = learner.collector, learner.memory.rows
        torch._foreach_copy_(self._copies.state, self._originals.state)
        self._play.fetch()
        self._noise = collector.noise(steps)
        collector.calls -= 1  # `noise` counted a call; `collect` will count it
        self._next = (*_rollout_key(learner), steps)
        self._beside.begin(lambda: self._play.launch(self._copies, self._noise))


def _rollout_key(learner: Learner) -> tuple[int, ...]:
    """Return what identifies the next rollout: the number of loads, of collected rollouts and of written rows."""
    return learner.loads, learner.collector.calls, learner.memory.written
