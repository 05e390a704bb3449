"""The fast layer says what torch's own says: values and gradients, also where only some are asked for."""

import pytest
import torch
from torch.nn import functional as F

from stride.agents.networks import layers
from stride.agents.networks.layers import Dense

ACTIVATE = {None: lambda x: x, "relu": torch.relu, "tanh": torch.tanh}


@pytest.mark.parametrize("activation", ACTIVATE)
@pytest.mark.parametrize(("rows", "size_in", "size_out"), [(4, 3, 5), (64, 256, 256), (100, 300, 200), (512, 9, 400)])
def test_values_and_gradients_are_torchs(rows, size_in, size_out, activation):
    layer = Dense(size_in, size_out, activation)
    assert layer._by_onednn(torch.zeros(rows, size_in)) == (
        layers.AVAILABLE and rows * size_in * size_out > layers.LEAST
    )
    x, up = torch.randn(rows, size_in, requires_grad=True), torch.randn(rows, size_out)
    mine, exact = layer(x), ACTIVATE[activation](F.linear(x, layer.weight, layer.bias))
    results = [(y, *torch.autograd.grad(y, (x, layer.weight, layer.bias), up)) for y in (mine, exact)]
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [4, 64])
def test_a_frozen_layer_teaches_its_input_alone(rows):
    layer, x = Dense(256, 256, "relu"), torch.randn(rows, 256, requires_grad=True)
    layer(x, frozen=True).sum().backward()
    assert x.grad is not None and layer.weight.grad is None and layer.bias.grad is None
    x.grad = None
    layer(x.detach()).sum().backward()
    assert x.grad is None and layer.weight.grad is not None
