"""Every algorithm where its worlds lie on a device: nothing mixes devices, and the host waits once an iteration."""

from contextlib import ExitStack

import numpy as np
import pytest
import torch
from gymnasium import spaces
from meta_device import META, MetaWorlds, NothingMade, Quiet, optimizers_on_meta
from torch import Tensor
from torch.utils._pytree import tree_leaves
from worlds import driven

from stride.agents.algorithms import ALGORITHMS
from stride.agents.base import build_optimizer, groups, step_unless
from stride.agents.engines.choice import RECIPES
from stride.agents.engines.fused_gpu.learn import FusedLearn
from stride.agents.experience.collector import LOOKS, Collector
from stride.agents.experience.nouns import leaves
from stride.agents.networks.q_network import QNetworkShape, QPolicy
from stride.agents.ppo import PPO
from stride.config.loader import load_config
from stride.config.schema import PPOConfig
from stride.utils.counter_rng import EVALUATE

ROLLOUT = ("n_envs=4", "n_steps=4", "batch_size=0.5", "n_epochs=1", "max_timesteps=1e5")
REPLAY = ("n_envs=2", "train_freq=4", "gradient_steps=2", "learning_starts=0", "batch_size=8", "buffer_size=400")
REPLAY += ("hidden_dims=16", "max_timesteps=1e5")
SEQUENCES = ("n_envs=2", "train_freq=4", "train_ratio=4", "learning_starts=0", "batch_size=4", "batch_length=4")
SEQUENCES += ("horizon=3", "buffer_size=400", "max_timesteps=1e5")
PLACES = ("n_envs=4", "n_steps=4", "max_timesteps=1e5")
NUMBERS, ONE_OF_2 = spaces.Box(-np.inf, np.inf, (4,), np.float32), spaces.Discrete(2)
STACKED, IMAGE = spaces.Box(-1, 1, (8,), np.float32), spaces.Box(0, 255, (2, 36, 36), np.uint8)
TORQUES, PLACE = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(5)
MASKED = spaces.Dict(
    {"action_mask": spaces.MultiBinary(2), "pair": spaces.MultiDiscrete([2, 3]), "place": PLACE, "seen": NUMBERS}
)
CHOICE = (NUMBERS, ONE_OF_2)
CNN = ("policy=cnn", "policy_kwargs.features=8")
CASES = {
    "ppo": ("ppo", *CHOICE),
    "ppo, observations": ("ppo", *CHOICE, "normalize_obs=true"),
    "ppo, rewards": ("ppo", *CHOICE, "normalize_reward=true"),
    "ppo, kl": ("ppo", *CHOICE, "target_kl=0.01", "clip_range_vf=0.2"),
    "ppo, rmsprop": ("ppo", *CHOICE, "optimizer=rmsprop"),
    "ppo, adam": ("ppo", *CHOICE, "optimizer=adam", "max_grad_norm=null"),
    "ppo, sgd": ("ppo", *CHOICE, "optimizer=sgd"),
    "ppo, lstm": ("ppo", *CHOICE, "policy=lstm"),
    "ppo, gru": ("ppo", *CHOICE, "policy=gru", "share_trunk=true"),
    "ppo, lag": ("ppo", *CHOICE, "lag=1", "normalize_obs=true"),
    "ppo, accumulate": ("ppo", *CHOICE, "accumulate=2", "optimizer=rmsprop"),
    "ppo, unguarded": ("ppo", *CHOICE, "nan_guard=off"),
    "ppo, rollout": ("ppo", *CHOICE, "normalize_advantages=rollout"),
    "ppo, scheduled": ("ppo", *CHOICE, "clip_range=lin_0.2", "policy_lr=lin_0.001", "ent_coef=lin_0.1"),
    "ppo, gaussian": ("ppo", STACKED, TORQUES, "normalize_obs=static"),
    "ppo, mask": ("ppo", MASKED, ONE_OF_2),
    "ppo, choices": ("ppo", NUMBERS, spaces.MultiDiscrete([2, 3])),
    "ppo, cnn": ("ppo", IMAGE, ONE_OF_2, *CNN),
    "reinforce": ("reinforce", *CHOICE, "normalize_reward=true", "returns_type=mc:episode"),
    "reinforce, critic": ("reinforce", *CHOICE, "policy_targets=advantages", "normalize_returns=batch"),
    "reinforce, lstm": ("reinforce", *CHOICE, "policy=lstm"),
    "dqn": ("dqn", *CHOICE),
    "dqn, prioritised": ("dqn", *CHOICE, "prioritised=true", "n_step=3", "normalize_obs=true"),
    "dqn, quantiles": ("dqn", MASKED, ONE_OF_2, "quantiles=5", "dueling=true", "tau=0.5", "optimizer=rmsprop"),
    "dqn, frames": ("dqn", STACKED, ONE_OF_2, "frame_stack=2", "double_q=false", "huber=null"),
    "dqn, frames by priority": ("dqn", IMAGE, ONE_OF_2, "frame_stack=2", "prioritised=true", *CNN),
    "sac": ("sac", NUMBERS, TORQUES, "normalize_obs=true"),
    "sac, fixed": ("sac", NUMBERS, TORQUES, "ent_coef=0.2", "noise_correlation=0.5"),
    "dreamer": ("dreamer", *CHOICE, "imagined_starts=4"),
    "dreamer, images": ("dreamer", IMAGE, TORQUES, "imagined_starts=4"),
    "planet": ("planet", *CHOICE, "candidates=6", "elites=2"),
    "pqn": ("pqn", *CHOICE, "normalize_obs=true"),
    "pqn, mask": ("pqn", MASKED, ONE_OF_2, "optimizer=rmsprop"),
    "q_learning": ("q_learning", PLACE, ONE_OF_2, "visits_power=0.6"),
    "q_learning, mask": ("q_learning", spaces.Dict({"action_mask": spaces.MultiBinary(2), "place": PLACE}), ONE_OF_2),
}
SIZES = {"dqn": REPLAY, "sac": REPLAY, "dreamer": SEQUENCES, "planet": SEQUENCES, "q_learning": PLACES}


