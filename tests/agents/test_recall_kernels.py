"""What is learnt from remembered sequences, in kernels against torch: losses, what is told, and every gradient."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from model_cases import assert_near, drawn, generator, randomise
from probe_envs import Probe

from stride.agents.dreamer import Dreamer
from stride.agents.engines.fused_cpu.model_losses import ReplayLosses
from stride.agents.engines.fused_cpu.model_nets import KernelPool
from stride.agents.engines.fused_cpu.workers import Workers
from stride.agents.experience.nouns import Sequences
from stride.agents.model_learning import model_loss
from stride.agents.networks import dreamer_policy
from stride.agents.networks.world_model import ModelSizes
from stride.agents.planet import PlaNet
from stride.config.schema import DreamerConfig, PlaNetConfig

STEPS, SEQUENCES = 7, 16
IMAGE = gym.spaces.Box(0, 255, (6, 6), np.uint8)
SEEN = {
    "numbers": gym.spaces.Box(-1, 1, (5,), np.float32),
    "an image": IMAGE,
    "both": gym.spaces.Dict({"image": IMAGE, "vector": gym.spaces.Box(-1, 1, (3,), np.float32)}),
}
SMALL = dict(n_envs=2, max_timesteps=1000, buffer_size=1000, batch_size=SEQUENCES, batch_length=STEPS, deter=24,
             stoch=3, classes=5, width=20, depth=4, bins=21, end_weight=3.0, prior_coef=0.7)  # fmt: skip
AGENTS = {
    "dreamer": lambda worlds, **more: Dreamer(DreamerConfig(algo_id="dreamer", **SMALL | more), worlds),
    "planet": lambda worlds, **more: PlaNet(PlaNetConfig(algo_id="planet", **SMALL | more), worlds),
}


def agent_of(algo, space, **more):
    """One all of whose weights matter."""
    worlds = Probe(2)
    worlds.observation_space = space
    worlds.out = worlds.out._replace(obs=zeros(space, (2,)), final_obs=zeros(space, (2,)))
    worlds.reset = lambda seed: worlds.out.obs
    agent = AGENTS[algo](worlds, **more)
    randomise([*agent.policy.parameters(), *getattr(agent, "slow", agent.ends).parameters()])
    return agent


def zeros(space, shape):
    if isinstance(space, gym.spaces.Dict):
        return {name: zeros(leaf, shape) for name, leaf in space.items()}
    return torch.zeros(*shape, *space.shape, dtype=torch.uint8 if space.dtype == np.uint8 else torch.float32)


def seen_of(space, seed=1):
    shape, g = (STEPS, SEQUENCES), generator(seed)
    if isinstance(space, gym.spaces.Dict):
        return {name: seen_of(leaf, number) for number, (name, leaf) in enumerate(space.items())}
    if space.dtype == np.uint8:
        return torch.randint(256, (*shape, *space.shape), generator=g, dtype=torch.uint8)
    return torch.randn(*shape, *space.shape, generator=g)


def batch_of(space, reward=None):
    """Episodes that begin and end, some by a limit."""
    rows, g = (STEPS, SEQUENCES), generator(2)
    ended = torch.rand(rows, generator=g) < 0.2
    first = torch.cat((torch.zeros(1, SEQUENCES, dtype=torch.bool), ended[:-1]))
    terminated = ended & (torch.rand(rows, generator=g) < 0.7)
    paid = (drawn(*rows, seed=3) * 3 if reward is None else reward).masked_fill(first, 0)
    action = torch.randint(2, rows, generator=g)
    return Sequences(seen_of(space), action, paid, first, terminated, (), torch.zeros(rows, dtype=torch.int64))


def learnt(agent, batch, threads=0):
    """Loss, its parts, metrics, ends and states, then all gradients of three times the loss."""
    u = torch.rand(STEPS, SEQUENCES, 3, generator=generator(4))
    if threads:
        losses = ReplayLosses(agent, KernelPool(Workers(threads), threads)).losses(batch, u)
    elif isinstance(agent, Dreamer):
        losses = agent.recall_loss(batch, u)
    else:
        losses = model_loss(agent.policy, batch, u, agent.config)
    weights = dict(agent.policy.named_parameters())
    slopes = torch.autograd.grad(3 * losses.loss, [*weights.values()], allow_unused=True)
    gradients = {name: x for name, x in zip(weights, slopes, strict=True) if x is not None}
    numbers = {"loss": losses.loss, **losses.parts, **losses.metrics, "ends": losses.ends, **losses.states._asdict()}
    return {name: x.detach() for name, x in numbers.items()}, gradients


def assert_same(agent, batch):
    (numbers, gradients), (mine, slopes), two_threads = (learnt(agent, batch, threads) for threads in (0, 1, 2))
    torch.testing.assert_close(mine, numbers, atol=1e-5, rtol=1e-5)
    assert_near(slopes, gradients, 1e-5)
    assert all(torch.equal(x, two_threads[0][name]) for name, x in mine.items())
    assert all(torch.equal(x, two_threads[1][name]) for name, x in slopes.items())
    return numbers, gradients


@pytest.mark.parametrize("space", SEEN)
@pytest.mark.parametrize("algo", AGENTS)
def test_losses_and_gradients_are_torchs(algo, space):
    agent = agent_of(algo, SEEN[space], free_nats=1.0)
    numbers, gradients = assert_same(agent, batch_of(SEEN[space]))
    assert ("replay_value" in numbers) == (algo == "dreamer") and len(gradients) > 25


def test_free_nats_pull_nothing_and_nets_may_be_deep(monkeypatch):
    deep = ModelSizes(senses=3, prior=2, behaviour=3)
    monkeypatch.setattr(dreamer_policy, "SIZES", {"small": deep})
    agent, batch = agent_of("dreamer", SEEN["numbers"], free_nats=30.0, size="small"), batch_of(SEEN["numbers"])
    u = torch.rand(STEPS, SEQUENCES, 3, generator=generator(4))
    losses = ReplayLosses(agent, KernelPool(Workers(1), 1)).losses(batch, u)
    losses.loss.backward()
    assert losses.parts["prior"].item() == pytest.approx(0.7 * 30)
    assert all(not weight.grad.any() for weight in agent.policy.model.rssm.prior.parameters())
    assert_same(agent_of("dreamer", SEEN["numbers"], free_nats=0.0, size="small"), batch)


def test_rewards_may_lie_at_the_bins_or_beyond_them():
    agent, reward = agent_of("planet", SEEN["numbers"]), drawn(STEPS, SEQUENCES, seed=3) * 1e4
    bins = agent.policy.model.two_hot.bins
    reward[3, :8] = torch.tensor([0.0, -1e12, 1e12, *bins[[0, 1, 10, -2, -1]].tolist()])
    assert_same(agent, batch_of(SEEN["numbers"], reward))


def test_a_nan_shows_in_all_losses_that_follow_from_it():
    """The guard looks at losses: a kernel must not hide its inputs."""
    agent, reward = agent_of("dreamer", SEEN["numbers"]), torch.zeros(STEPS, SEQUENCES)
    batch = batch_of(SEEN["numbers"], reward)
    batch.reward[4, 3] = torch.nan
    numbers, _ = learnt(agent, batch, 1)
    spoiled = {name for name, x in numbers.items() if x.isnan().any()}
    assert spoiled == {"loss", "reward", "replay_value", "train/return/reached"}
    batch.reward.zero_()
    batch.obs[2, 5] = torch.nan
    numbers, _ = learnt(agent, batch, 1)
    assert all(numbers[name].isnan().any() for name in ("loss", "observation", "prior", "train/model/kl"))
