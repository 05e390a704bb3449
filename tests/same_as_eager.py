"""One harness for all engines: a case is trained by an engine and by eager, stopped and resumed, or poisoned.

A case is data; `test_same_as_eager.py` has the tables, other files take cases, engines and comparisons from here.
"""

from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from driven import advance, agent_for, continued, with_optimizer
from host_kernels import compile_host
from tape import Tape, TapedEnv, taped
from torch import Tensor
from torch.utils._pytree import keystr, tree_leaves_with_path, tree_map_only

from stride.agents.base import NumbersError
from stride.agents.engines.choice import RECIPES
from stride.agents.engines.fused_cpu.episodes import FusedEpisodes
from stride.agents.engines.fused_gpu import learn
from stride.agents.engines.fused_gpu.ahead import Beside
from stride.agents.engines.fused_gpu.engine import fused_gpu
from stride.agents.engines.fused_gpu.learn import FusedLearn
from stride.agents.engines.graphed import graphed
from stride.agents.experience import memory, nouns
from stride.agents.experience.collector import Collector
from stride.agents.experience.nouns import leaves
from stride.agents.networks.layers import one_thread
from stride.agents.sockets import EagerEpisodes
from stride.config.schedule import Schedule
from stride.envs_fast.cuda_env import CudaEnv
from stride.envs_fast.registry import WORLDS
from stride.envs_fast.vec_env import CPU
from stride.envs_gym.make import make_envs
from stride.trainer_callbacks.schedule import ApplySchedules
from stride.utils.counter_rng import EVALUATE

# --- engines


def on_eager(config_id, *overrides):
    return agent_for(config_id, *overrides, "engine=eager")


def on_fused_cpu(config_id, *overrides):
    return agent_for(config_id, *overrides, "engine=fused_cpu")


def learning_on_gpu(config_id, *overrides, compile=compile_host):
    """An agent that plays as eager does and learns by the kernels of `engine: fused_gpu`."""
    agent = on_eager(config_id, *overrides)
    agent.engine = agent.engine._replace(learn=FusedLearn(RECIPES[type(agent)], compile))
    return agent


def learning_in_large_tiles(*words):
    """By kernels with the tiles that a GPU gets for many rows, 128 samples."""
    agent = learning_on_gpu(*words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learn, "MAX_PARTS", 2)
        assert agent.engine.learn.updates_of(agent)._tile == 128
    return agent


def learning_lowered(precision, *words):
    """In this precision by kernels; it plays as eager does, in float32."""
    agent = learning_on_gpu(*words)
    agent.config = replace(agent.config, precision=precision)
    return agent


def gpu_worlds(config, n_envs, compile=compile_host):
    """Worlds for a GPU, whose kernels are compiled for this processor."""
    return CudaEnv(WORLDS[config.env_id], n_envs, config.max_episode_steps, CPU, compile, **config.env_kwargs)


def on_fused_gpu(config_id, *overrides, graph=None, beside=None):
    """All of `engine: fused_gpu`: launched one by one or captured in a `graph`; an older actor plays `beside`."""
    worlds = partial(gpu_worlds, compile=taped(compile_host) if graph else compile_host)
    agent = agent_for(config_id, *overrides, "engine=eager", worlds=worlds)
    agent.engine = fused_gpu(RECIPES[type(agent)], agent, graph, beside)
    return with_optimizer(agent)


def on_tape(config_id, *overrides, worlds=None):
    """`engine: graphed` with a tape in the place of CUDA's graphs."""
    if worlds:
        agent = agent_for(config_id, *overrides, "engine=eager", worlds=worlds)
    else:
        agent = on_eager(config_id, *overrides)
        agent.collector.envs = TapedEnv(agent.collector.envs)
    agent.engine = graphed(agent, Tape)
    return with_optimizer(agent)


class Late(Beside):
    """The second stream of a GPU that does nothing before somebody waits for it."""

    def __init__(self, device):
        super().__init__(device)
        self.waiting = []

    def begin(self, work):
        self.waiting.append(work)

    def wait(self):
        while self.waiting:
            self.waiting.pop()()


