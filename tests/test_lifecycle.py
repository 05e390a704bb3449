"""One lifecycle for all: order, no waiting for the device, engines by one attribute, what Lightning costs."""

from time import process_time

import pytest
import torch
from plain_ppo import PlainPPO
from torch.utils._python_dispatch import TorchDispatchMode

from stride.agents.algorithms import ALGORITHMS
from stride.agents.engines.choice import build_agent
from stride.agents.ppo import PPO
from stride.agents.sockets import Engine
from stride.config.loader import load_config
from stride.envs_gym.make import make_envs
from stride.trainer_callbacks.session import build_trainer
from stride.trainer_callbacks.stop import Stop

SMALL = ("n_envs=4", "n_steps=16", "batch_size=0.5", "n_epochs=2", "policy_lr=1e-3", "engine=eager")


def agent_for(variant="ppo", *overrides):
    config = load_config("CartPole-v1", variant, [*SMALL, "max_timesteps=1e5", *overrides])
    agent = build_agent(config, make_envs(config, config.n_envs))
    optimizer = agent.configure_optimizers()
    agent.optimizers = lambda use_pl_optimizer=False: optimizer
    return agent


def advance(agent, iterations):
    for tick in range(iterations):
        agent.training_step(iter([tick]))
    return agent


class Order(PPO):
    """Writes down what happens when."""

    def __init__(self, *arguments):
        self.seen = []
        super().__init__(*arguments)

    def collect(self, steps):
        self.seen.append("collect")
        super().collect(steps)

    def learn(self, rollout):
        self.seen.append("learn")
        super().learn(rollout)


def test_collect_and_learn_alternate_under_the_trainer(monkeypatch):
    """A prefetching loader would collect once more before the first learning: PPO would silently be off-policy."""
    monkeypatch.setitem(ALGORITHMS, "ppo", Order)
    config = load_config("CartPole-v1", "ppo", [*SMALL, f"max_timesteps={3 * 64}"])
    agent = build_agent(config, make_envs(config, config.n_envs))
    build_trainer([Stop(config, None, lambda agent: {})], enable_checkpointing=False).fit(agent)
    assert agent.seen == ["collect", "learn"] * 3
    assert agent.progress["env_steps"] == 192 and agent.progress["updates"] == 3 * 2 * 2


class RefuseSync(TorchDispatchMode):
    """Raises on operations that read data on the host or whose result's shape depends on data."""

    refused = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "unique", "equal.default")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = str(func)
        assert not any(word in name for word in self.refused), f"{name} waits for the device"
        if "index.Tensor" in name or "index_put" in name:
            masks = [i for i in args[1] if i is not None and i.dtype == torch.bool]
            assert not masks, f"{name} with a boolean mask has a shape that depends on data"
        return func(*args, **(kwargs or {}))


def test_the_refusing_mode_refuses():
    with pytest.raises(AssertionError, match="waits"), RefuseSync():
        torch.ones(2).sum().item()
    with pytest.raises(AssertionError, match="mask"), RefuseSync():
        torch.ones(2)[torch.tensor([True, False])]


@pytest.mark.parametrize("variant", ["ppo", "reinforce"])
@pytest.mark.parametrize(
    "extra",
    [
        (),
        ("normalize_obs=true", "normalize_reward=true", "optimizer=rmsprop"),
        ("policy=lstm",),
        ("policy=gru", "share_trunk=true", "normalize_obs=true"),
    ],
    ids=["", "+", "lstm", "gru"],
)
def test_collect_and_learn_never_wait_for_the_device(variant, extra):
    agent = advance(agent_for(variant, *extra, *(["target_kl=0.01"] if variant == "ppo" else [])), 2)
    with RefuseSync():
        agent.iteration()
    assert agent.metrics.flush()["train/loss/policy"] == pytest.approx(0, abs=10)


REPLAY = (
    "max_timesteps=1e5",
    "train_freq=8",
    "gradient_steps=2",
    "learning_starts=0",
    "hidden_dims=16",
    "engine=eager",
)


@pytest.mark.parametrize(
    "words",
    [
        ("CartPole-v1:dqn", *REPLAY, "normalize_obs=true", "n_step=3"),
        ("CartPole-v1:dqn", *REPLAY, "quantiles=5", "dueling=true", "prioritised=true", "tau=0.5"),
        ("Pendulum-v1:sac", *REPLAY, "noise_correlation=0.9", "normalize_obs=true"),
        ("FrozenLake-v1:q_learning", "n_steps=4"),
        ("CartPole-v1:pqn", "normalize_obs=true", "n_steps=8"),
    ],
    ids=["dqn", "dqn +", "sac", "q_learning", "pqn"],
)
def test_learning_from_what_is_remembered_never_waits_for_the_device(words):
    variant, *overrides = words
    config = load_config(*variant.split(":"), overrides)
    agent = build_agent(config, make_envs(config, config.n_envs))
    optimizer = agent.configure_optimizers()
    agent.optimizers = lambda use_pl_optimizer=False: optimizer
    advance(agent, 2)
    with RefuseSync():
        agent.iteration()
    assert agent.progress["updates"] > 0


def plugged(both):
    return Engine(both.name, "", both, both)


def test_another_engine_is_one_attribute_and_the_same_training():
    constant = ("ppo", "clip_range=0.2", "env_backend=gym")
    eager, plain, switched = agent_for(*constant), agent_for(*constant), agent_for(*constant)
    plain.engine = plugged(PlainPPO())
    advance(eager, 6)
    advance(plain, 6)
    advance(switched, 3)
    checkpoint = {}
    switched.on_save_checkpoint(checkpoint)
    other = agent_for(*constant)
    other.engine = plugged(PlainPPO())
    other.load_state_dict(switched.state_dict())
    other.optimizer.load_state_dict(switched.optimizer.state_dict())
    other.on_load_checkpoint(checkpoint)
    advance(other, 3)
    for agent in (plain, other):
        assert torch.equal(agent.memory.table.action, eager.memory.table.action)
        assert agent.collector.state_dict()["envs"]["rng"] == eager.collector.state_dict()["envs"]["rng"]
        assert agent.progress == eager.progress
        for mine, theirs in zip(agent.policy.parameters(), eager.policy.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-6)


class Empty(PPO):
    """Does nothing, so that what remains is Lightning."""

    def iteration(self):
        self.progress["env_steps"] += 64


def test_lightning_costs_less_than_a_millisecond_per_iteration(monkeypatch):
    """Loose on purpose: lab.bench.train prints the figure, this guards against a per-tick disaster.

    The time of this process only: what else the machine does is no part of it.
    """
    monkeypatch.setitem(ALGORITHMS, "ppo", Empty)
    config = load_config("CartPole-v1", "ppo", [*SMALL, f"max_timesteps={64 * 1000}"])
    agent = build_agent(config, make_envs(config, config.n_envs))
    trainer = build_trainer([Stop(config, None, lambda agent: {})], enable_checkpointing=False)
    began = process_time()
    trainer.fit(agent)
    assert agent.progress["iterations"] == 1000
    assert process_time() - began < 5
