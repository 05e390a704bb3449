"""What a world model and its behaviour learn, in kernels against torch: choices, losses, metrics and every gradient."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from probe_envs import Probe
from worlds import generator

from stride.agents.dreamer import Dreamer
from stride.agents.engines.fused_cpu.model_losses import DreamLosses, ReplayLosses
from stride.agents.engines.fused_cpu.model_nets import KernelPool
from stride.agents.engines.fused_cpu.workers import Workers
from stride.agents.experience.nouns import Sequences
from stride.agents.model_learning import model_loss
from stride.agents.networks import dreamer_policy
from stride.agents.networks.world_model import ModelSizes, State
from stride.agents.planet import PlaNet
from stride.config.schema import DreamerConfig, PlaNetConfig
from stride.envs_gym.spaces import zeros

STEPS, SEQUENCES = 7, 32  # two groups of 16, which threads share
IMAGE, NUMBERS = gym.spaces.Box(0, 255, (6, 6), np.uint8), gym.spaces.Box(-1, 1, (5,), np.float32)
OBSERVATIONS = {
    "numbers": NUMBERS,
    "an image": IMAGE,
    "both": gym.spaces.Dict({"image": IMAGE, "vector": gym.spaces.Box(-1, 1, (3,), np.float32)}),
}
ACTIONS = {
    "choice": gym.spaces.Discrete(5),
    "choices": gym.spaces.MultiDiscrete([3, 2, 4]),
    "numbers": gym.spaces.Box(-1, 1, (3,)),
}
ALGORITHMS = {"dreamer": (Dreamer, DreamerConfig), "planet": (PlaNet, PlaNetConfig)}
ODD = dict(deter=24, stoch=3, classes=5, width=20)
WIDE = dict(deter=256, stoch=8, classes=16, width=96)
COSTS = dict(end_weight=3.0, prior_coef=0.7, observation_coef=2.0)
RECALL = dict(batch_size=SEQUENCES, batch_length=STEPS, depth=4, bins=21, **COSTS, **ODD)
DREAM = dict(batch_size=4, batch_length=16, horizon=6)


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed))


@torch.no_grad()
def randomise(parameters, seed=0):
    """Weights as large as keeps what passes through them as it is; scales and offsets about 1."""
    g = generator(seed)
    for parameter in parameters:
        inputs = parameter[0].numel() if parameter.dim() > 1 else 4
        parameter.copy_(torch.randn(parameter.shape, generator=g) * inputs**-0.5 + (parameter.dim() == 1))


def assert_near(mine, exact, within):
    """Each gradient within a share of its largest number."""
    assert mine.keys() == exact.keys()
    for name, gradient in exact.items():
        largest = gradient.abs().max()
        apart = (mine[name] - gradient).abs().max()
        assert largest > 0 and apart <= within * largest, (name, apart / largest)


def agent_of(algo_id, observation=None, action=None, **words):
    """One all of whose weights matter."""
    worlds = Probe(2)
    worlds.action_space = action or worlds.action_space
    if observation:
        worlds.observation_space = observation
        worlds.out = worlds.out._replace(obs=zeros(observation, 2), final_obs=zeros(observation, 2))
        worlds.reset = lambda seed: worlds.out.obs
    agent_class, config_class = ALGORITHMS[algo_id]
    agent = agent_class(config_class(algo_id=algo_id, n_envs=2, max_timesteps=1000, buffer_size=1000, **words), worlds)
    randomise(agent.policy.parameters(), seed=5)
    return agent


def pool(threads):
    return KernelPool(Workers(threads), threads)


def assert_learns_the_same(exact, mine, two_threads, within):
    """(numbers, gradients) of torch, and of kernels on one and two threads."""
    torch.testing.assert_close(mine[0], exact[0], atol=1e-5, rtol=1e-5)
    assert_near(mine[1], exact[1], within)
    for ours, others in zip(mine, two_threads, strict=True):
        assert ours.keys() == others.keys() and all(torch.equal(x, others[name]) for name, x in ours.items())


def gradients_of(loss, weights):
    slopes = torch.autograd.grad(loss, [*weights.values()], allow_unused=True)
    return {name: x for name, x in zip(weights, slopes, strict=True) if x is not None}


# --- from remembered sequences


def observations(space, seed=1):
    if isinstance(space, gym.spaces.Dict):
        return {name: observations(leaf, number) for number, (name, leaf) in enumerate(space.items())}
    shape = (STEPS, SEQUENCES, *space.shape)
    if space.dtype == np.uint8:
        return torch.randint(256, shape, generator=generator(seed), dtype=torch.uint8)
    return drawn(*shape, seed=seed)


def batch_of(space, reward=None):
    """Episodes that begin and end, some by a limit."""
    rows, g = (STEPS, SEQUENCES), generator(2)
    ended = torch.rand(rows, generator=g) < 0.2
    first = torch.cat((torch.zeros(1, SEQUENCES, dtype=torch.bool), ended[:-1]))
    terminated = ended & (torch.rand(rows, generator=g) < 0.7)
    reward = (drawn(*rows, seed=3) * 3 if reward is None else reward).masked_fill(first, 0)
    action = torch.randint(2, rows, generator=g)
    return Sequences(observations(space), action, reward, first, terminated, (), torch.zeros(rows, dtype=torch.int64))


def recalled(agent, batch, threads=0):
    """Loss, its parts, metrics, ends and states, then all gradients of three times the loss."""
    u = torch.rand(STEPS, SEQUENCES, agent.policy.sizes.stoch, generator=generator(4))
    if threads:
        losses = ReplayLosses(agent, pool(threads)).losses(batch, u)
    elif isinstance(agent, Dreamer):
        losses = agent.recall_loss(batch, u)
    else:
        losses = model_loss(agent.policy, batch, u, agent.live)
    numbers = {"loss": losses.loss, **losses.parts, **losses.metrics, "ends": losses.ends, **losses.states._asdict()}
    gradients = gradients_of(3 * losses.loss, dict(agent.policy.named_parameters()))
    return {name: x.detach() for name, x in numbers.items()}, gradients


def assert_recalls_the_same(agent, batch):
    exact, *mine = (recalled(agent, batch, threads) for threads in (0, 1, 2))
    assert_learns_the_same(exact, *mine, within=1e-5)
    return exact


@pytest.mark.parametrize("space", OBSERVATIONS)
@pytest.mark.parametrize("algo_id", ALGORITHMS)
def test_losses_and_gradients_of_sequences_are_torchs(algo_id, space):
    agent = agent_of(algo_id, OBSERVATIONS[space], free_nats=1.0, **RECALL)
    numbers, gradients = assert_recalls_the_same(agent, batch_of(OBSERVATIONS[space]))
    assert ("replay_value" in numbers) == (algo_id == "dreamer") and len(gradients) > 25


def test_free_nats_pull_nothing_and_nets_may_be_deep_or_wide(monkeypatch):
    monkeypatch.setattr(dreamer_policy, "SIZES", {"small": ModelSizes(senses=3, prior=2, behaviour=3)})
    batch = batch_of(NUMBERS)
    numbers, gradients = recalled(agent_of("dreamer", NUMBERS, free_nats=30.0, size="small", **RECALL), batch, 1)
    assert numbers["prior"].item() == pytest.approx(0.7 * 30)
    prior = [gradient for name, gradient in gradients.items() if "rssm.prior" in name]
    assert not any(gradient.any() for gradient in prior)
    assert_recalls_the_same(agent_of("dreamer", NUMBERS, free_nats=0.0, size="small", **RECALL), batch)
    assert_recalls_the_same(agent_of("planet", NUMBERS, size="small", **{**RECALL, **WIDE}), batch)


def test_rewards_may_lie_at_the_bins_or_beyond_them():
    agent, reward = agent_of("planet", NUMBERS, **RECALL), drawn(STEPS, SEQUENCES, seed=3) * 1e4
    bins = agent.policy.model.two_hot.bins
    reward[3, :8] = torch.tensor([0.0, -1e12, 1e12, *bins[[0, 1, 10, -2, -1]].tolist()])
    assert_recalls_the_same(agent, batch_of(NUMBERS, reward))


def test_a_nan_shows_in_all_losses_that_follow_from_it():
    """The guard looks at losses: a kernel must not hide its inputs."""
    agent, batch = agent_of("dreamer", NUMBERS, **RECALL), batch_of(NUMBERS, torch.zeros(STEPS, SEQUENCES))
    batch.reward[4, 3] = torch.nan
    numbers, _ = recalled(agent, batch, 1)
    spoiled = {name for name, x in numbers.items() if x.isnan().any()}
    assert spoiled == {"loss", "reward", "replay_value", "train/return/reached"}
    batch.reward.zero_()
    batch.obs[2, 5] = torch.nan
    numbers, _ = recalled(agent, batch, 1)
    assert all(numbers[name].isnan().any() for name in ("loss", "observation", "prior", "train/model/kl"))


# --- from what is imagined


def dreamer_of(action="choice", starts=16, sizes=ODD):
    return agent_of("dreamer", None, ACTIONS[action], imagined_starts=starts, **DREAM, **sizes)


def start_of(agent, starts=16):
    sizes, g = agent.policy.sizes, generator(7)
    deter = torch.rand(starts, sizes.deter, generator=g) * 2 - 1
    chosen = torch.randint(sizes.classes, (starts, sizes.stoch), generator=g)
    return State(deter, torch.eye(sizes.classes)[chosen].flatten(1))


def dreamt(agent, starts, threads):
    """Losses, metrics and range, then gradients of the loss in which the actor's counts twice."""
    alive, draws, policy = torch.ones(starts), agent.draw(), agent.policy
    alive[3] = 0
    losses = DreamLosses(agent, pool(threads)).losses if threads else agent.behaviour_loss
    parts, metrics = losses(start_of(agent, starts), alive, draws.guess, draws.action)
    learnt = [*policy.torso.parameters(), *policy.head.parameters(), *policy.critic.parameters()]
    gradients = gradients_of(2 * parts["policy"] + parts["critic"], dict(enumerate(learnt)))
    numbers = parts | metrics | {"range": agent.range.value.clone()}
    return {name: x.detach() for name, x in numbers.items()}, gradients


@pytest.mark.parametrize("starts", [32, 24])
@pytest.mark.parametrize("sizes", [{}, ODD], ids=["small", "odd"])
@pytest.mark.parametrize("action", ACTIONS)
def test_what_is_imagined_and_learnt_from_it_is_torchs(action, sizes, starts):
    results = [dreamt(dreamer_of(action, starts, sizes), starts, threads) for threads in (0, 1, 2)]
    assert_learns_the_same(*results, within=2e-5)


def test_a_nan_shows_in_all_losses_and_teaches_no_range():
    """The guard looks at losses: a kernel must not hide its inputs."""
    agent = dreamer_of()
    draws, start = agent.draw(), start_of(agent)
    start.deter[3, 0] = torch.nan
    losses, _ = DreamLosses(agent, pool(1)).losses(start, torch.ones(16), draws.guess, draws.action)
    assert all(loss.isnan() for loss in losses.values()) and agent.range.value == 0
