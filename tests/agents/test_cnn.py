"""Convolutional encoders against the same layers written out, how images lie, and observations of several kinds.

Of these every leaf has its own encoder, and agents use whichever leaf tells.
"""

import copy

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from probe_envs import Probe, drawn
from torch import nn
from torch.nn import functional as F
from worlds import driven

from stride.agents.experience.memory import Memory
from stride.agents.experience.nouns import Row
from stride.agents.networks import cnn as module
from stride.agents.networks.actor_critic import ActorCritic, Plan
from stride.agents.networks.cnn import CNN, Block, Image
from stride.agents.networks.encoders import FlatEncoder, Float, MultiOneHot, OneHot, RunningNorm
from stride.agents.ppo import PPO
from stride.config.schema import PPOConfig
from stride.envs_gym.spaces import MASK


def image_space(*shape):
    return Box(0, 255, shape, np.uint8)


def pixels(*shape, seed=0):
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def test_nature_is_the_published_network():
    net = Image(image_space(4, 84, 84), CNN("nature", 512), "image")
    shapes = [tuple(p.shape) for p in net.parameters() if p.dim() > 1]
    assert shapes == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (512, 7 * 7 * 64)]
    x, (a, b, c, d) = pixels(2, 4, 84, 84), [m for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    h = F.relu(F.conv2d(x.float() / 255, a.weight, a.bias, 4))
    h = F.relu(F.conv2d(h, b.weight, b.bias, 2))
    h = F.relu(F.conv2d(h, c.weight, c.bias))
    torch.testing.assert_close(net(x), F.relu(F.linear(h.flatten(1), d.weight, d.bias)))


def test_residual_is_three_stages_of_two_blocks():
    net = Image(image_space(3, 20, 24), CNN("residual", 10), "image")
    convolutions = [m for m in net.modules() if isinstance(m, nn.Conv2d)]
    assert [m.out_channels for m in convolutions] == [16] * 5 + [32] * 10
    assert net.join[1].in_features == 32 * 3 * 3
    x, layers = pixels(2, 3, 20, 24), iter(convolutions)
    h = x.float() / 255
    for _ in range(3):
        h = F.max_pool2d(next(layers)(h), 3, 2, padding=1)
        for _ in range(2):
            first, second = next(layers), next(layers)
            h = h + second(F.relu(first(F.relu(h))))
    torch.testing.assert_close(net(x), F.relu(net.join[1](F.relu(h).flatten(1))))


@pytest.mark.parametrize("lead", [(5,), (3, 5), (1, 1)])
@pytest.mark.parametrize("shape", [(3, 16, 18), (24, 16, 18), (16, 18)], ids=["CHW", "more channels than rows", "HW"])
def test_leading_dimensions_and_channels_first_however_many(lead, shape):
    net = Image(image_space(*shape), CNN("residual", 6), "image")
    x = pixels(*lead, *shape)
    result = net(x)
    assert result.dtype == torch.float32
    first = x.reshape(-1, shape[0] if len(shape) == 3 else 1, *shape[-2:])
    torch.testing.assert_close(result, net.join(net.convolutions(first.float() / 255)).view(*lead, 6))


def test_a_long_rollout_is_read_in_pieces(monkeypatch):
    net, x = Image(image_space(1, 8, 8), CNN("residual", 4), "image"), pixels(5, 7, 1, 8, 8)
    whole, sizes = net(x), []
    net.convolutions.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    monkeypatch.setattr(module, "PIECE_IMAGES", 10)
    torch.testing.assert_close(net(x), whole)
    assert sizes == [10, 10, 10, 5]


def test_images_that_are_floats_keep_their_values_and_get_a_gradient():
    net, x = Image(image_space(1, 8, 8), CNN("residual", 4), "image"), pixels(2, 1, 8, 8)
    floats = x.float().requires_grad_()
    features = net(floats)
    features.sum().backward()
    assert torch.equal(features, net(x)) and torch.equal(floats, x.float()) and floats.grad.any()


@pytest.mark.parametrize("normalize", [False, "rolling", "static"])
def test_images_are_between_0_and_1_whatever_is_normalized(normalize):
    encoder, inputs = FlatEncoder(image_space(1, 8, 8), normalize, CNN("residual", 4)), []
    encoder.leaf[0].convolutions.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    x = torch.cat([torch.zeros(1, 1, 8, 8), torch.full((1, 1, 8, 8), 255)]).to(torch.uint8)
    encoder(x)
    assert inputs[0][0].max() == 0 and (inputs[0][1] == 1).all()
    before = copy.deepcopy(encoder.state_dict())
    encoder.learn(x)
    assert all(torch.equal(before[name], now) for name, now in encoder.state_dict().items())


# --- policies

PLAN = Plan(image_space(1, 12, 12), Discrete(3), (8,), cnn=CNN("residual", 16))


def answers(policy, n=20):
    obs, first = pixels(n, 1, 12, 12), torch.ones(n, dtype=torch.bool)
    return policy.evaluate(obs, (), first, torch.zeros(n, dtype=torch.long))


@pytest.mark.parametrize("share_trunk", [False, True])
def test_actor_and_critic_share_what_reads_images(share_trunk):
    policy = ActorCritic(PLAN._replace(share_trunk=share_trunk))
    answers(policy).value.sum().backward()
    assert all(p.grad is not None for p in policy.encoder.parameters())
    policy.zero_grad()
    (answers(policy).log_prob.sum() + answers(policy).value.sum()).backward()
    norms = policy.gradient_norms(torch.stack([p.grad.norm() for p in policy.parameters()]))
    shared = [p.grad.flatten() for part in (policy.encoder, policy.trunk) for p in part.parameters()]
    assert policy.parts == ["actor", "critic", "trunk"]
    torch.testing.assert_close(norms["train/grad_norm/trunk"], torch.cat(shared).norm(), rtol=1e-5, atol=0)


def test_a_new_policy_is_almost_uniform_and_its_blocks_are_the_identity():
    policy = ActorCritic(PLAN)
    assert (answers(policy).log_prob.exp() - 1 / 3).abs().max() < 0.05
    last = {m.second for m in policy.modules() if isinstance(m, Block)}
    for m in policy.modules():
        if not isinstance(m, nn.Conv2d):
            continue
        assert not m.bias.any() and bool(m.weight.any()) == (m not in last), "blocks begin as the identity"
        if m not in last:
            w = m.weight.flatten(1)
            w = w if len(w) <= w.shape[1] else w.T
            torch.testing.assert_close(w @ w.T, 2 * torch.eye(len(w)), atol=1e-4, rtol=1e-4)


# --- agents


class SeenPixels(Probe):
    """One step, +1 for the action that says in which half of the image there is light; some frames deep."""

    def __init__(self, num_envs, frames=1):
        super().__init__(num_envs)
        self.observation_space = image_space(frames, 12, 12)

    def sight(self):
        image = torch.zeros(self.num_envs, 1, 12, 12, dtype=torch.uint8)
        image[:, :, 3:9, :6] = (self.coin[:, None, None, None] > 0) * 255
        image[:, :, 3:9, 6:] = (self.coin[:, None, None, None] < 0) * 255
        frames = self.observation_space.shape[0]
        return image // torch.arange(1, frames + 1, dtype=torch.uint8).view(frames, 1, 1)

    def reward(self, action):
        return (action * 2.0 - 1) * self.coin


SMALL = {"policy": "cnn", "policy_kwargs": {"cnn": "residual", "features": 16}, "hidden_dims": ()}


def seen_frames():
    config = PPOConfig(n_envs=4, n_steps=4, batch_size=8, n_epochs=2, optimizer="sgd", **SMALL)
    return driven(PPO(config, SeenPixels(4, 4)))


def test_an_agent_acts_by_what_it_sees():
    agent = driven(PPO(PPOConfig(n_envs=8, n_steps=16, policy_lr=5e-3, **SMALL), SeenPixels(8)), 12)
    assert agent.collector.window.summary()["ep_rew/mean"] > 0.9


def test_images_lie_by_pixel_from_the_worlds_on_and_nobody_turns_them_again(monkeypatch):
    agent, turned, laid_out = seen_frames(), [], Image.laid_out
    places = agent.collector.obs, agent.memory.table.obs[0], agent.memory.final.obs[0]
    assert all(x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous() for x in places)
    monkeypatch.setattr(Image, "laid_out", lambda net, x: turned.append(laid_out(net, x) is not x) or laid_out(net, x))
    agent.training_step(iter([0]))
    assert len(turned) > 8 and not any(turned)


def test_a_replay_memory_keeps_planes_as_its_files_do():
    obs = pixels(2, 4, 6, 6).contiguous(memory_format=torch.channels_last)
    flag = torch.zeros(2, dtype=torch.bool)
    row = Row(obs, flag, flag.long(), flag.float(), flag, flag, flag.long(), ())
    stored, passing = (Memory(row, (), 3, 3, 0, replayed=replayed).table.obs for replayed in (True, False))
    assert stored.is_contiguous() and not passing.is_contiguous()
    assert stored.shape == passing.shape == (3, 2, 4, 6, 6)


# --- several kinds at once

LEAVES = {
    "image": Box(0, 255, (1, 10, 10), np.uint8),
    "vector": Box(-np.inf, np.inf, (3,), np.float32),
    "one": Discrete(4),
    "several": MultiDiscrete([2, 3]),
    "action_mask": MultiBinary(5),
}


@pytest.mark.parametrize("lead", [(6,), (5, 6)])
def test_every_leaf_has_its_own_encoder_and_the_mask_has_none(lead):
    """What each makes of its leaf: test_networks.py, test_cnn.py."""
    space = Dict(LEAVES)
    encoder = FlatEncoder(space, "rolling", CNN("residual", 7))
    obs = drawn(space, *lead)
    encoder.learn(obs)
    leaf = dict(zip(encoder.keys, encoder.leaf, strict=True))
    kinds = {"image": Image, "vector": RunningNorm, "one": OneHot, "several": MultiOneHot}
    assert {key: type(part) for key, part in leaf.items()} == kinds
    assert encoder.size == 7 + 3 + 4 + 5 and encoder(obs).shape == (*lead, 19)
    assert torch.equal(encoder(obs), torch.cat([leaf[key](obs[key]) for key in encoder.keys], -1))
    assert torch.equal(encoder(obs), encoder({**obs, MASK: 1 - obs[MASK]}))
    flat = FlatEncoder(space, False)
    assert flat.size == 100 + 3 + 4 + 5 and type(flat.leaf[flat.keys.index("image")]) is Float, "without a CNN"
