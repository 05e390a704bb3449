"""The one gradient step of every algorithm: clipped, guarded against what is no number, and skippable to the bit."""

import math

import gymnasium as gym
import pytest
import torch
from probe_envs import ChosenReward
from replay_log import same
from torch import nn
from worlds import NAN, Scripted, driven, random_tables, weights

from stride.agents.base import build_optimizer
from stride.agents.engines.fused_cpu.model_learn import KernelLaProp
from stride.agents.laprop import LaProp
from stride.agents.optimizer_step import step_unless
from stride.agents.ppo import PPO
from stride.config.schema import PPOConfig
from stride.utils.user_error import NumbersError

INF = float("inf")
PLAIN = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "radam": torch.optim.RAdam,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
    "laprop": LaProp,
}
YES, NO = torch.tensor(True), torch.tensor(False)
KINDS = pytest.mark.parametrize("kind", PLAIN)


def network():
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
    for i, p in enumerate(net.parameters()):
        nn.init.normal_(p, generator=torch.Generator().manual_seed(i))
    return net


def give_gradients(net, seed):
    for i, p in enumerate(net.parameters()):
        p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(100 * seed + i))


def bits(net, optimizer):
    """Everything a step may change."""
    state = [x.clone() for p in net.parameters() for x in optimizer.state[p].values() if isinstance(x, torch.Tensor)]
    return [p.detach().clone() for p in net.parameters()] + state


@pytest.mark.parametrize("value", [1.0, NAN, INF])
@pytest.mark.parametrize("skips", [(), (0,), (2, 3), (0, 1, 5)])
@KINDS
def test_a_skipped_step_leaves_no_trace_and_others_are_plain_torchs(kind, skips, value):
    """Also the very first: whatever gradient a skipped step has may not live on in a moment."""
    net, twin = network(), network()
    optimizer = build_optimizer(PPOConfig(optimizer=kind, weight_decay=0.1), list(net.parameters()), 0.01)
    options = {"lr": 0.01, "weight_decay": 0.1} | ({} if kind == "sgd" else {"eps": 1e-5})
    plain = PLAIN[kind](twin.parameters(), **options)
    for seed in range(6):
        give_gradients(net, seed)
        before = bits(net, optimizer)
        if seed in skips:
            for p in net.parameters():
                p.grad.fill_(value)
            step_unless(optimizer, YES)
            assert seed == 0 or same(before, bits(net, optimizer))
        else:
            step_unless(optimizer, NO)
            assert not same(before, bits(net, optimizer))
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


@pytest.mark.parametrize(
    ("scale", "skip", "moves", "broken"),
    [
        (1.0, None, True, False),
        (NAN, None, False, True),
        (INF, None, False, True),
        (1.0, NO, True, False),
        (1.0, YES, False, False),
        (NAN, YES, False, False),  # nobody looks at a loss that is not used
    ],
)
@KINDS
def test_descend_moves_weights_only_by_numbers_and_unless_it_is_to_skip(kind, scale, skip, moves, broken):
    agent = driven(ppo(optimizer=kind), 2)
    before, updates = bits(agent.policy, agent.optimizers()), agent.progress["updates"]
    agent.descend(agent.optimizers(), loss_of(agent, scale), 0.5, skip)
    assert same(before, bits(agent.policy, agent.optimizers())) != moves
    assert bool(agent.broken) == bool(agent.lost) == broken
    assert agent.progress["updates"] == updates + 1


def scripted(**options):
    return Scripted(*random_tables(50, 4, 0), **options)


@KINDS
def test_target_kl_ends_a_rollouts_updates_and_no_others(kind):
    agent = driven(ppo(scripted(), target_kl=1e-4, optimizer=kind, policy_lr=0.5 if kind in ("sgd", "radam") else 1e-2))
    update, moved = agent.update, []

    def watched(batch):
        before = weights(agent.policy)
        update(batch)
        moved.append(not torch.equal(before, weights(agent.policy)))

    agent.update = watched
    for _ in range(4):
        moved.clear()
        agent.training_step(iter([0]))
        assert len(moved) == 16 and moved[0] and not moved[-1], "the next rollout learns again"
        assert moved == sorted(moved, reverse=True), "once stopped, it stays so until the rollout ends"
        assert agent.metrics.flush()["train/policy/kl_stopped"] == pytest.approx(moved.count(False) / 16)
    assert not agent.broken


@pytest.mark.parametrize("space", [gym.spaces.Discrete(2), gym.spaces.Box(-1, 1, (1,))])
def test_an_action_that_worlds_on_a_device_noted_ends_the_iteration(space):
    agent = driven(ppo(scripted(action_space=space)))
    agent.far, agent.collector.envs.wrong = True, torch.zeros(1, dtype=torch.int32)
    agent.training_step(iter([0]))
    agent.collector.envs.wrong += 1
    kind = NumbersError if isinstance(space, gym.spaces.Box) else ValueError
    with pytest.raises(kind, match="an invalid action"):
        agent.training_step(iter([1]))
    assert not agent.collector.envs.wrong.any()


def test_flags_on_a_device_are_read_together():
    agent = driven(ppo(scripted(), nan_guard="skip"))
    agent.far, agent.collector.envs.wrong = True, None
    agent.collector.envs.tables[0][3] = NAN
    agent.training_step(iter([0]))
    assert agent.skipped == 1 and not agent.broken
    agent.memory.overflowed.fill_(True)
    with pytest.raises(RuntimeError, match="more often than its declared time limit"):
        agent.training_step(iter([1]))


