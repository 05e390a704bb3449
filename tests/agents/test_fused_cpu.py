"""Parts of the fused engine alone: gradients against float64, rows, threads, checkpoints, addresses nobody bound."""

import ast
import random
import re
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from driven import advance
from fused_cases import (
    BOTH,
    MEMORIES,
    OFF_POLICY,
    ON_POLICY,
    REPLAY,
    SMALL,
    autograd_gradient,
    first_update,
    furthest,
    gradients_of,
    held,
    judged,
    marks_on_gpu,
    named,
    next_update,
    off_policy_words,
    on_policy_words,
    stats_of,
)
from same_as_eager import learning_on_gpu, learnt, on_eager, on_fused_cpu, weights

from stride.agents.engines.fused_cpu.kernels import minibatches, model_tables, rollout
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, address_of, longs
from stride.agents.engines.fused_cpu.kernels.episodes import play_episodes
from stride.agents.engines.fused_cpu.workers import LINE, TRIALS, TRY_EVERY, Pace, Workers
from stride.agents.experience.collector import Collector
from stride.agents.experience.nouns import leaves
from stride.envs_gym.make import make_envs
from stride.utils import kernel_folder
from stride.utils.counter_rng import EVALUATE
from stride.utils.kernel_cache import njit


def test_threads_that_do_not_pay_are_left_idle():
    """In the first block two threads are slower than one, afterwards they are faster."""
    pace, blocks = Pace(2), []
    for block in range(4):
        blocks.append([])
        for _ in range(TRY_EVERY):
            blocks[-1].append(threads := pace.choose())
            pace.record(threads, 1.0 if threads == 1 else 3.0 if block == 0 else 0.1)
    assert all(block[: TRIALS + 1] == [2] * TRIALS + [1] for block in blocks)
    rest = TRY_EVERY - TRIALS - 1
    assert blocks[0][-rest:] == [1] * rest and blocks[3][-rest:] == [2] * rest


@pytest.mark.parametrize("moving", [False, True])
@pytest.mark.parametrize(("steps", "worlds", "rows"), [(1, 1, 120), (1, 3, 300), (3, 2, 220), (5, 4, 420)])
def test_drawn_transitions_are_the_memorys(steps, worlds, rows, moving):
    words = (f"n_step={steps}", f"n_envs={worlds}", f"buffer_size={rows}", "train_freq=9", "max_episode_steps=7")
    agent = on_fused_cpu("CartPole-v1:dqn", *words, "learning_starts=9e5", "batch_size=40", *["gamma=lin_0.9"] * moving)
    memory, count, compared = agent.memory, 30 * 40, 0
    for index in range(12):
        agent.live.gamma = index / 12 if moving else 0.9
        advance(agent, 2)
        if moving:  # 18 rows of two iterations have the gamma that was in force while they were played
            newest = torch.arange(memory.written - 18, memory.written) % memory.rows
            assert torch.equal(memory.gammas[newest], torch.full((18,), index / 12))
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
        torch.testing.assert_close(discount, exact.discount, rtol=5e-7 if moving else 0, atol=0)
        torch.testing.assert_close(reward, exact.reward, rtol=1e-6, atol=0)
        assert torch.equal(memory.table.action.flatten()[place], exact.action)
        compared += 1
    assert compared


@pytest.mark.parametrize(("config", "words", "expected"), [
    ("CartPole-v1:ppo", SMALL, [(0, 0), (0, 0), (1, 0), (None, 6)]),  # (epochs, updates); 2 epochs of 3 updates
    ("CartPole-v1:dqn", REPLAY, [(None, 0), (None, 2), (None, 4)]),
])  # fmt: skip
def test_learning_that_takes_several_calls_is_counted_while_it_lasts(config, words, expected):
    agent = advance(on_fused_cpu(config, *words), 4)
    bound, before, counts = agent.engine.learn.bound, agent.progress["updates"], []
    bound.updates_per_call, run = 2, bound.workers.run

    def count():
        counts.append((agent.passes and agent.passes.done, agent.progress["updates"] - before))

    def counted(work, arguments, threads):
        if work == bound.frame.fields.learn:
            count()
        run(work, arguments, threads)

    bound.workers.run = counted
    advance(agent, 1)
    count()
    assert counts == expected


