"""`engine: fused_gpu` learns: its kernels, compiled for this processor in the blocks of a GPU."""

import pytest
import torch
from host_kernels import compile_host

from agents.engines.fused_gpu.order import Order
from envs_fast.vec_env import CPU
from utils.counter_rng import SHUFFLE, Key, counters, permutation


@pytest.mark.parametrize("rows", [1, 63, 64, 1000, 5000, pytest.param(65_536, marks=pytest.mark.slow)])
def test_rows_are_ordered_as_counter_rng_says(rows):
    key, epochs = Key(2**40 + 11, SHUFFLE, 3, 2**32 - 2), 2
    found = Order(epochs, rows, CPU, compile_host).draw(torch.tensor(counters(key)))
    for epoch in range(epochs):
        expected = permutation(key._replace(iteration=key.iteration + epoch), rows)
        assert torch.equal(found[epoch].long(), expected)