@pytest.mark.parametrize("k", [2, 4])
def test_accumulated_minibatches_are_one_larger_one(k):
    """4 rows of k minibatches to a step are k x 4 rows to a step, in plain descent without clipping."""
    settings = {"optimizer": "sgd", "max_grad_norm": None, "n_epochs": 1, "normalize_advantages": "off"}
    small, large = (
        ppo(scripted(), **settings, **sizes) for sizes in ({"batch_size": 4, "accumulate": k}, {"batch_size": 4 * k})
    )
    for agent in (small, large):
        driven(agent, 3)
    assert small.progress["updates"] == large.progress["updates"] == 3 * 32 // (4 * k)
    for mine, theirs in zip(small.policy.parameters(), large.policy.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-7)


# --- LaProp against numbers worked out by hand, and its kernel against it


def stepped(optimizer, *gradients):
    """The only parameter after each of these gradients."""
    (p,) = optimizer.param_groups[0]["params"]
    values = []
    for gradient in gradients:
        p.grad = torch.tensor(gradient)
        optimizer.step()
        values.append(p.tolist())
    return values


def test_three_steps_by_hand():
    """Scaled first, then smoothed, each with its bias corrected; with the gradients +2, -1, 0 and betas 1/2 and 3/4."""
    p = nn.Parameter(torch.tensor([10.0]))
    optimizer = LaProp([p], lr=0.1, betas=(0.5, 0.75), clip=None)
    square, mean, x, expected = 0.0, 0.0, 10.0, []
    for k, g in enumerate((2.0, -1.0, 0.0), 1):
        square += 0.25 * (g * g - square)
        mean += 0.5 * (g / math.sqrt(square / (1 - 0.75**k)) - mean)
        x -= 0.1 * mean / (1 - 0.5**k)
        expected.append([pytest.approx(x, rel=1e-6)])
    assert expected[0] == [pytest.approx(9.9)]
    assert stepped(optimizer, [2.0], [-1.0], [0.0]) == expected


def test_a_gradient_is_cut_to_a_share_of_its_weights():
    """The norm 50 becomes 0.3 * 5: 30 and 40 are 0.9 and 1.2, which shows in the moments of their squares."""
    p = nn.Parameter(torch.tensor([3.0, 4.0]))
    optimizer = LaProp([p], lr=0.1)
    assert stepped(optimizer, [30.0, 40.0]) == [pytest.approx([2.9, 3.9])]
    assert optimizer.state[p]["square"].tolist() == pytest.approx([0.81e-3, 1.44e-3])
    assert p.grad.tolist() == [30, 40], "others look at it"
    stepped(optimizer, [0.3, 0.4])
    squares = [0.999 * 0.81e-3 + 0.09e-3, 0.999 * 1.44e-3 + 0.16e-3]
    assert optimizer.state[p]["square"].tolist() == pytest.approx(squares), "a small one is not"


def test_weights_that_begin_at_zero_can_leave_it():
    p = nn.Parameter(torch.zeros(2))
    optimizer = LaProp([p], lr=0.1)
    assert stepped(optimizer, [5.0, 0.0]) == [pytest.approx([-0.1, 0.0])]
    assert optimizer.state[p]["square"][0].item() == pytest.approx(0.3e-3**2 * 1e-3)


def test_the_rate_rises_and_weights_decay_with_it():
    """Steps of 0.05 and 0.1, before which the weight shrinks by 2.5 % and 5 %."""
    p = nn.Parameter(torch.tensor([1.0]))
    optimizer = LaProp([p], lr=0.1, weight_decay=0.5, clip=None, warmup=2)
    first = 0.975 - 0.05
    assert stepped(optimizer, [3.0], [3.0]) == [[pytest.approx(first)], [pytest.approx(first * 0.95 - 0.1)]]


# --- the kernel

SHAPES = [(40, 33), (16,), (3,), (1,), (64, 4), (5, 16)]
OPTIONS = {
    "as Dreamer has it": dict(lr=4e-4, eps=1e-20, clip=0.3, warmup=3),
    "with all it can": dict(lr=1e-2, betas=(0.5, 0.8), eps=1e-3, clip=0.05, weight_decay=0.1),
    "without a clip": dict(lr=1e-2, eps=1e-8, clip=None),
}


def drawn(number):
    generator = torch.Generator().manual_seed(number)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def five_steps(options, by_kernel):
    """Weights and their states after five steps, of which the third is not made."""
    parameters = [nn.Parameter(x) for x in drawn(0)]
    parameters[1].detach().zero_()
    own = LaProp(parameters, **options)
    optimizer = KernelLaProp(own) if by_kernel else own
    for number in range(1, 6):
        for p, gradient in zip(parameters, drawn(number), strict=True):
            p.grad = gradient * (torch.nan if number == 3 else 10.0 ** (number - 3))
        parameters[4].grad.zero_()
        parameters[5].grad = parameters[5].grad.t().contiguous().t()  # its strides may be others than its weight's
        optimizer.found_inf = torch.tensor(float(number == 3))
        optimizer.step()
    return [x.detach() for x in parameters], [own.state[p] for p in parameters]


@pytest.mark.parametrize("name", OPTIONS)
def test_steps_of_the_kernel_are_torchs(name):
    moved, states = five_steps(OPTIONS[name], False)
    result = five_steps(OPTIONS[name], True)
    assert all(x.any() for x in moved) and {state["updates"].item() for state in states} == {4}
    torch.testing.assert_close(result, (moved, states), rtol=1e-5, atol=1e-7)
