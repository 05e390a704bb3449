"""`engine: graphed`: one CUDA graph for a rollout, another for all updates of an iteration; works for any policy.

A CUDA graph repeats the operations that were captured, on the same addresses and without Python. So every number that
changes is in a tensor on the device that stays at its address (scheduled settings, counters of random draws, sums of
metrics), and this module counts what Python would count. The first iteration after a start or a load runs like eager,
which compiles kernels and allocates moments and sums. The second one is captured; all later ones replay it.
"""

from collections.abc import Callable, Hashable
from typing import NamedTuple, Protocol

import torch

from stride.agents.base import Agent
from stride.agents.experience.nouns import Rollout, Tree, copy_into, tree_map
from stride.agents.metric_sums import Counts
from stride.agents.ppo import PPO
from stride.agents.pqn import PQN
from stride.agents.reinforce import REINFORCE
from stride.agents.sockets import EagerPlay, Engine, Learner, Play
from stride.config.schema import Config, PolicyGradientConfig, ReplayConfig, explores
from stride.envs_fast.cuda_env import CudaEnv
from stride.utils.user_error import UserError

Work = Callable[[], None]
SUPPORTED_AGENTS = (PPO, REINFORCE, PQN)  # by exact class: derived classes may learn in another way


class Graph(Protocol):
    """Some work on a device that can be repeated without Python. Each of the three methods does it once."""

    def rehearse(self, work: Work) -> None:
        """Do the work without capture, so that kernels are compiled and buffers allocated."""

    def capture(self, work: Work) -> None:
        """Do the work, and record each operation with its addresses."""

    def replay(self) -> None:
        """Do the captured work again."""


class CudaGraph:
    """A CUDA graph of torch, with its own stream and its own memory pool."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)
        self._graph = torch.cuda.CUDAGraph()

    def rehearse(self, work: Work) -> None:
        main_stream = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(main_stream)
        with torch.cuda.stream(self._stream):
            work()
        main_stream.wait_stream(self._stream)

    def capture(self, work: Work) -> None:
        try:
            # thread_local: calls of other threads do not disturb the capture
            with torch.cuda.graph(self._graph, stream=self._stream, capture_error_mode="thread_local"):
                work()
        except torch.AcceleratorError as error:
            reason = str(error).partition("\n")[0]
            line = f"engine: graphed cannot capture this policy ({reason}); use engine=eager"
            raise UserError(line) from error
        self._graph.replay()

    def replay(self) -> None:
        self._graph.replay()


MakeGraph = Callable[[torch.device], Graph]


# settings that torch's operations take as Python numbers, so a graph keeps the captured values: no schedules for them
FIXED = ("gamma", "gae_lambda", "return_lambda", "weight_decay", "optimizer_eps")


class CapturedWork:
    """Runs a learner's work: the first time in plain torch, the second time captured, then replayed."""

    def __init__(self, make: MakeGraph, device: torch.device) -> None:
        self._make, self._device = make, device
        self._graph: Graph | None = None
        self._key: Hashable = None
        self._captured = False

    def run(self, work: Work, key: Hashable) -> bool:
        """Do the work; return False if it was replayed, so that Python counted nothing.

        A `key` other than the last one means other work, or new addresses after a load: it starts from the beginning.
        """
        if self._graph is None or key != self._key:
            self._graph, self._key, self._captured = self._make(self._device), key, False
            self._graph.rehearse(work)
        elif not self._captured:
            self._graph.capture(work)
            self._captured = True
        else:
            self._graph.replay()
            return False
        return True


class GraphedPlay:
    """Play for engine graphed: the steps of `play`, by default of the collector, in a graph.

    The memory's rows must be the same each time, as in a rollout.
    """

    def __init__(self, make: MakeGraph, device: torch.device, play: Play | None = None) -> None:
        self.name, self._play = play.name if play else "graphed", play or EagerPlay()
        self._calls = torch.zeros((), dtype=torch.int64, device=device)
        self._work = CapturedWork(make, device)

    def collect(self, learner: Learner, steps: int) -> None:
        collector, memory = learner.collector, learner.memory
        collector.counter = self._calls.fill_(collector.calls + 1)
        head = memory.written % memory.rows
        if not self._work.run(lambda: self._play.collect(learner, steps), (learner.loads, steps, head)):
            collector.calls += 1
            memory.written += steps


class LearnCounts(NamedTuple):
    """Counts that Python adds in an iteration's learning, to be added again for each replay."""

    updates: int
    samples: Counts


class GraphedLearn:
    """Learn for engine graphed: the agent's own `learn`, with all its updates, in a graph."""

    name = "graphed"

    def __init__(self, make: MakeGraph, device: torch.device) -> None:
        self._iterations = torch.zeros((), dtype=torch.int64, device=device)
        self._work = CapturedWork(make, device)
        self._start: Tree = None  # a copy of rollout.start; the rest of a rollout stays at its address anyway
        self._counts = LearnCounts(0, Counts())

    def learn(self, learner: Learner, work: Rollout) -> None:
        progress, metrics = learner.progress, learner.metrics
        learner.counter = self._iterations.fill_(progress["iterations"])
        # the graph reads the start's carry at one address, so it is copied there
        if self._start is None:
            self._start = tree_map(torch.clone, work.start)
        copy_into(self._start, work.start)
        rollout = work._replace(start=self._start)
        updates, samples = progress["updates"], metrics.counts
        if self._work.run(lambda: learner.learn(rollout), learner.loads):
            self._counts = LearnCounts(progress["updates"] - updates, metrics.counts - samples)
        else:
            progress["updates"] += self._counts.updates
            metrics.count(self._counts.samples)


def graphed(learner: Learner, make: MakeGraph = CudaGraph) -> Engine:
    """Return the sockets for an agent; moves its scheduled settings and metric sums into tensors that stay in place."""
    device = learner.collector.envs.device
    for name in learner.config.driven():
        number = vars(learner.live)[name]
        vars(learner.live)[name] = torch.full((), number, dtype=torch.float32, device=device)
    learner.metrics.stay = True
    play, learn = GraphedPlay(make, device), GraphedLearn(make, device)
    return Engine("graphed", "captures everything this config uses", play, learn)


def why_not_graphed(config: Config, agent: Agent) -> str | None:
    """What cannot be captured, in the config's own words; None where all of it can."""
    if isinstance(config, ReplayConfig):
        return "the host counts the rows of a replay memory"
    if type(agent) not in SUPPORTED_AGENTS:
        return f"it does not support {config.algo_id}"
    if explores(config):
        return "it does not support exploration"
    if isinstance(config, PolicyGradientConfig) and config.has_blocks:
        return "it does not support actor and critic"
    for name in FIXED:
        if name in config.driven():
            return f"a captured graph has one {name}"
    if not isinstance(agent.collector.envs, CudaEnv):
        return "Gymnasium's environments step on the host"
    return None