ENGINES: dict[str, Callable[..., Any]] = {
    "eager": on_eager,
    "fused_cpu": on_fused_cpu,
    "fused_gpu learns": learning_on_gpu,
    "fused_gpu learns in large tiles": learning_in_large_tiles,
    "fused_gpu learns in tf32": partial(learning_lowered, "tf32"),
    "fused_gpu learns in bf16": partial(learning_lowered, "bf16"),
    "fused_gpu": on_fused_gpu,
    "fused_gpu in a graph": partial(on_fused_gpu, graph=Tape),
    "fused_gpu beside": partial(on_fused_gpu, beside=Beside),
    "fused_gpu beside, late": partial(on_fused_gpu, beside=Late),
    "graphed": on_tape,
    "graphed on a GPU's worlds": partial(on_tape, worlds=partial(gpu_worlds, compile=taped(compile_host))),
}


@contextmanager
def as_on_a_device():
    """Numbers as they are on a device: schedules in float32, and no look at whether an episode was cut.

    Gradients of layer norms take one thread where there are more, which no tape sees.
    """
    exact = Schedule.at
    with pytest.MonkeyPatch.context() as patch, one_thread():
        patch.setattr(Schedule, "at", lambda *given: float(torch.tensor(exact(*given), dtype=torch.float32)))
        for module in (nouns, memory):
            patch.setattr(module, "known_none", lambda flags: False)
        yield


# --- cases


class Case(NamedTuple):
    """What is trained, by whom, and how near to the reference it must be."""

    config: str
    engine: str
    overrides: tuple[str, ...] = ()
    within: float = 5e-6  # of weights and moments; 0.0: everything is equal to the bit
    rounds: tuple[tuple[int, int], ...] = ((1, 1), (1, 1))  # iterations of the reference alone, then of both
    reference: str = "eager"
    resumes: tuple[int, int] | None = None  # iterations before and after a checkpoint; None: it is not resumed

    def make(self, engine=None, *more):
        return ENGINES[engine or self.engine](self.config, *self.overrides, *more)

    def surroundings(self):
        return as_on_a_device() if self.engine.startswith("graphed") else nullcontext()


def train(agent, iterations):
    """As the Trainer does, schedules first."""
    schedules, trainer = ApplySchedules(), SimpleNamespace(optimizers=[agent.optimizer])
    schedules.on_train_start(trainer, agent)
    for _ in range(iterations):
        schedules.on_train_batch_start(trainer, agent, None, 0)
        advance(agent, 1)
    return agent


def learnt(agent):
    return [p for group in agent.optimizer.param_groups for p in group["params"]]


def weights(agent):
    return [p.detach().clone() for p in learnt(agent)]


def everything(agent):
    """All that training has made, as a tree of tensors and numbers; metrics begin anew."""
    made = {"metrics": agent.metrics.flush(), "window": agent.collector.window.summary()}
    checkpoint = {"state_dict": agent.state_dict(), "optimizer_states": [agent.optimizer.state_dict()]}
    agent.on_save_checkpoint(checkpoint)
    checkpoint["stride"]["parts"]["collector"]["envs"].pop("obs", None)  # the collector's own count
    checkpoint["stride"]["parts"]["memory"].pop("finals", None)  # those that rows name are in the rows below
    rows = agent.memory.columns_written()
    made |= {"moments": checkpoint.pop("optimizer_states")[0]["state"], "rows": rows}
    made["carries"] = [rows.pop() for _ in leaves(agent.memory.final.carry)]  # of final observations
    return tree_map_only(Tensor, lambda x: x.detach().clone(), checkpoint | made)


