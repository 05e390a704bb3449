"""One lifecycle for all: order, no waiting for the device, engines by one attribute."""

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


def agent_for(config_id, *overrides):
    config = load_config(*config_id.split(":"), ["max_timesteps=1e5", *overrides])
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
        self.calls = []
        super().__init__(*arguments)

    def collect(self, steps):
        self.calls.append("collect")
        super().collect(steps)

    def learn(self, rollout):
        self.calls.append("learn")
        super().learn(rollout)


def test_collect_and_learn_alternate_under_the_trainer(monkeypatch):
    """A prefetching loader would collect once more before the first learning: PPO would silently be off-policy."""
    monkeypatch.setitem(ALGORITHMS, "ppo", Order)
    config = load_config("CartPole-v1", "ppo", [*SMALL, f"max_timesteps={3 * 64}"])
    agent = build_agent(config, make_envs(config, config.n_envs))
    build_trainer([Stop(config, None, lambda agent: {})], enable_checkpointing=False).fit(agent)
    assert agent.calls == ["collect", "learn"] * 3
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


NETS = {
    "": [],
    "+": ["normalize_obs=true", "normalize_reward=true", "optimizer=rmsprop"],
    "lstm": ["policy=lstm"],
    "gru": ["policy=gru", "share_trunk=true", "normalize_obs=true"],
}
REPLAY = ("train_freq=8", "gradient_steps=2", "learning_starts=0", "hidden_dims=16", "engine=eager")
AGENTS = {
    **{f"ppo {net}": ["CartPole-v1:ppo", *SMALL, *NETS[net], "target_kl=0.01"] for net in NETS},
    **{f"reinforce {net}": ["CartPole-v1:reinforce", *SMALL, *NETS[net]] for net in NETS},
    "dqn": ["CartPole-v1:dqn", *REPLAY, "normalize_obs=true", "n_step=3"],
    "dqn +": ["CartPole-v1:dqn", *REPLAY, "quantiles=5", "dueling=true", "prioritised=true", "tau=0.5"],
    "sac": ["Pendulum-v1:sac", *REPLAY, "noise_correlation=0.9", "normalize_obs=true"],
    "q_learning": ["FrozenLake-v1:q_learning", "n_steps=4"],
    "pqn": ["CartPole-v1:pqn", "normalize_obs=true", "n_steps=8"],
}


@pytest.mark.parametrize("kind", AGENTS)
def test_an_iteration_never_waits_for_the_device(kind):
    agent = advance(agent_for(*AGENTS[kind]), 2)
    with RefuseSync():
        agent.iteration()
    assert agent.progress["updates"] > 0
    if kind.startswith(("ppo", "reinforce")):
        assert agent.metrics.flush()["train/loss/policy"] == pytest.approx(0, abs=10)


def plugged(agent, both):
    agent.engine = Engine(both.name, "", both, both)
    return agent


def test_another_engine_is_one_attribute_and_the_same_training():
    constant = ("CartPole-v1:ppo", *SMALL, "clip_range=0.2", "env_backend=gym")
    eager = advance(agent_for(*constant), 6)
    plain = advance(plugged(agent_for(*constant), PlainPPO()), 6)
    half = advance(agent_for(*constant), 3)
    checkpoint = {}
    half.on_save_checkpoint(checkpoint)
    switched = plugged(agent_for(*constant), PlainPPO())
    switched.load_state_dict(half.state_dict())
    switched.optimizer.load_state_dict(half.optimizer.state_dict())
    switched.on_load_checkpoint(checkpoint)
    for agent in (plain, advance(switched, 3)):
        assert torch.equal(agent.memory.table.action, eager.memory.table.action)
        assert agent.collector.state_dict()["envs"]["rng"] == eager.collector.state_dict()["envs"]["rng"]
        assert agent.progress == eager.progress
        for mine, theirs in zip(agent.policy.parameters(), eager.policy.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-6)
