"""`engine: graphed`: a rollout as one CUDA graph, all updates of an iteration as another, of any policy.

A graph does again what was done when it was captured: the same operations, on the same addresses, with the same
numbers, and no Python. So whatever moves lies on the device and stays where it is (scheduled numbers, counters of
draws, sums of metrics), and what the host counts is counted here. The first iteration after a start or a load is played
and learnt as eager does it, which compiles kernels and makes moments and sums; the second is captured, then replayed.
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
KNOWN = (PPO, REINFORCE, PQN)  # these classes, not what is derived from them


class Graph(Protocol):
    """Some work on a device, which can be done again without Python. Each of the three does it once."""

    def rehearse(self, work: Work) -> None:
        """As it will be captured, so that whatever is made in the first time is there."""

    def capture(self, work: Work) -> None:
        """And remember each operation with its addresses."""

    def replay(self) -> None:
        """What was captured."""


class CudaGraph:
    """torch's, on a stream of its own and with a pool of memory of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)
        self._graph = torch.cuda.CUDAGraph()

    def rehearse(self, work: Work) -> None:
        now = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(now)
        with torch.cuda.stream(self._stream):
            work()
        now.wait_stream(self._stream)

    def capture(self, work: Work) -> None:
        try:
            # thread_local: what other threads ask of the device is no business of this graph
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


FIXED = ("gamma", "gae_lambda", "return_lambda", "weight_decay", "optimizer_eps")  # arguments of torch's own operations


class Repeated:
    """Work of a learner: rehearsed, then captured, then replayed, as long as it is the same and nothing was loaded."""

    def __init__(self, make: MakeGraph, device: torch.device) -> None:
        self._make, self._device = make, device
        self._graph: Graph | None = None
        self._same: Hashable = None
        self._captured = False

    def run(self, work: Work, same: Hashable) -> bool:
        """Do it; whether Python did it and so counted what there is to count. Another `same` is other work."""
        if self._graph is None or same != self._same:
            self._graph, self._same, self._captured = self._make(self._device), same, False
            self._graph.rehearse(work)
        elif not self._captured:
            self._graph.capture(work)
            self._captured = True
        else:
            self._graph.replay()
            return False
        return True


class GraphedPlay:
    """The collector's steps, or what plays them. The memory's rows must be the same each time, as a rollout's are."""

    def __init__(self, make: MakeGraph, device: torch.device, play: Play | None = None) -> None:
        self.name, self._play = play.name if play else "graphed", play or EagerPlay()
        self._calls = torch.zeros((), dtype=torch.int64, device=device)
        self._repeated = Repeated(make, device)

    def collect(self, learner: Learner, steps: int) -> None:
        collector, memory = learner.collector, learner.memory
        collector.counter = self._calls.fill_(collector.calls + 1)
        head = memory.written % memory.rows
        if not self._repeated.run(lambda: self._play.collect(learner, steps), (learner.loads, steps, head)):
            collector.calls += 1
            memory.written += steps


class Made(NamedTuple):
    """What the host counts while an iteration is learnt from."""

    updates: int
    samples: Counts


class GraphedLearn:
    """The agent's own `learn`, with all its updates."""

    name = "graphed"

    def __init__(self, make: MakeGraph, device: torch.device) -> None:
        self._iterations = torch.zeros((), dtype=torch.int64, device=device)
        self._repeated = Repeated(make, device)
        self._start: Tree = None  # of the rollout: all else of it lies in the memory and the collector
        self._made = Made(0, Counts())

    def learn(self, learner: Learner, work: Rollout) -> None:
        progress, metrics = learner.progress, learner.metrics
        learner.counter = self._iterations.fill_(progress["iterations"])
        if self._start is None:
            self._start = tree_map(torch.clone, work.start)
        copy_into(self._start, work.start)
        rollout = work._replace(start=self._start)
        updates, samples = progress["updates"], metrics.counts
        if self._repeated.run(lambda: learner.learn(rollout), learner.loads):
            self._made = Made(progress["updates"] - updates, metrics.counts - samples)
        else:
            progress["updates"] += self._made.updates
            metrics.count(self._made.samples)


def graphed(learner: Learner, make: MakeGraph = CudaGraph) -> Engine:
    """The sockets for an agent; from now on its scheduled numbers and its sums lie where a graph finds them."""
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
    if type(agent) not in KNOWN:
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
