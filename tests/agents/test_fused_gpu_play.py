"""`engine: fused_gpu` plays and learns: its kernels, compiled for this processor in the blocks of a GPU, part by part.

Worlds give the same bits for the same actions. The policy's sums differ in their last bits: so choices are the same
here, and numbers are within rounding.
"""

import numpy as np
import pytest
import torch
from driven import advance, agent_for
from fused_cases import BACKWARDS, FORWARDS, GPU, SHUFFLED, TINY, in_order, played, player, stats_of
from host_kernels import compile_host
from same_as_eager import assert_same, everything, gpu_worlds, learning_on_gpu, on_eager, weights

from stride.agents.engines.choice import RECIPES, build_agent
from stride.agents.engines.fused_gpu.order import Order
from stride.agents.engines.fused_gpu.play import EPISODES_SOURCE, EPISODES_THREADS, choose_sizes
from stride.agents.experience.collector import Window
from stride.commands.plain_tree import fingerprint
from stride.config.schema import PPOConfig
from stride.envs_fast.vec_env import CPU
from stride.utils.counter_rng import SHUFFLE, Key, counters, permutation
from stride.utils.cuda_kernels import read_source

N, T = 20, 32
CASES = {
    "CartPole": ("CartPole-v1:ppo",),
    "Acrobot, one trunk": ("Acrobot-v1:ppo", "share_trunk=true"),
    "MountainCar, three widths, relu": ("MountainCar-v0:ppo", "hidden_dims=[20,36,7]", "activation=relu"),
    "MountainCarContinuous, static": ("MountainCarContinuous-v0:ppo", "normalize_obs=static", "hidden_dims=[16]"),
    "Pendulum, rolling": ("Pendulum-v1:ppo", "normalize_obs=rolling"),
    "Taxi": ("Taxi-v4:ppo",),
    "FrozenLake": ("FrozenLake-v1:ppo", "hidden_dims=[16]"),
    "CliffWalking": ("CliffWalking-v1:ppo", "hidden_dims=[16]"),
    "REINFORCE": ("CartPole-v1:reinforce", "normalize_obs=rolling"),
}


def agent_of(case):
    config_id, *words = CASES[case]
    rollout = GPU if config_id.endswith(":ppo") else GPU[:-1]
    return agent_for(config_id, *rollout, *words, "engine=eager", worlds=gpu_worlds)


@pytest.mark.parametrize("case", CASES)
def test_it_plays_as_the_collector_does(case):
    """Two rollouts, so that the second begins in the middle of episodes; then how likely the actions were."""
    plain, other = agent_of(case), agent_of(case)
    play, rounding = player(other), 1e-5 if plain.memory.table.action.is_floating_point() else 0.0
    for _ in range(2):
        if "normalize_obs=rolling" in CASES[case]:
            for agent in (plain, other):
                agent.policy.encoder.learn(plain.memory.table.obs + plain.collector.obs)
        plain.collector.collect(T, plain.memory)
        play.collect(other, T)
        assert_same(played(other), played(plain), rounding, rounding)
        assert plain.memory.table.truncated.sum() >= N / 2
        with torch.no_grad():
            row = other.memory.table
            judged = other.policy.evaluate(row.obs, (), row.is_first, row.action)
        torch.testing.assert_close(play.log_prob, judged.log_prob, rtol=0.0, atol=1e-6)
    other.engine = other.engine._replace(play=play)
    assert advance(other, 1).progress["updates"] > 0


def rollouts(case, **how):
    """What two rollouts leave, and how likely their actions were."""
    agent = agent_of(case)
    play, results = player(agent, **how), []
    for _ in range(2):
        play.collect(agent, T)
        results.append(played(agent) | {"log_prob": play.log_prob.clone()})
    return results


@pytest.mark.parametrize(
    "case",
    [
        "CartPole",
        *(pytest.param(case, marks=[pytest.mark.slow, pytest.mark.soak]) for case in ("Pendulum, rolling", "Taxi")),
    ],
)
def test_neither_threads_nor_their_order_decide_anything(case):
    """However many threads a world has, in whichever order those of a block and the blocks run: no barrier misses."""
    expected = rollouts(case)
    for how in [{"split": split} for split in (1, 2, 4)] + [{"order": order} for order in (BACKWARDS, *SHUFFLED)]:
        for mine, theirs in zip(rollouts(case, **how), expected, strict=True):
            assert_same(mine, theirs)


def test_a_row_beyond_the_rollout_is_refused():
    agent = agent_of("CartPole")
    play = player(agent)
    play.collect(agent, T // 2)
    with pytest.raises(ValueError, match="32 steps do not fit into the 32 rows of a rollout from row 16 on"):
        play.collect(agent, T)


def test_every_world_that_ships_is_played():
    """Bandit's, of which there is no variant; Blackjack's observation has three parts, which the recipe refuses."""
    config = PPOConfig(env_id="Bandit-v0", algo_id="ppo", n_envs=N, n_steps=T, batch_size=160, seed=3, engine="eager")
    plain, other = (build_agent(config, gpu_worlds(config, N)) for _ in range(2))
    plain.collector.collect(T, plain.memory)
    player(other).collect(other, T)
    assert_same(played(other), played(plain))


def test_a_world_gets_more_threads_where_there_are_few_of_them_or_little_memory():
    agent = agent_of("CartPole")
    recipe = RECIPES[type(agent)](agent)
    for worlds, split in ((1 << 16, 1), (1 << 15, 1), (1 << 14, 2), (8192, 4), (4096, 8), (4, 8)):
        agent.memory.num_envs = worlds
        assert choose_sizes(recipe, 227 << 10).split == split
    agent.memory.num_envs = 1 << 16
    assert [choose_sizes(recipe, room << 10).split for room in (99, 64, 48)] == [1, 2, 4]


@pytest.mark.parametrize("order", [FORWARDS, BACKWARDS, *SHUFFLED])
def test_episodes_that_ended_come_into_the_window_as_the_collector_writes_them(order):
    """None, few, more than it holds; in tables shorter and longer than a block."""
    kernels, mine, theirs = compile_host(read_source(EPISODES_SOURCE), CPU), Window(CPU), Window(CPU)
    kernels.order = order
    draw = torch.Generator().manual_seed(1)
    for steps, worlds, odds in ((3, 7, 0.0), (5, 9, 0.3), (40, 60, 0.02), (40, 60, 0.5), (7, 300, 0.01), (1, 5, 1.0)):
        flag = torch.rand(steps, worlds, generator=draw)
        lost, cut = flag < odds / 2, (flag >= odds / 2) & (flag < odds)
        returns, lengths = torch.rand(2, steps, worlds, generator=draw)
        columns = lost, cut, returns, lengths, np.int64(steps * worlds), mine.ring, mine.count
        kernels.launch("note_episodes", EPISODES_THREADS, *columns, block=EPISODES_THREADS)
        theirs.add(lost | cut, returns, lengths)
        assert_same(mine.state_dict(), theirs.state_dict())
    assert theirs.count > 1000


# --- updates

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