def assert_same(mine, theirs, within=0.0, played=0.0):
    """Two trees, leaf by leaf: weights `within` so much, and within `played` what they played."""
    ours, others = ({keystr(path): leaf for path, leaf in tree_leaves_with_path(tree)} for tree in (mine, theirs))
    assert not ours.keys() ^ others.keys()
    for name, leaf in ours.items():
        if within and name.startswith("['carries']"):  # kernels value final observations without writing them down
            continue
        other = others[name]
        near = {"['metrics']": 2e-4, "['state_dict']": within, "['moments']": within}
        allowed = near.get(name[: name.index("]") + 1], played) if within else 0.0
        if within and "['carry']" in name:
            allowed = 1e-4
        if isinstance(leaf, Tensor) and allowed and leaf.is_floating_point():
            relative = {"rtol": allowed / 5, "msg": lambda text, at=name: f"{at}: {text}"}
            torch.testing.assert_close(leaf, other, atol=allowed, **relative)
        elif isinstance(leaf, Tensor):
            assert leaf.dtype == other.dtype and torch.equal(leaf, other), name
        elif isinstance(leaf, float):
            assert leaf == pytest.approx(other, rel=10 * allowed, abs=allowed, nan_ok=True), (name, leaf, other)
        else:
            assert leaf == other, (name, leaf, other)


def assert_learns_as_eager(case):
    """Rounds that begin at the reference's checkpoint, so that a rounding in one rollout is not soon another rollout.

    Afterwards eager can continue from what the engine has made.
    """
    with case.surroundings():
        theirs, mine = case.make(case.reference), case.make()
        for alone, together in case.rounds:
            if alone:
                train(theirs, alone).metrics.flush()
                continued(theirs, mine)
            train(theirs, together), train(mine, together)
            numbers = theirs.memory.table.action.is_floating_point()
            expected, result = everything(theirs), everything(mine)
            assert_same(result, expected, case.within, played=1e-4 if numbers else 0.0)
        assert mine.progress["updates"] > 0
        if case.reference == "eager":
            again = everything(continued(mine, case.make("eager")))
            assert_same([again["state_dict"], again["moments"]], [result["state_dict"], result["moments"]])
        if isinstance(mine.engine.episodes, FusedEpisodes):
            assert_evaluates_as_eager(mine)
    return mine


def evaluated(agent, episodes, count=17, max_steps=100, worlds=7, greedy=True):
    """Episodes of an evaluation, by the engine's socket or by eager's."""
    collector = Collector(make_envs(agent.config, worlds), agent.policy, 11, EVALUATE, greedy=greedy)
    return episodes.play(agent, collector, count, max_steps)


def assert_evaluates_as_eager(agent, *limits):
    for greedy in (True, False):
        mine, exact = (
            evaluated(agent, episodes, *limits, greedy=greedy) for episodes in (agent.engine.episodes, EagerEpisodes())
        )
        assert mine.lengths == exact.lengths
        if agent.memory.table.action.is_floating_point():
            assert mine.returns == pytest.approx(exact.returns, rel=1e-4, abs=1e-4)
        else:
            assert mine == exact, "no action differs, so nothing does"


def assert_resumes(case):
    """One that was never stopped, one that goes on in a new process, and one that loads its own checkpoint."""
    before, after = case.resumes
    with case.surroundings():
        straight, half = (train(case.make(), before) for _ in range(2))
        anew = continued(half, case.make())
        expected = everything(train(straight, after))
        for resumed in (anew, continued(half, half)):
            assert_same(everything(train(resumed, after)), expected)


def assert_refuses(case, field, value, iterations):
    """A non-finite number of the next rollout, or of the networks: reported, and no weight learns of it."""
    agent = advance(case.make(), iterations)
    collect = agent.engine.play.collect

    def poisoned(agent, steps):
        collect(agent, steps)
        if field != "parameter":
            getattr(agent.memory.table, field)[(agent.memory.written - 3) % agent.memory.rows, 1] = value

    agent.engine.play.collect = poisoned
    if field == "parameter":
        with torch.no_grad():
            learnt(agent)[-2].view(-1)[0] = value
    before = weights(agent)
    with pytest.raises(NumbersError, match=f"iteration {iterations + 1}"):
        advance(agent, 1)
    for mine, old in zip(weights(agent), before, strict=True):
        assert torch.equal(mine.nan_to_num(), old.nan_to_num()), "the weights are unchanged"
