"""`engine: fused_gpu` learns: its kernels, compiled for this processor in the blocks of a GPU, part by part."""

import pytest
import torch
from driven import advance
from fused_cases import TINY
from fused_gpu_cases import BACKWARDS, FORWARDS, SHUFFLED, in_order, stats_of
from host_kernels import compile_host
from same_as_eager import everything, learning_on_gpu, on_eager, weights

from stride.agents.engines.fused_gpu.order import Order
from stride.commands.plain_tree import fingerprint
from stride.envs_fast.vec_env import CPU
from stride.utils.counter_rng import SHUFFLE, Key, counters, permutation

RAGGED = ("n_steps=40", "n_envs=6", "batch_size=240", "n_epochs=1", "hidden_dims=[16,16]")  # the last tile


@pytest.mark.parametrize("rows", [1, 63, 64, 1000, 5000, pytest.param(65_536, marks=pytest.mark.slow)])
def test_rows_are_ordered_as_counter_rng_says(rows):
    key, epochs = Key(2**40 + 11, SHUFFLE, 3, 2**32 - 2), 2
    order = Order(epochs, rows, CPU, compile_host).draw(torch.tensor(counters(key)))
    for epoch in range(epochs):
        expected = permutation(key._replace(iteration=key.iteration + epoch), rows)
        assert torch.equal(order[epoch].long(), expected)


def test_threads_in_any_order_give_the_same_bits():
    """A missing barrier would give others."""
    results = set()
    for order in (FORWARDS, BACKWARDS, *SHUFFLED):
        agent = advance(learning_on_gpu("CartPole-v1:ppo", *RAGGED, compile=in_order(order)), 1)
        results.add(fingerprint(everything(agent)))
    assert len(results) == 1


def test_an_exceeded_target_kl_ends_a_rollouts_updates():
    words = ("CartPole-v1:ppo", *TINY, "policy_lr=0.01", "target_kl=1e-4")
    mine, eager = advance(learning_on_gpu(*words), 1), advance(on_eager(*words), 1)
    stats = stats_of(mine.engine.learn.updates)
    made = mine.optimizer.state[next(mine.policy.parameters())]["step"].item()
    assert stats.halted == 1.0 and 0 < made < 6 and stats.updates == made + 1
    torch.testing.assert_close(weights(mine), weights(eager), rtol=0.0, atol=5e-6)
    stopped = [agent.metrics.flush()["train/policy/kl_stopped"] for agent in (mine, eager)]
    assert stopped[0] == stopped[1]
