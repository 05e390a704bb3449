"""Convolutional encoders against the same layers written out, and agents that act by what they see."""

import copy

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from probe_envs import Probe
from torch import nn
from torch.nn import functional as F
from worlds import driven, weights

from stride.agents.experience.memory import Memory
from stride.agents.experience.nouns import Final, Row
from stride.agents.networks import cnn as module
from stride.agents.networks.actor_critic import ActorCritic, Plan
from stride.agents.networks.cnn import CNN, Block, Image
from stride.agents.networks.encoders import FlatEncoder
from stride.agents.networks.policies import build_policy
from stride.agents.ppo import PPO
from stride.agents.reinforce import REINFORCE
from stride.config.schema import PPOConfig, REINFORCEConfig
from stride.utils.devices import CPU
from stride.utils.user_error import UserError


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """These networks are too small to share."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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
    assert result.shape == (*lead, 6) and result.dtype == torch.float32
    first = x.reshape(-1, shape[0] if len(shape) == 3 else 1, *shape[-2:])
    expected = net.join(net.convolutions(first.float() / 255)).view(*lead, 6)
    torch.testing.assert_close(result, expected)


def test_a_long_rollout_is_read_in_pieces(monkeypatch):
    net, x = Image(image_space(1, 8, 8), CNN("residual", 4), "image"), pixels(5, 7, 1, 8, 8)
    whole, sizes = net(x), []
    net.convolutions.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    monkeypatch.setattr(module, "PIECE", 10)
    torch.testing.assert_close(net(x), whole)
    assert sizes == [10, 10, 10, 5]


def test_images_that_are_floats_keep_their_values_and_get_a_gradient():
    net, x = Image(image_space(1, 8, 8), CNN("residual", 4), "image"), pixels(2, 1, 8, 8)
    floats = x.float().requires_grad_()
    features = net(floats)
    features.sum().backward()
    assert torch.equal(features, net(x)) and torch.equal(floats, x.float()) and floats.grad.any()


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((3, 35, 84), r"nature needs 36x36 pixels, but the observation has 35x84; policy_kwargs.cnn=residual"),
        ((2, 3, 40, 40), r"the observation \[2, 3, 40, 40\] is no image"),
    ],
)
def test_what_no_network_can_read_is_refused(shape, message):
    with pytest.raises(UserError, match=message):
        FlatEncoder(image_space(*shape), False, CNN())


@pytest.mark.parametrize("normalize", [False, "rolling", "static"])
def test_images_are_between_0_and_1_whatever_is_normalized(normalize):
    encoder = FlatEncoder(image_space(1, 8, 8), normalize, CNN("residual", 4))
    seen = []
    encoder.leaf[0].convolutions.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    x = torch.cat([torch.zeros(1, 1, 8, 8), torch.full((1, 1, 8, 8), 255)]).to(torch.uint8)
    encoder(x)
    assert seen[0][0].max() == 0 and (seen[0][1] == 1).all()
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


def test_a_new_policy_is_almost_uniform_and_the_seed_decides_its_weights():
    first, same, other = (ActorCritic(PLAN._replace(seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(weights(first), weights(same)) and not torch.equal(weights(first), weights(other))
    assert (answers(first).log_prob.exp() - 1 / 3).abs().max() < 0.05
    last = {m.second for m in first.modules() if isinstance(m, Block)}
    for m in first.modules():
        if isinstance(m, nn.Conv2d):
            assert not m.bias.any() and bool(m.weight.any()) == (m not in last), "blocks begin as the identity"
        if isinstance(m, nn.Conv2d) and m not in last:
            w = m.weight.flatten(1)
            w = w if len(w) <= w.shape[1] else w.T
            torch.testing.assert_close(w @ w.T, 2 * torch.eye(len(w)), atol=1e-4, rtol=1e-4)


def test_without_a_critic_no_image_is_read_for_its_value():
    policy = ActorCritic(PLAN._replace(critic=False))
    policy.encoder.register_forward_pre_hook(lambda *_: pytest.fail("read"))
    assert not policy.value(pixels(4, 1, 12, 12), (), torch.ones(4, dtype=torch.bool)).any()


class Worlds:
    action_space, device = Discrete(2), CPU

    def __init__(self, space):
        self.observation_space = space


VECTOR = Box(-1, 1, (3,), np.float32)


@pytest.mark.parametrize(
    ("options", "space", "message"),
    [
        ({"policy": "mlp"}, image_space(3, 84, 84), r"mlp does not read images.*one \[3, 84, 84\]; take policy=cnn"),
        ({"policy": "mlp"}, Dict({"a": VECTOR, "b": image_space(9, 9)}), r"mlp does not read images"),
        ({"policy": "cnn"}, VECTOR, r"cnn reads images, but the observation is Box.*; take policy=mlp"),
        (
            {"policy": "cnn", "policy_kwargs": {"cnn": "natur"}},
            image_space(3, 84, 84),
            r"policy_kwargs.cnn takes nature, residual, not 'natur'; did you mean nature\?",
        ),
        (
            {"policy": "cnn", "policy_kwargs": {"feature": 3}},
            image_space(3, 84, 84),
            r"cnn has no 'feature'; did you mean features\?",
        ),
        (
            {"policy": "cnn", "policy_kwargs": {"features": 0}},
            image_space(3, 84, 84),
            r"policy_kwargs.features must be at least 1 and at most .*, not 0",
        ),
        (
            {"policy": "cnn", "policy_kwargs": {"features": "many"}},
            image_space(3, 84, 84),
            r"policy_kwargs.features takes a whole number, not 'many'",
        ),
    ],
)
def test_policies_and_observations_that_do_not_fit(options, space, message):
    with pytest.raises(UserError, match=message):
        build_policy(PPOConfig(**options), Worlds(space), True)


def test_a_small_grid_of_bytes_may_be_read_flat_on_demand():
    config = PPOConfig(policy_kwargs={"flatten_images": True})
    assert build_policy(config, Worlds(image_space(3, 3)), True).encoder.size == 9


def test_build_policy_gives_the_network_its_options():
    config = PPOConfig(policy="cnn", policy_kwargs={"cnn": "residual", "features": 7}, hidden_dims=())
    policy = build_policy(config, Worlds(image_space(1, 12, 12)), True)
    assert policy.encoder.size == 7 and policy.actor[1].linear.weight.shape == (2, 7)
    default = build_policy(PPOConfig(policy="cnn"), Worlds(image_space(4, 84, 84)), True)
    assert default.encoder.size == 512 and default.encoder.leaf[0].convolutions[0].kernel_size == (8, 8)


class SeenPixels(Probe):
    """One step, +1 for the action that says in which half of the image there is light."""

    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.observation_space = image_space(1, 12, 12)

    def _image(self):
        image = torch.zeros(self.num_envs, 1, 12, 12, dtype=torch.uint8)
        image[:, :, 3:9, :6] = (self.coin[:, None, None, None] > 0) * 255
        image[:, :, 3:9, 6:] = (self.coin[:, None, None, None] < 0) * 255
        return image

    def reset(self, seed):
        super().reset(seed)
        return self._image()

    def step(self, action):
        final = self._image()
        return super().step(action)._replace(obs=self._image(), final_obs=final)

    def reward(self, action):
        return (action * 2.0 - 1) * self.coin


CASES = {
    "ppo": (PPO, PPOConfig, {"policy": "cnn", "policy_lr": 3e-3, "n_steps": 8}, 25),
    "reinforce": (
        REINFORCE,
        REINFORCEConfig,
        {"policy": "cnn", "policy_lr": 1e-3, "policy_targets": "advantages", "n_epochs": 4},
        60,
    ),
    "ppo lstm": (PPO, PPOConfig, {"policy": "lstm", "policy_lr": 1e-3, "n_steps": 8}, 60),
}


@pytest.mark.slow  # test_dict_obs has the image that tells among the fast ones
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_seen_decides(case):
    kind, config, options, iterations = case
    given = {"n_envs": 8, "n_steps": 16, "hidden_dims": (16,), "policy_kwargs": {"cnn": "residual", "features": 16}}
    agent = driven(kind(config(**{**given, **options}), SeenPixels(8)), iterations)
    assert agent.memory.table.obs.dtype == torch.uint8
    assert agent.collector.window.summary()["ep_rew/mean"] > 0.9


class SeenFrames(SeenPixels):
    """The same four frames deep, cut short by a limit where asked."""

    def __init__(self, num_envs, ends_by_limit=False):
        super().__init__(num_envs)
        self.observation_space, self.ends_by_limit = image_space(4, 12, 12), ends_by_limit

    def _image(self):
        return super()._image() // torch.arange(1, 5, dtype=torch.uint8).view(4, 1, 1)


FRAMES = {"policy": "cnn", "policy_kwargs": {"cnn": "residual", "features": 16}, "hidden_dims": (), "n_epochs": 2}


def seen_frames(worlds):
    return driven(PPO(PPOConfig(n_envs=4, n_steps=4, batch_size=8, optimizer="sgd", **FRAMES), worlds))


def test_images_lie_by_pixel_from_the_worlds_on_and_nobody_turns_them_again(monkeypatch):
    agent, turned, laid_out = seen_frames(SeenFrames(4)), [], Image.laid_out
    places = agent.collector.obs, agent.memory.table.obs[0], agent.memory.final.obs[0]
    assert all(x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous() for x in places)
    monkeypatch.setattr(Image, "laid_out", lambda net, x: turned.append(laid_out(net, x) is not x) or laid_out(net, x))
    agent.training_step(iter([0]))
    assert len(turned) > 8 and not any(turned)


@pytest.mark.parametrize("ends_by_limit", [False, True], ids=["terminated", "truncated"])
def test_how_images_lie_changes_nothing_that_is_learnt_but_rounding(monkeypatch, ends_by_limit):
    by_pixel = seen_frames(SeenFrames(4, ends_by_limit))
    begun = weights(by_pixel.policy)
    driven(by_pixel, 2)
    monkeypatch.setattr(Image, "laid_out", lambda _, x: x)
    by_plane = driven(seen_frames(SeenFrames(4, ends_by_limit)), 2)
    one, other = by_pixel.memory.table, by_plane.memory.table
    assert other.obs.is_contiguous() and torch.equal(one.obs, other.obs) and torch.equal(one.reward, other.reward)
    torch.testing.assert_close(weights(by_pixel.policy), weights(by_plane.policy), rtol=1e-4, atol=1e-6)
    assert not torch.equal(begun, weights(by_pixel.policy))


@pytest.mark.parametrize(("ends_by_limit", "read"), [(False, [16, 4]), (True, [16, 4, 16])])
def test_final_observations_are_read_where_there_are_any(ends_by_limit, read):
    agent, sizes = seen_frames(SeenFrames(4, ends_by_limit)), []
    agent.collect(4)
    rollout = agent.memory.rollout((), Final(agent.collector.obs, ()))
    agent.policy.encoder.register_forward_pre_hook(lambda _, given: sizes.append(given[0].shape[:-3].numel()))
    agent.judge(rollout)
    assert sizes == read
    values = agent.policy.value(agent.memory.final.obs, (), None)
    truncated = torch.zeros(4, 4, dtype=torch.bool).logical_or(torch.tensor(ends_by_limit))
    assert torch.equal(rollout.row.truncated, truncated)
    following = agent.policy.next_values(rollout, torch.zeros(4, 4), agent.collector.is_first)
    if ends_by_limit:
        torch.testing.assert_close(following, values.gather(0, rollout.row.slot))


def test_a_replay_memory_keeps_planes_as_its_files_do():
    obs = pixels(2, 4, 6, 6).contiguous(memory_format=torch.channels_last)
    flag = torch.zeros(2, dtype=torch.bool)
    row = Row(obs, flag, flag.long(), flag.float(), flag, flag, flag.long(), ())
    kept, passing = (Memory(row, (), 3, 3, 0, replayed=replayed).table.obs for replayed in (True, False))
    assert kept.is_contiguous() and not passing.is_contiguous()
    assert kept.shape == passing.shape == (3, 2, 4, 6, 6)
