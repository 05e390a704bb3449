"""Parts of the fused engine alone: shuffled rows, drawn transitions, the pace of threads, what a checkpoint holds."""

import numpy as np
import pytest
import torch
from driven import advance
from fused_cases import REPLAY
from same_as_eager import learnt, on_fused_cpu

from stride.agents.engines.fused_cpu.kernels import shuffle
from stride.agents.engines.fused_cpu.kernels.calls import ints
from stride.agents.engines.fused_cpu.workers import TRIALS, TRY_EVERY, Pace
from stride.utils.counter_rng import SHUFFLE, Key, counters, fill_words, permutation
from stride.utils.kernel_cache import njit


@njit
def shuffled(words, order, spare, rows):
    shuffle.shuffle(words, order, spare, rows)
    return ints(order, rows).copy()


@pytest.mark.parametrize("rows", [1, 7, 1024, 4097])
def test_rows_are_shuffled_as_counter_rng_says(rows):
    key = Key(11, SHUFFLE, 0, 5)
    words = np.empty(rows, np.uint32)
    fill_words(words, *counters(key))
    order, spare = np.zeros(rows, np.int32), np.zeros(2 * rows, np.int32)
    mine = shuffled(words.ctypes.data, order.ctypes.data, spare.ctypes.data, rows)
    assert mine.tolist() == permutation(key, rows).tolist()


def test_threads_that_do_not_pay_are_left_idle():
    """In the first block two threads are slower than one, afterwards they are faster."""
    pace, blocks = Pace(2), []
    for block in range(4):
        blocks.append([])
        for _ in range(TRY_EVERY):
            blocks[-1].append(threads := pace.choose())
            pace.took(threads, 1.0 if threads == 1 else 3.0 if block == 0 else 0.1)
    assert all(block[: TRIALS + 1] == [2] * TRIALS + [1] for block in blocks)
    rest = TRY_EVERY - TRIALS - 1
    assert blocks[0][-rest:] == [1] * rest and blocks[3][-rest:] == [2] * rest


@pytest.mark.parametrize(("steps", "worlds", "rows"), [(1, 1, 120), (1, 3, 300), (3, 2, 220), (5, 4, 420)])
def test_drawn_transitions_are_the_memorys(steps, worlds, rows):
    words = (f"n_step={steps}", f"n_envs={worlds}", f"buffer_size={rows}", "train_freq=9", "max_episode_steps=7")
    agent = on_fused_cpu("CartPole-v1:dqn", *words, "learning_starts=9e5", "batch_size=40")
    memory, count, compared = agent.memory, 30 * 40, 0
    for _ in range(12):
        advance(agent, 2)
        if not memory.ready(steps + 1):
            continue
        before, bound = memory.drawn, agent.engine.learn.bound
        assert list(bound.draws(30, 0.9)) == [30]
        columns = [bound.frame.held[name][:count] for name in ("place", "following", "reward", "discount")]
        place, following, reward, discount = (torch.from_numpy(column.copy()) for column in columns)
        memory.drawn = before
        exact = memory.transitions(count, steps, 0.9)
        obs, final = memory.table.obs.flatten(0, 1), memory.final.obs.flatten(0, 1)
        next_obs = torch.where((following < 0)[:, None], final[(~following).clamp(min=0)], obs[following.clamp(min=0)])
        assert torch.equal(obs[place], exact.obs) and torch.equal(next_obs, exact.next_obs)
        assert torch.equal(discount, exact.discount)
        torch.testing.assert_close(reward, exact.reward, rtol=1e-6, atol=0)
        assert torch.equal(memory.table.action.flatten()[place], exact.action)
        compared += 1
    assert compared


def test_a_checkpoint_holds_tensors_of_their_own():
    agent = advance(on_fused_cpu("Pendulum-v1:sac", *REPLAY), 4)
    checkpoint = {"state_dict": agent.state_dict(), "optimizer_states": [agent.optimizer.state_dict()]}
    assert not agent.policy.torso[0].weight.is_contiguous()  # stored transposed, a view of all parameters
    agent.on_save_checkpoint(checkpoint)
    moments = [x for state in checkpoint["optimizer_states"][0]["state"].values() for x in state.values()]
    for tensor in (*checkpoint["state_dict"].values(), *moments):
        assert tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    assert len(moments) == 3 * len(learnt(agent))