def test_a_checkpoint_holds_tensors_of_their_own():
    agent = advance(on_fused_cpu("Pendulum-v1:sac", *REPLAY), 4)
    checkpoint = {"state_dict": agent.state_dict(), "optimizer_states": [agent.optimizer.state_dict()]}
    assert not agent.policy.torso[0].weight.is_contiguous()  # stored transposed, a view of all parameters
    agent.on_save_checkpoint(checkpoint)
    moments = [x for state in checkpoint["optimizer_states"][0]["state"].values() for x in state.values()]
    for tensor in (*checkpoint["state_dict"].values(), *moments):
        assert tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    assert len(moments) == 3 * len(learnt(agent))


# --- threads: every part is done once, awake or asleep; a failure is an error

THREADS = 3


@njit(**PIECE)
def count(counts, thread):
    longs(counts + 8 * LINE * thread, 1)[0] += 1


@njit(**PIECE)
def fail(unused, thread):
    if thread:
        raise ValueError("on purpose")


def test_every_thread_does_its_part_once_whether_it_watches_or_sleeps():
    workers, choice = Workers(THREADS), random.Random(1)
    done, expected, work = np.zeros((THREADS, LINE), np.int64), np.zeros(THREADS, np.int64), address_of(count)
    for turn in range(3000):
        threads = choice.randint(1, THREADS)
        workers.run(work, done.ctypes.data, threads)
        expected[:threads] += 1
        assert np.array_equal(done[:, 0], expected), turn
        if turn % 50 == 0:
            time.sleep(choice.choice((0.001, 0.003, 0.01, 0.05)))  # less than its patience, and more


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_part_that_fails_is_an_error_and_not_waited_for():
    workers = Workers(2)
    with pytest.raises(RuntimeError, match="a thread of the fused engine failed"):
        workers.run(address_of(fail), 0, 2)


# --- gradients against autograd in float64: the specification of their maths


def few_kinks(case):
    """At a kink of a relu two right answers differ; few units have few kinks."""
    return {**case, "hidden_dims": "[16]"} if case["activation"] == "relu" else case


@pytest.mark.parametrize("case", ON_POLICY, ids=named)
def test_fused_cpu_on_policy(case):
    case = few_kinks(case)
    agent = advance(on_fused_cpu(case["config"], *on_policy_words(case)), 1)
    agent.metrics.flush()
    assert furthest(*first_update(agent)) <= 1e-6


@pytest.mark.parametrize("log_std", [-5.5, 2.5])
def test_a_deviation_beyond_its_bounds_has_no_slope(log_std):
    agent = on_fused_cpu("Pendulum-v1:ppo", *SMALL, f"policy_kwargs.log_std_init={log_std}")
    names = [name for name, _ in agent.policy.named_parameters()]
    (place,) = [place for place, name in enumerate(names) if name.endswith("log_std")]
    for gradients in first_update(agent):
        assert not gradients[place].any()


@pytest.mark.parametrize("normalize_obs", BOTH)
@pytest.mark.parametrize("dims", ["[64,64]", "[20]", "[16,40,33]"])
def test_layer_norms_of_pqn(dims, normalize_obs):
    agent = advance(on_fused_cpu("CartPole-v1:pqn", *SMALL, f"hidden_dims={dims}", f"normalize_obs={normalize_obs}"), 1)
    assert furthest(*first_update(agent)) <= 1e-6


@pytest.mark.parametrize("name", MEMORIES)
def test_sequences_of_mingru(name):
    agent = advance(on_fused_cpu(*MEMORIES[name], "threads=2"), 1)
    assert furthest(*first_update(agent)) <= 1e-6


def test_sequences_of_mingru_give_the_same_bits_on_any_number_of_threads():
    one, two = (advance(on_fused_cpu(*MEMORIES["plain"], f"threads={n}"), 3) for n in (1, 2))
    assert [agent.engine.learn.bound.workers.threads for agent in (one, two)] == [1, 2]
    mine, theirs = ([*weights(agent), *leaves(agent.collector.carry)] for agent in (one, two))
    assert all(map(torch.equal, mine, theirs))


@pytest.mark.parametrize("case", [pytest.param(case, id=named(case), marks=marks_on_gpu(case)) for case in ON_POLICY])
def test_fused_gpu_on_policy(case):
    case = few_kinks(case)
    agent = advance(learning_on_gpu(case["config"], *on_policy_words(case)), 1)
    updates = judged(agent)
    batch = updates.order[0, : agent.config.minibatch_size].long()
    exact = autograd_gradient(agent, batch, held(updates))
    single = autograd_gradient(agent, batch, held(updates), torch.float32)
    updates.update(0)
    # where terms of a sum cancel, float32 itself is further away than this: 1.9e-6 for one of the cases
    allowed = max(1e-6, furthest(single, exact))
    assert furthest(gradients_of(updates.recipe, updates.gradient, agent.policy.parameters()), exact) <= allowed
    assert agent.config.algo_id != "ppo" or stats_of(updates).kl == stats_of(updates).clipped == 0.0, "the ratio is 1"


