"""The one gradient step of every algorithm: clipped, guarded against what is no number, and skippable to the bit."""

import copy

import gymnasium as gym
import pytest
import torch
from probe_envs import ChosenReward
from torch import nn
from worlds import NAN, Scripted, driven, random_tables, weights

from stride.agents.base import build_optimizer, step_unless
from stride.agents.laprop import LaProp
from stride.agents.ppo import PPO
from stride.config.schema import PPOConfig
from stride.utils.user_error import NumbersError

KINDS = ["adamw", "adam", "rmsprop", "sgd", "laprop"]
PLAIN = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
    "laprop": LaProp,
}
YES, NO = torch.tensor(True), torch.tensor(False)


def network():
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
    for i, p in enumerate(net.parameters()):
        nn.init.normal_(p, generator=torch.Generator().manual_seed(i))
    return net


def optimizer_of(kind, net, weight_decay=0.1):
    return build_optimizer(PPOConfig(optimizer=kind, weight_decay=weight_decay), list(net.parameters()), 0.01)


def give_gradients(net, seed, value=None):
    for i, p in enumerate(net.parameters()):
        p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(100 * seed + i))
        if value is not None:
            p.grad.fill_(value)


def bits(net, optimizer):
    """Everything a step may change."""
    state = [x.clone() for p in net.parameters() for x in optimizer.state[p].values() if isinstance(x, torch.Tensor)]
    return [p.detach().clone() for p in net.parameters()] + state


def same(before, after):
    return len(before) == len(after) and all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("gradient", [1.0, NAN, float("inf")])
@pytest.mark.parametrize("kind", KINDS)
def test_a_skipped_step_leaves_weights_and_moments_to_the_bit(kind, gradient):
    net = network()
    optimizer = optimizer_of(kind, net)
    for seed in range(4):
        give_gradients(net, seed)
        step_unless(optimizer, NO)
    before = bits(net, optimizer)
    give_gradients(net, 9, gradient)
    step_unless(optimizer, YES)
    assert same(before, bits(net, optimizer))
    give_gradients(net, 10)
    step_unless(optimizer, NO)
    assert not same(before, bits(net, optimizer)), "and the next one counts again"


@pytest.mark.parametrize("skips", [(), (0,), (2, 3), (0, 1, 5)])
@pytest.mark.parametrize("kind", KINDS)
def test_the_steps_not_skipped_are_those_of_plain_torch(kind, skips):
    """Skipped ones left out, also the very first: whatever a skipped step saw may not live on in a moment."""
    net, twin = network(), network()
    optimizer = optimizer_of(kind, net)
    options = {"lr": 0.01, "weight_decay": 0.1} | ({} if kind == "sgd" else {"eps": 1e-5})
    plain = PLAIN[kind](twin.parameters(), **options)
    for seed in range(6):
        give_gradients(net, seed, NAN if seed in skips else None)
        step_unless(optimizer, YES if seed in skips else NO)
        if seed not in skips:
            give_gradients(twin, seed)
            plain.step()
        torch.testing.assert_close(weights(net), weights(twin), rtol=1e-6, atol=1e-7)
    assert (weights(net) - weights(network())).abs().max() > 0.01


def ppo(envs=None, **options):
    common = {"n_envs": 4, "n_steps": 8, "hidden_dims": (8,), "policy_lr": 1e-2, "max_timesteps": 10**6}
    config = PPOConfig(**{**common, **options})
    return PPO(config, envs or ChosenReward(config.n_envs))


def loss_of(agent, scale=1.0):
    agent.metrics.flush()
    row = agent.memory.table
    judged = agent.policy.evaluate(row.obs + 1, (), row.is_first, row.action)
    return scale * (judged.value - 3).square().mean() - judged.log_prob.mean()


@pytest.mark.parametrize("max_norm", [None, 1e-3, 0.5, 1e6])
def test_descend_clips_like_torch(max_norm):
    agent = driven(ppo(optimizer="sgd"), 1)
    twin = copy.deepcopy(agent.policy)
    norms = agent.descend(agent.optimizers(), loss_of(agent), max_norm)
    agent.policy, mine = twin, agent.policy
    loss_of(agent).backward()
    expected = torch.stack([p.grad.norm() for p in twin.parameters()])
    torch.testing.assert_close(norms, expected)
    if max_norm is not None:
        total = torch.nn.utils.clip_grad_norm_(twin.parameters(), max_norm)
        assert (total > max_norm) == (max_norm < 1)
    torch.optim.SGD(twin.parameters(), lr=1e-2).step()
    torch.testing.assert_close(weights(mine), weights(twin), rtol=1e-6, atol=1e-8)
    assert not agent.broken


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [NAN, float("inf")])
def test_descend_from_no_number_changes_nothing_and_says_so(kind, scale):
    agent = driven(ppo(optimizer=kind), 2)
    optimizer = agent.optimizers()
    before, updates = bits(agent.policy, optimizer), agent.progress["updates"]
    agent.descend(optimizer, loss_of(agent, scale), 0.5)
    assert agent.broken and same(before, bits(agent.policy, optimizer))
    assert agent.progress["updates"] == updates + 1


