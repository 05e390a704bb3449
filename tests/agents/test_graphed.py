"""`engine: graphed` with a tape in the place of CUDA's graphs: what is replayed trains as eager does, to the bit.

Worlds and tensors of the CPU; that CUDA captures the same operations is for lab/gpu_check.py to show.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from driven import advance, agent_for, continued
from host_kernels import compile_host
from tape import Tape, TapedEnv, taped
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from worlds import NAN, Scripted, driven, random_tables, weights

from stride.agents.engines.choice import build_agent, choose_engine, choose_on_gpu
from stride.agents.engines.graphed import CudaGraph, graphed
from stride.agents.experience import memory, nouns
from stride.agents.networks.layers import one_thread
from stride.agents.ppo import PPO
from stride.agents.sockets import Engine, eager
from stride.config.loader import load_config
from stride.config.schedule import Schedule
from stride.config.schema import PPOConfig
from stride.envs_fast.cuda_env import CudaEnv
from stride.envs_fast.registry import WORLDS
from stride.envs_gym.make import make_envs
from stride.trainer_callbacks.schedule import ApplySchedules
from stride.utils.user_error import UserError

ROLLOUT = ("n_envs=4", "n_steps=8", "batch_size=16", "n_epochs=2", "engine=eager")
MOVING = ("policy_lr=lin_0.01", "clip_range=lin_0.3", "ent_coef=lin_0.02", "vf_coef=cos_0.5")
SLOW = ("adam", "gru", "images", "lag, lstm", "unguarded", "whole episodes")
CASES = {
    "plain": ("CartPole-v1:ppo",),
    "schedules": ("CartPole-v1:ppo", *MOVING, "clip_range_vf=lin_0.3", "target_kl=lin_0.01"),
    "normalised": ("CartPole-v1:ppo", "normalize_obs=true", "normalize_reward=true"),
    "target_kl": ("CartPole-v1:ppo", "target_kl=1e-4", "policy_lr=0.01"),
    "accumulate": ("CartPole-v1:ppo", "accumulate=2"),
    "lstm": ("CartPole-v1:ppo_lstm", "hidden_dims=16"),
    "gru": ("CartPole-v1:ppo", "policy=gru", "hidden_dims=[8,8]"),
    "shared": ("CartPole-v1:ppo", "share_trunk=true", "normalize_advantages=rollout"),
    "rmsprop": ("CartPole-v1:ppo", "optimizer=rmsprop", "policy_lr=0.001"),
    "adam": ("CartPole-v1:ppo", "optimizer=adam", "policy_lr=exp_0.01"),
    "sgd": ("CartPole-v1:ppo", "optimizer=sgd", "policy_lr=warmup_0.1"),
    "numbers": ("Pendulum-v1:ppo", "normalize_obs=true", "policy_lr=lin_0.001"),
    "images": ("CartPole-v1:ppo_pixels", "resize_obs=[36,36]"),
    "dicts, masks, truncations": ("Taxi-v4:ppo", "max_episode_steps=12"),
    "unguarded": ("CartPole-v1:ppo", "nan_guard=off"),
    "reinforce": ("CartPole-v1:reinforce", "ent_coef=lin_0.01"),
    "reinforce, a critic": ("CartPole-v1:reinforce", "policy_targets=advantages", "normalize_returns=batch"),
    "whole episodes": ("CartPole-v1:reinforce", "returns_type=mc:episode"),
    "bf16": ("CartPole-v1:ppo", "precision=bf16", "normalize_obs=true"),
    "pqn": ("CartPole-v1:pqn", "epsilon=lin_1.0"),
    "lag": ("CartPole-v1:ppo", "lag=1", "normalize_obs=true", *MOVING),
    "lag, lstm": ("CartPole-v1:ppo_lstm", "lag=1", "hidden_dims=16"),
}


@pytest.fixture
def single(monkeypatch):
    """Scheduled numbers as float32 holds them, which is how they lie on a device."""
    exact = Schedule.at
    monkeypatch.setattr(Schedule, "at", lambda *asked: float(torch.tensor(exact(*asked), dtype=torch.float32)))


@pytest.fixture(autouse=True)
def asks_no_device(monkeypatch):
    """Whether an episode was cut is looked at on the CPU alone; what is taped here is what a device does."""
    for module in (nouns, memory):
        monkeypatch.setattr(module, "known_none", lambda flags: False)


@pytest.fixture(autouse=True)
def alone():
    """Gradients of layer norms take one thread where there are more, which no tape sees."""
    with one_thread():
        yield


def pair(case):
    """Two agents of one config: eager, and graphed."""
    name, *own = CASES[case]
    plain, other = (agent_for(name, *ROLLOUT, *own) for _ in range(2))
    other.collector.envs = TapedEnv(other.collector.envs)
    return plain, on_tape(other)


def on_tape(agent):
    """The agent with the engine, and an optimizer as the Trainer gives it afterwards."""
    agent.engine = graphed(agent, Tape)
    optimizer = agent.configure_optimizers()
    agent.optimizers = lambda use_pl_optimizer=False: optimizer
    return agent


def train(agent, iterations):
    """As the Trainer does, schedules first."""
    schedules, trainer = ApplySchedules(), SimpleNamespace(optimizers=[agent.optimizer])
    schedules.on_train_start(trainer, agent)
    for _ in range(iterations):
        schedules.on_train_batch_start(trainer, agent, None, 0)
        advance(agent, 1)
    return agent


def everything(agent):
    """All that training has made, in numbers."""
    state = {"stride": None}
    agent.on_save_checkpoint(state)
    moments = [dict(each) for each in agent.optimizer.state.values()]
    rows = agent.memory.columns_written()
    return {**agent.state_dict(), **state, "moments": moments, "rows": rows, "row": agent.metrics.flush()}


def assert_same(mine, theirs, at=""):
    assert type(mine) is type(theirs), at
    if isinstance(mine, dict):
        assert mine.keys() == theirs.keys(), at
        for key in mine:
            assert_same(mine[key], theirs[key], f"{at} {key}")
    elif isinstance(mine, list):
        for k, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            assert_same(a, b, f"{at} {k}")
    elif isinstance(mine, torch.Tensor):
        assert torch.equal(mine, theirs), at
    else:
        assert mine == theirs, at


@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.slow] * (case in SLOW)) for case in CASES])
def test_what_is_replayed_trains_as_eager_does(case, single):
    plain, other = pair(case)
    for iterations in (2, 3):  # a rehearsal and a capture, a row of metrics, then replays
        train(plain, iterations), train(other, iterations)
        assert_same(everything(other), everything(plain))
    assert other.engine.play._repeated._graph.replays == other.engine.learn._repeated._graph.replays == 3
    assert other.progress["updates"] > 0


@pytest.mark.parametrize("case", ["schedules", "numbers"])
def test_worlds_of_a_gpu_are_replayed_too(case, single):
    """Their kernels, compiled for this processor, and the worlds of the CPU."""
    name, *own = CASES[case]
    plain = agent_for(name, *ROLLOUT, *own)
    config, world = plain.config, WORLDS[plain.config.env_id]
    limit, compile = config.max_episode_steps, taped(compile_host)
    other = build_agent(config, CudaEnv(world, config.n_envs, limit, torch.device("cpu"), compile))
    assert choose_on_gpu(replace(config, engine="graphed"), other).name == "graphed"
    train(plain, 5), train(on_tape(other), 5)
    assert other.engine.play._repeated._graph.replays == 3
    assert_same(everything(other), everything(plain))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("case", ["schedules", "target_kl", "lstm", "rmsprop", "numbers", "pqn"])
def test_cuda_replays_what_eager_does(case, single):
    (name, *own), agents = CASES[case], []
    env_id, variant = name.split(":")
    config = load_config(env_id, variant, ["max_timesteps=1e6", *ROLLOUT, *own, "device=cuda"])
    for engine in (lambda agent: eager(), graphed):
        agent = build_agent(config, make_envs(config, config.n_envs, torch.device("cuda")))
        agent.engine = engine(agent)
        optimizer = agent.configure_optimizers()
        agent.optimizers = lambda use_pl_optimizer=False, optimizer=optimizer: optimizer
        agents.append(train(agent, 6))
    assert agents[0].progress == agents[1].progress
    for mine, theirs in zip(*(agent.parameters() for agent in agents), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_updates_end_by_target_kl_in_replays(single):
    _, agent = pair("target_kl")
    train(agent, 2)
    agent.metrics.flush()
    assert 0 < train(agent, 3).metrics.flush()["train/policy/kl_stopped"] < 1


def test_a_replay_that_meets_no_number_learns_nothing():
    reward, terminated, truncated = random_tables(56, 4, 0)
    reward[35, 2] = NAN  # in the fifth rollout
    config = PPOConfig(n_envs=4, n_steps=8, hidden_dims=(8,), policy_lr=1e-2, max_timesteps=10**6, nan_guard="skip")
    tables = reward, terminated, truncated
    plain, other = driven(PPO(config, Scripted(*tables))), driven(PPO(config, TapedEnv(Scripted(*tables))))
    other.engine = graphed(other, Tape)
    for iterations, learns in ((4, True), (1, False), (2, True)):
        before = weights(other.policy)
        advance(plain, iterations), advance(other, iterations)
        assert torch.equal(weights(other.policy), weights(plain.policy))
        assert learns != torch.equal(weights(other.policy), before)
    assert other.engine.learn._repeated._graph.replays == 5 and other.progress == plain.progress


@pytest.mark.parametrize("case", ["schedules", "lstm"])
def test_what_was_loaded_is_captured_anew(case, single):
    """Into a new process, and into one whose graphs hold the addresses of before."""
    plain, agent = pair(case)
    train(plain, 4), train(agent, 4)
    others = continued(agent, pair(case)[1]), continued(agent, agent)
    expected = everything(train(plain, 3))
    for other in others:
        assert_same(everything(train(other, 3)), expected)


def test_numbers_that_single_precision_holds_otherwise_differ_by_rounding():
    plain, other = pair("schedules")
    train(plain, 5), train(other, 5)
    for mine, theirs in zip(other.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


class Record(TorchDispatchMode):
    """Every operation, the numbers it was given, and where tensors lie that were there before."""

    def __init__(self):
        super().__init__()
        self.log, self.made, self.kept = [], set(), []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func.namespace == "profiler":
            return out
        given = [each for each in tree_leaves((args, kwargs)) if each is not None]
        self.log.append((str(func), *map(self.seen, given)))
        storages = {each.untyped_storage().data_ptr() for each in given if isinstance(each, torch.Tensor)}
        for each in tree_leaves(out):
            if isinstance(each, torch.Tensor) and each.untyped_storage().data_ptr() not in storages:
                self.made.add(each.untyped_storage().data_ptr())
                self.kept.append(each)
        return out

    def seen(self, given):
        if not isinstance(given, torch.Tensor):
            return repr(given)
        new = given.untyped_storage().data_ptr() in self.made
        return tuple(given.shape), given.storage_offset() if new else given.data_ptr()


class Recorder:
    """A graph that is rehearsed again and again, under record."""

    def __init__(self):
        self.logs = []

    def rehearse(self, work):
        if len(self.logs) < 4:  # two iterations, in which moments and sums are made
            self.logs.append(work())
            return
        with Record() as record:
            work()
        self.logs.append(record.log)


def operations(agent, recorder):
    """Those of the rollout and of the updates, in the third and in the fourth iteration."""
    for _ in range(4):
        agent.loads += 1  # so nothing is captured
        train(agent, 1)
    return recorder.logs[4:6], recorder.logs[6:8]


class EagerUnderRecord:
    def __init__(self, recorder):
        self.recorder, self.sockets = recorder, eager()

    def collect(self, learner, steps):
        self.recorder.rehearse(lambda: self.sockets.play.collect(learner, steps))

    def learn(self, learner, work):
        self.recorder.rehearse(lambda: self.sockets.learn.learn(learner, work))


@pytest.mark.parametrize("case", ["schedules", "lstm", pytest.param("pqn", marks=pytest.mark.slow)])
def test_two_iterations_are_the_same_operations_numbers_and_addresses(case):
    (name, *own), recorder = CASES[case], Recorder()
    agent = agent_for(name, *ROLLOUT, *own)
    agent.engine = graphed(agent, lambda device: recorder)
    third, fourth = operations(agent, recorder)
    assert len(third[0]) > 100 and len(third[1]) > 100
    for before, after in zip(third, fourth, strict=True):
        different = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
        assert not different, different[:3]


def test_two_iterations_of_eager_are_not():
    (name, *own), recorder = CASES["schedules"], Recorder()
    agent = agent_for(name, *ROLLOUT, *own)
    sockets = EagerUnderRecord(recorder)
    agent.engine = Engine("eager", "", sockets, sockets)
    (_, third), (_, fourth) = operations(agent, recorder)
    assert {a[0] for a, b in zip(third, fourth, strict=True) if a != b} >= {
        "aten.clamp.default",
        "aten._fused_adamw_.default",
    }


def test_a_tape_refuses_to_wait():
    tape = Tape(torch.device("cpu"))
    with pytest.raises(AssertionError, match="waits for the device"):
        tape.capture(lambda: torch.ones(()).item())


def test_what_cuda_refuses_to_capture_is_one_line(monkeypatch):
    def refuse(*arguments, **options):
        raise torch.AcceleratorError("CUDA error: operation not permitted when stream is capturing\nCompile with ..")

    for name in ("Stream", "CUDAGraph"):
        monkeypatch.setattr(torch.cuda, name, lambda *arguments: None)
    monkeypatch.setattr(torch.cuda, "graph", refuse)
    with pytest.raises(UserError, match=r"not permitted when stream is capturing\); engine: eager trains it$"):
        CudaGraph(torch.device("cuda:0")).capture(lambda: None)


class Elsewhere(TapedEnv):
    """Worlds that say they lie on a GPU."""

    device = torch.device("cuda:0")


@pytest.mark.parametrize(
    ("config", "engine", "why"),
    [
        ("CartPole-v1:ppo_lstm", "auto", "Gymnasium's worlds step on the host"),
        ("CartPole-v1:ppo", "eager", "as configured"),
        ("CartPole-v1:dqn", "auto", "the host counts what a replay memory holds"),
        ("FrozenLake-v1:q_learning", "auto", "it does not know q_learning"),
    ],
)
def test_what_cannot_be_captured_is_eager_and_says_why(config, engine, why):
    agent = agent_for(config)
    agent.collector.envs = Elsewhere(agent.collector.envs)
    taken = choose_engine(replace(agent.config, device="cuda", engine=engine), agent)
    assert (taken.name, taken.reason, taken.threads.number) == ("eager", why, 1)
    if engine == "auto":
        with pytest.raises(UserError, match=f"engine: graphed cannot run this config: {why}"):
            choose_engine(replace(agent.config, engine="graphed"), agent)
