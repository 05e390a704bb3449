"""Small pictures: the network that reads them, and its convolutions in the fused engine beside torch's.

Trainings of the engine on pictures of Gymnasium's worlds are cases in test_same_as_eager.py.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from driven import advance, agent_for
from fused_cases import REPLAY, first_update, furthest, next_update
from fused_cases import SMALL as ROLLOUT
from gymnasium.spaces import Box, Discrete
from picture_worlds import Film, register
from same_as_eager import Case, assert_learns_as_eager, assert_resumes
from torch.nn import functional as F
from worlds import driven

from stride.agents.dqn import DQN
from stride.agents.engines.choice import choose_engine
from stride.agents.engines.fused_gpu.engine import why_not_fused
from stride.agents.engines.plan.on_policy import PPORecipe
from stride.agents.networks.actor_critic import ActorCritic, Plan
from stride.agents.networks.cnn import CNN, Image
from stride.agents.ppo import PPO
from stride.agents.pqn import PQN
from stride.commands.plain_tree import fingerprint
from stride.config.schema import DQNConfig, PPOConfig, PQNConfig
from stride.export.decisions import WholeImage

MINATAR = Box(0.0, 1.0, (10, 10, 4), np.float32)
NET = ("policy=cnn", "policy_kwargs.cnn=small", "policy_kwargs.features=32", "hidden_dims=[]")
CATCH = (*NET, "policy_lr=1e-3", "max_episode_steps=7", *ROLLOUT)
REPLAYED = (*NET, *REPLAY[:-1], "max_episode_steps=7", "target_freq=90", "n_step=3", "threads=2")

# --- the network


@pytest.mark.parametrize("space", [MINATAR, Box(0, 255, (4, 10, 10), np.uint8), Box(0, 1, (3, 7, 9), np.float32)])
def test_small_is_convolutions_of_the_given_sizes(space):
    net = Image(space, CNN("small", 7, (5, 6), 2), "image")
    x = torch.from_numpy(np.stack([space.sample() for _ in range(3)]))
    planes = x.float() / (255 if space.dtype == np.uint8 else 1)
    planes = planes.movedim(-1, 1) if space is MINATAR else planes
    first, second = (layer for layer in net.convolutions if hasattr(layer, "weight"))
    h = F.relu(F.conv2d(F.relu(F.conv2d(planes, first.weight, first.bias)), second.weight, second.bias))
    expected = F.relu(F.linear(h.flatten(1), net.join[1].weight, net.join[1].bias))
    torch.testing.assert_close(net(x), expected)
    torch.testing.assert_close(net(x[None]), expected[None])
    torch.testing.assert_close(WholeImage(net)(x), expected)


def test_minatars_network_is_one_of_these():
    """16 filters of 3 x 3, 128 features, and the heads of actor and critic on them (Young and Tian 2019)."""
    policy = ActorCritic(Plan(MINATAR, Discrete(6), (), cnn=CNN("small", 128)))
    shapes = [tuple(parameter.shape) for parameter in policy.parameters() if parameter.dim() > 1]
    assert shapes == [(16, 4, 3, 3), (128, 8 * 8 * 16), (6, 128), (1, 128)]


def test_pqns_network_for_minatar_is_the_published_one():
    """Behind the convolution and behind the features, before their relu, a layer norm (Gallici et al. 2024)."""
    config = PQNConfig(policy="cnn", policy_kwargs={"cnn": "small", "features": 128}, hidden_dims=(), n_envs=2)
    network = PQN(config, Film(MINATAR, 2)).policy.network
    image = network.encoder.leaf[0]
    layers = [type(layer).__name__ for layer in (*image.convolutions, *image.join, *network.torso, network.advantage)]
    assert layers == ["Conv2d", "PixelNorm", "ReLU", "Flatten", "Linear", "LayerNorm", "ReLU", "Linear"]
    x = torch.rand(2, 16, 8, 8)
    normal = (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, correction=0) + 1e-5).sqrt()
    torch.testing.assert_close(image.convolutions[1](x), normal, atol=1e-5, rtol=1e-5)
    assert [p.numel() for p in network.parameters()] == [576, 16, 16, 16, 131072, 128, 128, 128, 128 * 3, 3]


def test_bytes_of_few_levels_reach_1():
    net, seen = Image(Box(0, 3, (1, 4, 4), np.uint8), CNN("small", 2), "image"), []
    net.convolutions.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    net(torch.full((1, 1, 4, 4), 3, dtype=torch.uint8))
    assert (seen[0] == 1).all()


# --- the engine: gradients against autograd in float64, over all shapes of pictures and networks

ROLLOUTS = {"n_steps": 40, "batch_size": 80, "n_epochs": 2}
REPLAYS = {"train_freq": 20, "gradient_steps": 4, "buffer_size": 600, "learning_starts": 100, "batch_size": 50}
LEARNERS = {
    "ppo": (PPO, PPOConfig, {"optimizer": "adamw", "ent_coef": 0.05, **ROLLOUTS}),
    "pqn": (PQN, PQNConfig, {"optimizer": "radam", "epsilon": 0.5, **ROLLOUTS}),
    "dqn": (DQN, DQNConfig, {"optimizer": "adam", "epsilon": 0.5, "dueling": True, "n_step": 3, **REPLAYS}),
}
SEEN = {
    "minatar": (MINATAR, {"features": 128}, {}),
    "minigrid": (Box(0, 255, (3, 7, 7), np.uint8), {"features": 24, "channels": (16, 32, 64), "kernel": 2}, {}),
    "filters that fill no vector": (
        Box(0, 1, (7, 8, 5), np.float32), {"features": 20, "channels": (20, 12), "kernel": 3}, {},
    ),
    "a trunk": (
        Box(0, 255, (21, 7, 7), np.uint8), {"features": 16},
        {"hidden_dims": (24, 16), "share_trunk": True, "activation": "relu"},
    ),
    "one plane": (Box(0, 9, (6, 9), np.uint8), {"features": 16, "channels": (3, 4), "kernel": 1}, {}),
    "planes of numbers": (Box(0, 1, (2, 8, 6), np.float32), {"features": 33, "channels": (5, 17), "kernel": 3}, {}),
}  # fmt: skip


def seen(name, algo_id="ppo", engine="fused_cpu"):
    """An agent that eager plays and an engine learns for."""
    space, options, more = SEEN[name]
    make, config_class, own = LEARNERS[algo_id]
    common = {"algo_id": algo_id, "policy": "cnn", "policy_lr": 1e-3, "n_envs": 6, "hidden_dims": ()}
    config = config_class(policy_kwargs={"cnn": "small", **options}, **{**common, **own, **more})
    agent = driven(make(config, Film(space, config.n_envs)))
    agent.engine = choose_engine(replace(config, engine=engine), agent)
    return agent


@pytest.mark.parametrize("algo_id", LEARNERS)
@pytest.mark.parametrize("name", SEEN)
def test_gradients_are_those_of_autograd(name, algo_id):
    if algo_id == "dqn":  # past the end of the ring; the target has not moved
        gradients = next_update(advance(seen(name, algo_id), 6), seen(name, algo_id, "eager"))
    else:
        agent = advance(seen(name, algo_id), 1)
        agent.metrics.flush()
        gradients = first_update(agent)
    assert furthest(*gradients) <= 1e-6


@pytest.mark.parametrize("algo_id", LEARNERS)
@pytest.mark.parametrize("name", ["minatar", "minigrid"])
def test_updates_are_those_of_eager(name, algo_id):
    """Six or eight updates from the same weights on."""
    fused, eager = seen(name, algo_id), seen(name, algo_id, "eager")
    assert type(fused.engine.learn) is not type(eager.engine.learn)
    iterations = 2 if algo_id == "dqn" else 1
    advance(fused, iterations), advance(eager, iterations)
    ours, theirs = fused.policy.state_dict(), eager.policy.state_dict()
    for key, value in theirs.items():
        torch.testing.assert_close(ours[key], value, atol=5e-6, rtol=1e-6)
    metrics = fused.metrics.flush()
    for key, value in eager.metrics.flush().items():
        assert metrics[key] == pytest.approx(value, rel=2e-3, abs=2e-4, nan_ok=True), key


def test_a_gpus_kernels_refuse_pictures_by_name():
    agent = seen("minatar")
    assert why_not_fused(agent.config, agent, PPORecipe) == "it does not support policy: cnn"


# --- a compiled game: played, evaluated and learnt by kernels


@pytest.fixture
def game(monkeypatch, tmp_path):
    register(monkeypatch, tmp_path)


@pytest.mark.parametrize("algo_id", ["ppo", "pqn"])
def test_a_game_is_played_and_learnt_as_by_eager(game, algo_id):
    """Draws, counters and episodes to the bit, weights within rounding."""
    agent = assert_learns_as_eager(Case(f"Catch-v0:{algo_id}", "fused_cpu", CATCH))
    assert agent.engine.reason == "supports everything this config uses"


@pytest.mark.parametrize("words", ["", "dueling=true double_q=false batch_size=50"])
def test_a_game_is_replayed_as_by_eager(game, words):
    """Past the end of the ring, and past three moves of the target."""
    case = Case("Catch-v0:dqn", "fused_cpu", (*REPLAYED, *words.split()), 1e-5, ((2, 1),) * 3, resumes=(4, 4))
    assert assert_learns_as_eager(case).engine.reason == "supports everything this config uses"
    assert_resumes(case)


@pytest.mark.parametrize("words", ["ppo", "pqn optimizer=radam"])
def test_a_resumed_training_is_one_that_was_never_stopped(game, words):
    algo_id, *more = words.split()
    assert_resumes(Case(f"Catch-v0:{algo_id}", "fused_cpu", (*CATCH, *more), resumes=(2, 2)))


@pytest.mark.parametrize("algo_id", LEARNERS)
def test_results_do_not_depend_on_the_number_of_threads(game, algo_id):
    learnt = set()
    for threads in (1, 2, 3):
        words = (*NET, "max_episode_steps=7", "n_envs=8", f"threads={threads}")
        words += ("n_steps=64", "batch_size=256") if algo_id != "dqn" else ("train_freq=32", "batch_size=400")
        agent = advance(agent_for(f"Catch-v0:{algo_id}", *words, "engine=fused_cpu"), 1)
        bound = agent.engine.learn.bound
        bound.pace.choose = lambda bound=bound: bound.workers.threads
        assert (bound.workers.threads > 1) == (threads > 1)
        advance(agent, 2)
        learnt.add(fingerprint([agent.state_dict(), agent.optimizers().state_dict(), agent.memory.columns_written()]))
    assert len(learnt) == 1


@pytest.mark.parametrize("algo_id", LEARNERS)
def test_the_game_is_learnt(game, algo_id):
    words = (*NET, "n_envs=16", "batch_size=128", "policy_lr=2e-3", "threads=1")
    if algo_id == "dqn":
        words += ("train_freq=32", "gradient_steps=16", "target_freq=512", "tau=0.5")
    else:
        words += ("n_steps=32", "n_epochs=4")
    agent = advance(agent_for(f"Catch-v0:{algo_id}", *words), 60)
    assert agent.engine.name == "fused_cpu" and agent.collector.window.summary()["ep_rew/mean"] > 0.8