@pytest.mark.parametrize("kind", KINDS)
def test_descend_skips_on_demand(kind):
    agent = driven(ppo(optimizer=kind), 2)
    optimizer = agent.optimizers()
    before = bits(agent.policy, optimizer)
    agent.descend(optimizer, loss_of(agent), 0.5, YES)
    assert same(before, bits(agent.policy, optimizer)) and not agent.broken
    agent.descend(optimizer, loss_of(agent, NAN), 0.5, YES)
    assert same(before, bits(agent.policy, optimizer)) and not agent.broken, "nobody looks at a loss that is not used"
    agent.descend(optimizer, loss_of(agent), 0.5, NO)
    assert not same(before, bits(agent.policy, optimizer))


@pytest.mark.parametrize("kind", KINDS)
def test_a_nan_reward_stops_the_run_with_the_weights_as_they_were(kind):
    """The third rollout brings a NaN; standardizing over the rollout spreads it over every minibatch."""
    reward, terminated, truncated = random_tables(32, 4, 0)
    reward[17, 2] = NAN
    agent = driven(ppo(Scripted(reward, terminated, truncated), optimizer=kind, normalize_advantages="rollout"), 2)
    before = bits(agent.policy, agent.optimizers())
    with pytest.raises(NumbersError, match=r"in iteration 3 \(96 env steps\)"):
        agent.training_step(iter([2]))
    assert agent.broken and same(before, bits(agent.policy, agent.optimizers()))


class Watched(PPO):
    """Notes which updates moved the weights, and how old and new log-probabilities differed before each."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.moved, self.log_ratios = [], []

    def update(self, batch):
        before = weights(self.policy)
        with torch.no_grad():
            judged = self.policy.evaluate(batch.obs, (), batch.is_first, batch.action)
        self.log_ratios.append((judged.log_prob - batch.log_prob_old).abs().max().item())
        super().update(batch)
        self.moved.append(not torch.equal(before, weights(self.policy)))

    def iterate(self):
        self.moved, self.log_ratios = [], []
        self.training_step(iter([0]))
        return self.moved


def watched(envs, **options):
    common = {"n_envs": envs.num_envs, "n_steps": 8, "hidden_dims": (8,), "policy_lr": 1e-2, "max_timesteps": 10**6}
    return driven(Watched(PPOConfig(**{**common, **options}), envs))


def scripted(n=4, **options):
    return Scripted(*random_tables(50, n, 0), **options)


@pytest.mark.parametrize("kind", KINDS)
def test_target_kl_ends_a_rollouts_updates_and_no_others(kind):
    lr = 0.5 if kind == "sgd" else 1e-2
    agent = watched(scripted(), target_kl=1e-4, optimizer=kind, policy_lr=lr)
    for _ in range(4):
        moved = agent.iterate()
        assert len(moved) == 16 and moved[0] and not moved[-1], "the next rollout learns again"
        assert moved == sorted(moved, reverse=True), "once stopped, it stays so until the rollout ends"
        row = agent.metrics.flush()
        assert row["train/policy/kl_stopped"] == pytest.approx(moved.count(False) / 16)
    assert not agent.broken


@pytest.mark.parametrize("target_kl", [None, 1e3])
def test_without_a_kl_in_the_way_every_update_counts(target_kl):
    agent = watched(scripted(), target_kl=target_kl)
    assert all(agent.iterate()) and all(agent.iterate())


@pytest.mark.parametrize("normalize_obs", [False, "rolling"])
def test_old_and_new_log_probabilities_see_the_same_statistics(normalize_obs):
    """Instants grow without end, so the statistics change at each rollout; only rounding may differ."""
    agent = watched(scripted(), normalize_obs=normalize_obs, target_kl=None)
    for _ in range(4):
        before = copy.deepcopy(agent.policy.encoder.state_dict())
        agent.iterate()
        assert agent.log_ratios[0] < 2e-6 < agent.log_ratios[-1]
        changed = any(not torch.equal(before[name], now) for name, now in agent.policy.encoder.state_dict().items())
        assert changed == (normalize_obs == "rolling")


@pytest.mark.parametrize("space", [gym.spaces.Discrete(2), gym.spaces.Box(-1, 1, (1,))])
def test_an_action_that_worlds_on_a_device_noted_ends_the_iteration(space):
    agent = driven(ppo(Scripted(*random_tables(20, 4, 0), action_space=space)))
    agent.far, agent.collector.envs.wrong = True, torch.zeros(1, dtype=torch.int32)
    agent.training_step(iter([0]))
    agent.collector.envs.wrong += 1
    kind = NumbersError if isinstance(space, gym.spaces.Box) else ValueError
    with pytest.raises(kind, match="an action that there is not"):
        agent.training_step(iter([1]))
    assert not agent.collector.envs.wrong.any()


def test_flags_on_a_device_are_read_together():
    agent = driven(ppo(Scripted(*random_tables(20, 4, 0)), nan_guard="skip"))
    agent.far, agent.collector.envs.wrong = True, None
    agent.collector.envs.tables[0][3] = NAN
    agent.training_step(iter([0]))
    assert agent.skipped == 1 and not agent.broken
    agent.memory.overflowed.fill_(True)
    with pytest.raises(RuntimeError, match="more often than its declared time limit"):
        agent.training_step(iter([1]))