@pytest.mark.parametrize("case", OFF_POLICY, ids=named)
def test_fused_cpu_off_policy(case):
    case = few_kinks(case)
    words = off_policy_words(case)
    fused = advance(on_fused_cpu(case["config"], *words), 4)
    assert furthest(*next_update(fused, on_eager(case["config"], *words))) <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("config", ["Hopper-v5:sac", "Hopper-v5:td3", "Hopper-v5:tqc"])
def test_fused_cpu_off_policy_with_several_actions(config):
    words = (*REPLAY, "env_backend=gym", "hidden_dims=[16]", "batch_size=50")
    words += ("actor_every=1",) * config.endswith("td3")  # so that the update moves it
    fused = advance(on_fused_cpu(config, *words), 4)
    assert fused.policy.actions == 3
    assert furthest(*next_update(fused, on_eager(config, *words))) <= 1e-6


# --- an address that a kernel reads and nobody bound is an error by name


@pytest.mark.parametrize(
    ("config", "words", "entry"), [("CartPole-v1:ppo", SMALL, "final_obs"), ("CartPole-v1:dqn", REPLAY, "turned")]
)
def test_an_entry_that_is_not_bound_is_named_before_any_kernel_runs(config, words, entry):
    agent = advance(on_fused_cpu(config, *words), 3)
    collector = Collector(make_envs(agent.config, 7), agent.policy, 11, EVALUATE, greedy=True)
    agent.engine.episodes.play(agent, collector, 3, 5)
    learn, episodes = agent.engine.learn.bound.frame, agent.engine.episodes._actors[True].frame
    for frame, missing, work in (
        (learn, entry, lambda: advance(agent, 1)),
        (episodes, "parameters", lambda: episodes.check(play_episodes, ("final_obs", "draws"))),
    ):
        frame._complete.clear()
        setattr(frame.fields, missing, 0)
        with pytest.raises(RuntimeError, match=f"the frame of the fused engine has no {missing}, which"):
            work()


def test_what_a_kernel_reads_is_found_through_names_and_addresses():
    frame = advance(on_fused_cpu("CartPole-v1:ppo", *SMALL), 1).engine.learn.bound.frame
    play, learn = frame.read_by(rollout.play), frame.read_by(minibatches.learn)
    assert {"scratch", "forward", "forward_layer", "log_softmax", "centre", "turned", "draws"} <= play
    assert {"judge", "final_value", "moments", "second_moment", "backward_layer", "key", "mask"} <= learn
    assert "gradient" not in play and "draws" not in learn and "noise" not in learn


def test_an_edit_of_whatever_a_kernel_takes_from_another_file_is_noticed():
    """Numba itself looks at a kernel's own file only."""
    root = kernel_folder.PROJECT
    hashed = {path for folder in kernel_folder.SOURCES for path in (root / folder).glob("*.py")}
    hashed |= {root / file for file in kernel_folder.ALONE}
    kernels = re.compile("^ *@(njit|intrinsic)", re.MULTILINE)
    files = [*(root / "agents").rglob("*.py"), *(root / "envs_fast").rglob("*.py"), *(root / "utils").glob("*.py")]
    files = [path for path in files if kernels.search(path.read_text())]
    assert len(files) > 14 and hashed.issuperset(files)
    for path in (path for path in files if "experience" not in path.parts):  # which have more in them than kernels
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("stride.agents."):
                file = Path(*node.module.split(".")[1:]).with_suffix(".py")
                assert root / file in hashed, (path.name, node.module)


def test_arrays_that_kernels_write_are_made_and_others_must_be_given():
    sizes = {"T": 3, "B": 16, "B/16": 1, "D": 4, "F": 6, "W": 5, "W+D": 9, "residuals": 7, "scratch": 8}
    given = {name: torch.zeros(3, 16, 1) for name in ("prepared", "tokens", "keep")}
    table = model_tables.ScanTable(sizes, steps=3, model=1, **given)
    assert table["joined"].shape == (3, 16, 9) and table["residuals"].shape == (1, 3, 7, 16)
    assert table.values.joined == table["joined"].data_ptr() and table.values.steps == 3
    with pytest.raises(RuntimeError, match="ScanTable has no uniforms, which the kernel forward uses"):
        table.check("forward")
