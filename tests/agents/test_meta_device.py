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
from stride.agents.base import groups
from stride.agents.engines.choice import RECIPES
from stride.agents.engines.fused_gpu.learn import FusedLearn
from stride.agents.experience.collector import STEPS_PER_FETCH, Collector
from stride.agents.experience.nouns import leaves
from stride.agents.ppo import PPO
from stride.config.loader import load_config
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
ON_CHOICES = (  # numbers are seen, one of two actions is chosen
    "ppo", "ppo normalize_obs=true", "ppo normalize_reward=true", "ppo target_kl=0.01 clip_range_vf=0.2",
    "ppo optimizer=rmsprop", "ppo optimizer=adam max_grad_norm=null", "ppo optimizer=sgd", "ppo policy=lstm",
    "ppo policy=mingru", "ppo policy=transformer",
    "ppo policy=gru share_trunk=true", "ppo lag=1 normalize_obs=true", "ppo accumulate=2 optimizer=rmsprop",
    "ppo nan_guard=off", "ppo normalize_advantages=rollout",
    "ppo clip_range=lin_0.2 policy_lr=lin_0.001 ent_coef=lin_0.1",
    "reinforce normalize_reward=true returns_type=mc:episode",
    "reinforce policy_targets=advantages normalize_returns=batch", "reinforce policy=lstm", "dqn",
    "dqn prioritised=true n_step=3 normalize_obs=true", "dreamer imagined_starts=4", "planet candidates=6 elites=2",
    "pqn normalize_obs=true", "pqn optimizer=radam",
)  # fmt: skip
CASES = {
    **dict.fromkeys(ON_CHOICES, (NUMBERS, ONE_OF_2)),
    "ppo normalize_obs=static": (STACKED, TORQUES),
    "ppo hidden_dims=16": (MASKED, ONE_OF_2),
    "ppo hidden_dims=8": (NUMBERS, spaces.MultiDiscrete([2, 3])),
    "ppo policy=cnn policy_kwargs.features=8": (IMAGE, ONE_OF_2),
    "dqn quantiles=5 dueling=true tau=0.5 optimizer=rmsprop": (MASKED, ONE_OF_2),
    "dqn frame_stack=2 double_q=false huber=null": (STACKED, ONE_OF_2),
    "dqn frame_stack=2 prioritised=true policy=cnn policy_kwargs.features=8": (IMAGE, ONE_OF_2),
    "sac normalize_obs=true": (NUMBERS, TORQUES),
    "sac ent_coef=0.2 noise_correlation=0.5": (NUMBERS, TORQUES),
    "td3 actor_every=2 n_step=3 prioritised=true normalize_obs=true": (NUMBERS, TORQUES),
    "tqc normalize_obs=true": (NUMBERS, TORQUES),
    "dreamer imagined_starts=8": (IMAGE, TORQUES),
    "pqn optimizer=rmsprop": (MASKED, ONE_OF_2),
    "q_learning visits_power=0.6": (PLACE, ONE_OF_2),
    "q_learning": (spaces.Dict({"action_mask": spaces.MultiBinary(2), "place": PLACE}), ONE_OF_2),
}
SIZES = dict.fromkeys(("dqn", "sac", "td3", "tqc"), REPLAY)
SIZES |= {"dreamer": SEQUENCES, "planet": SEQUENCES, "q_learning": PLACES}


@pytest.fixture(autouse=True)
def optimizers():
    with ExitStack() as stack:
        for patch in optimizers_on_meta():
            stack.enter_context(patch)
        yield


def agent_of(name):
    algo_id, *more = name.split()
    pendulum = dict.fromkeys(("sac", "td3", "tqc"), "Pendulum-v1")
    environment = {**pendulum, "q_learning": "FrozenLake-v1"}.get(algo_id, "CartPole-v1")
    words = (*SIZES.get(algo_id, ROLLOUT), "engine=eager", *more)
    config = load_config(environment, algo_id, list(words))
    return ALGORITHMS[algo_id](config, MetaWorlds(config.n_envs, *CASES[name]))


# one of each kind; the others are slow
FAST = ("ppo", "ppo normalize_reward=true", "ppo optimizer=rmsprop", "dqn prioritised=true n_step=3 normalize_obs=true")
FAST += ("reinforce normalize_reward=true returns_type=mc:episode", "sac normalize_obs=true", "pqn normalize_obs=true")
FAST += ("q_learning visits_power=0.6",)


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
    agent = driven(agent_of("ppo lag=1 normalize_obs=true"))
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


@pytest.mark.parametrize("name", FAST)
def test_a_checkpoint_lies_on_the_cpu_whatever_the_device(name, tmp_path):
    torch.save(checkpoint_of(driven(agent_of(name))), tmp_path / "file")
    read = torch.load(tmp_path / "file", weights_only=True)
    tensors = [x for x in tree_leaves(read) if isinstance(x, Tensor)]
    assert len(tensors) > 5 and {x.device.type for x in tensors} == {"cpu"}
    assert all(type(group["lr"]) is float and not group.get("capturable") for group in groups(read))


def test_an_optimizers_settings_become_those_of_the_device_that_goes_on():
    agent = driven(agent_of("ppo optimizer=rmsprop"))
    checkpoint = checkpoint_of(agent)
    assert [group["capturable"] for group in groups(checkpoint)] == [False]  # as one on the CPU has it
    checkpoint["stride"]["parts"] = {name: None for name in agent.parts}
    agent.parts.clear()
    agent.on_load_checkpoint(checkpoint)
    assert [group["capturable"] for group in groups(checkpoint)] == [True]


def test_episodes_are_counted_by_one_look_in_many_steps():
    agent = agent_of("ppo")
    collector = Collector(agent.collector.envs, agent.policy, 1, EVALUATE, greedy=True)
    assert collector.steps_per_fetch == STEPS_PER_FETCH > 1
    collector.steps_per_fetch = 3
    with NothingMade(), Quiet() as quiet:
        assert collector.play(5, 6).returns == []
        assert quiet.reads == 2


WAITING = {
    "item": lambda x, near: x.sum().item(),
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
