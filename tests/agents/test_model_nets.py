"""Nets and two-hot numbers in kernels against torch: values, losses and every gradient, for any threads."""

import pytest
import torch
from torch import nn

from agents.engines.fused_cpu.model_learn import KernelUnroll
from agents.model_learning import Unroll
from agents.networks.normed import dense
from agents.networks.two_hot import TwoHot

ROWS = (10, 16)
NETS = {
    "one layer and a head": lambda: nn.Sequential(dense(40, 32), nn.Linear(32, 21)),
    "three and a head": lambda: nn.Sequential(dense(20, 24, 3), nn.Linear(24, 1)),
    "no head": lambda: dense(32, 16, 2),
}


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def made(name):
    net = NETS[name]()
    with torch.no_grad():
        for number, weight in enumerate(net.parameters()):
            weight.copy_(drawn(*weight.shape, seed=number) * weight.shape[-1] ** -0.5 + (weight.dim() == 1))
    return net


def passed(unroll, net, x):
    """Answers, and gradients of input and weights."""
    x = x.clone().requires_grad_()
    (out,) = unroll.through(x, net)
    wanted = [x, *net.parameters()]
    return [out, *torch.autograd.grad((out * drawn(*out.shape, seed=9)).sum(), wanted)]


@pytest.mark.parametrize("name", NETS)
def test_a_net_is_torchs_there_and_back(name):
    net = made(name)
    x = drawn(*ROWS, next(iter(net.parameters())).shape[1], seed=5)
    wanted = passed(Unroll(), net, x)
    mine = {threads: passed(KernelUnroll(threads), net, x) for threads in (1, 2)}
    for found, expected in zip(mine[1], wanted, strict=True):
        assert found.shape == expected.shape
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert all(torch.equal(one, two) for one, two in zip(mine[1], mine[2], strict=True))


def test_nets_that_share_rows_are_those_alone_and_their_slopes_add_up():
    """Of several widths; without gradients they are the same to the bit."""
    nets = [dense(32, 16, 2), nn.Sequential(dense(32, 24, 3), nn.Linear(24, 21))]
    x, slopes = drawn(*ROWS, 32, seed=5), [drawn(*ROWS, count, seed=count) for count in (16, 21)]

    def passed_together(unroll):
        leaf = x.clone().requires_grad_()
        out = unroll.through(leaf, *nets)
        loss = sum((found * slope).sum() for found, slope in zip(out, slopes, strict=True))
        return [*out, *torch.autograd.grad(loss, [leaf, *(weight for net in nets for weight in net.parameters())])]

    wanted = passed_together(Unroll())
    one, two = (passed_together(KernelUnroll(threads)) for threads in (1, 2))
    for found, same, expected in zip(one, two, wanted, strict=True):
        assert torch.equal(found, same)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        assert all(map(torch.equal, KernelUnroll(2).through(x, *nets), one))
    for number, net in enumerate(nets):
        assert torch.equal(*KernelUnroll(1).through(x, net), one[number])


def test_rows_that_fill_no_lanes_are_left_to_torch():
    net = made("no head")
    x = drawn(5, 3, 32)
    assert torch.equal(*KernelUnroll(1).through(x, net), net(x))
    two_hot, logits, target = TwoHot(9), drawn(5, 9), drawn(5)
    assert torch.equal(KernelUnroll(1).mean(two_hot, logits), two_hot.mean(logits))
    assert torch.equal(KernelUnroll(1).losses(two_hot, logits, target)[0], two_hot.loss(logits, target))


@pytest.mark.parametrize("bins", [5, 63])
def test_two_hot_numbers_are_torchs(bins):
    two_hot, logits = TwoHot(bins), drawn(*ROWS, bins) * 3
    edges = torch.tensor([0.0, -1e12, 1e12, *two_hot.bins[[0, 1, bins // 2, -2, -1]].tolist()])
    near, far = drawn(*ROWS, seed=1), drawn(*ROWS, seed=2) * 1e4
    near.flatten()[: len(edges)], far.flatten()[-len(edges) :] = edges, edges
    for unroll in (KernelUnroll(1), KernelUnroll(2)):
        torch.testing.assert_close(unroll.mean(two_hot, logits), two_hot.mean(logits), rtol=2e-4, atol=1e-5)
        slope, found = drawn(2, *ROWS, seed=3), []
        for way in (Unroll(), unroll):
            leaf = logits.clone().requires_grad_()
            losses = way.losses(two_hot, leaf, near, far)
            found.append((losses.detach(), *torch.autograd.grad((losses * slope).sum(), leaf)))
        for expected, mine in zip(*found, strict=True):
            torch.testing.assert_close(mine, expected, atol=1e-5, rtol=1e-5)


def test_equal_chances_mean_nothing_and_what_is_no_number_stays_so():
    two_hot, unroll = TwoHot(255), KernelUnroll(1)
    assert torch.equal(unroll.mean(two_hot, torch.zeros(16, 255)), torch.zeros(16))
    target = torch.zeros(16)
    target[3] = torch.nan
    losses = unroll.losses(two_hot, torch.zeros(16, 255), target)[0]
    assert losses.isnan().nonzero().flatten().tolist() == [3]