@pytest.fixture(autouse=True)
def optimizers():
    with ExitStack() as stack:
        for patch in optimizers_on_meta():
            stack.enter_context(patch)
        yield


def agent_of(name):
    algo_id, observation, action, *more = CASES[name]
    environment = {"sac": "Pendulum-v1", "q_learning": "FrozenLake-v1"}.get(algo_id, "CartPole-v1")
    words = (*SIZES.get(algo_id, ROLLOUT), "engine=eager", *more)
    config = load_config(environment, algo_id, list(words))
    return ALGORITHMS[algo_id](config, MetaWorlds(config.n_envs, observation, action))


# one of each kind; the others are slow
FAST = ("ppo", "ppo, rewards", "ppo, rmsprop", "reinforce", "dqn, prioritised", "sac", "pqn", "q_learning")


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in CASES])
def test_an_iteration_mixes_no_devices_and_waits_once(name):
    agent = driven(agent_of(name))
    owned = [*agent.parameters(), *agent.buffers(), *leaves(agent.memory.table), *leaves(agent.memory.final)]
    assert {x.device for x in (*owned, agent.broken, *leaves(agent.collector.carry))} == {META} == {agent.device}
    with NothingMade(), Quiet() as quiet:
        for tick in range(2):
            agent.training_step(iter([tick]))
            assert quiet.reads == tick + 1
        assert agent.progress["updates"] > 0
        agent.collector.window.summary(), agent.metrics.flush()
        assert quiet.reads == 2 + 2  # what a row wants of the device: the episodes, and the sums


class Still:
    """Kernels that do nothing, with what lies on the device."""

    def launch(self, kernel, threads, *arguments, block=128, shared=0):
        assert {x.device for x in arguments if isinstance(x, Tensor)} == {META}, kernel


def test_learning_by_kernels_waits_for_nothing_but_the_flags():
    """What is told reaches the host beside these, and is asked for with the row."""
    agent = driven(agent_of("ppo, lag"))
    learn = FusedLearn(RECIPES[PPO], lambda source, device: Still())
    agent.engine = agent.engine._replace(learn=learn)
    with NothingMade(), Quiet() as quiet:
        for tick in range(2):
            agent.training_step(iter([tick]))
            assert quiet.reads == tick + 1
        agent.metrics.flush()
    assert agent.progress["updates"] == 4


def checkpoint_of(agent):
    """After an iteration on the device."""
    with Quiet():
        agent.training_step(iter([0]))
        optimizer = agent.optimizers()
        states = [optimizer.state_dict()] if optimizer else []
        checkpoint = {"state_dict": agent.state_dict(), "optimizer_states": states}
        agent.on_save_checkpoint(checkpoint)
    return checkpoint


@pytest.mark.parametrize("name", ["ppo, rmsprop", "ppo, rewards", "dqn, prioritised", "sac", "q_learning"])
def test_a_checkpoint_lies_on_the_cpu_whatever_the_device(name, tmp_path):
    torch.save(checkpoint_of(driven(agent_of(name))), tmp_path / "file")
    read = torch.load(tmp_path / "file", weights_only=True)
    tensors = [x for x in tree_leaves(read) if isinstance(x, Tensor)]
    assert len(tensors) > 5 and {x.device.type for x in tensors} == {"cpu"}
    assert all(type(group["lr"]) is float and not group.get("capturable") for group in groups(read))


def test_an_optimizers_settings_become_those_of_the_device_that_goes_on():
    agent = driven(agent_of("ppo, rmsprop"))
    checkpoint = checkpoint_of(agent)
    assert [group["capturable"] for group in groups(checkpoint)] == [False]  # as one on the CPU has it
    checkpoint["stride"]["parts"] = {name: None for name in agent.parts}
    agent.parts.clear()
    agent.on_load_checkpoint(checkpoint)
    assert [group["capturable"] for group in groups(checkpoint)] == [True]


def test_episodes_are_counted_by_one_look_in_many_steps():
    agent = agent_of("ppo")
    collector = Collector(agent.collector.envs, agent.policy, 1, EVALUATE, greedy=True)
    assert collector.looks == LOOKS > 1
    collector.looks = 3
    with NothingMade(), Quiet() as quiet:
        assert collector.play(5, 6).returns == []
        assert quiet.reads == 2


@pytest.mark.parametrize("kind", ["adamw", "adam", "rmsprop", "sgd"])
def test_a_step_that_may_be_skipped_waits_for_nothing(kind):
    net = torch.nn.Linear(3, 2, device=META)
    optimizer = build_optimizer(PPOConfig(optimizer=kind), list(net.parameters()), 1e-3)
    for group in optimizer.param_groups:
        group["lr"] = torch.zeros((), device=META)  # as a graph wants it
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    with NothingMade(), Quiet() as quiet:
        for _ in range(2):
            step_unless(optimizer, torch.zeros((), dtype=torch.bool, device=META))
        assert quiet.reads == 0


WAITING = {
    "item": lambda x, near: x.sum().item(),
    "bool": lambda x, near: bool(x[0]),
    "a mask": lambda x, near: x[x > 0],
    "an index of the host": lambda x, near: x[torch.tensor([0, 1])],
    "a copy to the device": lambda x, near: near.to(META),
    "a copy into the device": lambda x, near: x.copy_(near),
    "numbers of the host": lambda x, near: x.new_tensor(3.0),
    "a list of the host": lambda x, near: torch.tensor([1, 2], device=META),
    "two devices": lambda x, near: x + near,
}


@pytest.mark.parametrize("way", WAITING)
def test_the_guard_finds_each_way_to_wait(way):
    x, near = torch.zeros(3, device=META), torch.zeros(3)
    with pytest.raises((AssertionError, RuntimeError)), NothingMade(), Quiet():
        WAITING[way](x, near)


def test_a_policy_that_stays_on_the_cpu_is_found():
    worlds = MetaWorlds(4, NUMBERS, ONE_OF_2)
    policy = QPolicy(NUMBERS, ONE_OF_2, QNetworkShape((8,), "relu"), 1)
    with pytest.raises(AssertionError, match="mixes devices"), Quiet():
        Collector(worlds, policy, 1).example()
