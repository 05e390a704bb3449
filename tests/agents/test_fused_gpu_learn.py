"""`engine: fused_gpu` learns: kernels compiled for this processor in a GPU's blocks, against eager and autograd."""

import math

import pytest
import torch
from driven import advance, agent_for
from fused_cases import (
    CASES,
    FIFTY,
    assert_changes_with,
    assert_goes_on,
    assert_learns_like,
    assert_near,
    assert_refuses,
    autograd_gradient,
    digest,
    named,
    overrides_of,
)
from fused_gpu_cases import BACKWARDS, FORWARDS, SHUFFLED, TINY, fused, held, judged, stats_of
from host_kernels import compile_host

from stride.agents.base import NumbersError
from stride.agents.engines.fused_gpu.order import Order
from stride.envs_fast.vec_env import CPU
from stride.utils.counter_rng import SHUFFLE, Key, counters, permutation

FAST = next(named(case) for case in CASES if case["config"] == "Pendulum-v1:ppo")  # each takes g++ some seconds
CHOSEN = [pytest.param(case, id=named(case), marks=() if named(case) == FAST else pytest.mark.slow) for case in CASES]
ONE = ("n_steps=40", "n_envs=6", "batch_size=240", "n_epochs=1", "hidden_dims=[16,16]")  # a ragged last tile
BETWEEN_LAYERS = "  __syncthreads();\n  if constexpr (NUMBER + 1 < DEPTH) think<NET, NUMBER + 1>(parameters, shared);\n"
BEFORE_SLOPES = "    __syncthreads();  // what the layer below said has been read, and becomes its slope\n"


def in_order(order, text=lambda text: text):
    """Kernels whose threads take turns in this order; of a source that was tampered with."""

    def compile(source, device):
        kernels = compile_host(source._replace(text=text(source.text)), device)
        kernels.order = order
        return kernels

    return compile


@pytest.mark.parametrize("rows", [1, 63, 64, 1000, 5000, pytest.param(65_536, marks=pytest.mark.slow)])
def test_rows_are_ordered_as_counter_rng_says(rows):
    key, epochs = Key(2**40 + 11, SHUFFLE, 3, 2**32 - 2), 2
    found = Order(epochs, rows, CPU, compile_host).draw(torch.tensor(counters(key)))
    for epoch in range(epochs):
        expected = permutation(key._replace(iteration=key.iteration + epoch), rows)
        assert torch.equal(found[epoch].long(), expected)


@pytest.mark.parametrize("case", CHOSEN)
def test_every_pair_of_options_learns_as_eager_does(case):
    eager = agent_for(case["config"], *overrides_of(case), "engine=eager")
    assert_learns_like(fused(case["config"], *overrides_of(case)), eager)


@pytest.mark.parametrize("case", CHOSEN)
def test_the_gradient_is_that_of_autograd_in_double_precision(case):
    if case["activation"] == "relu":
        case = {**case, "hidden_dims": "[16]"}  # at a kink of a relu two right answers differ; few units, few kinks
    agent = fused(case["config"], *overrides_of(case))
    advance(agent, 1)
    updates = judged(agent)
    batch = updates.order[0, : agent.config.minibatch_size].long()
    expected = autograd_gradient(agent, batch, held(updates))
    single = autograd_gradient(agent, batch, held(updates), torch.float32)
    updates.update(0)
    places = {id(place.parameter): place for place in updates.recipe.shape.layout.tensors}
    largest = max(g.abs().max().item() for g in expected)
    # where terms of a sum cancel, float32 itself is further away than this: 1.9e-6 for one of the cases
    allowed = max(1e-6 * largest, max(map(furthest, single, expected)))
    for parameter, theirs in zip(agent.policy.parameters(), expected, strict=True):
        assert furthest(places[id(parameter)].view(updates.gradient), theirs) <= allowed


def furthest(ours, theirs):
    return (ours - theirs).abs().max().item()


def test_the_first_ratio_is_one_to_the_last_bit():
    agent = fused("CartPole-v1:ppo", *TINY)
    updates = judged(agent)
    updates.update(0)
    assert stats_of(updates).kl == 0.0 and stats_of(updates).clipped == 0.0


@pytest.mark.slow
def test_fifty_updates_stay_with_torch():
    eager = advance(agent_for("CartPole-v1:ppo", *FIFTY, "engine=eager"), 1)
    mine = advance(fused("CartPole-v1:ppo", *FIFTY), 1)
    assert mine.progress["updates"] == 52
    assert_near(mine, eager)


def test_threads_in_any_order_give_the_same_bits():
    digests = {digest(advance(fused("CartPole-v1:ppo", *ONE, compile=in_order(order)), 1))
               for order in (FORWARDS, BACKWARDS, *SHUFFLED)}  # fmt: skip
    assert len(digests) == 1


@pytest.mark.slow
@pytest.mark.parametrize("barrier", [BETWEEN_LAYERS, BEFORE_SLOPES], ids=["between layers", "before slopes"])
def test_a_missing_barrier_is_found(barrier):
    right, said = digest(advance(fused("CartPole-v1:ppo", *ONE), 1)), []
    text = barrier.replace("__syncthreads();", "", 1)
    for order in (FORWARDS, BACKWARDS):
        agent = fused("CartPole-v1:ppo", *ONE, compile=in_order(order, lambda whole: whole.replace(barrier, text)))
        try:
            said.append(digest(advance(agent, 1)) == right)
        except NumbersError:
            said.append(False)
    assert not all(said)


def test_an_exceeded_target_kl_ends_a_rollouts_updates():
    keys = (*TINY, "policy_lr=0.01", "target_kl=1e-4")
    mine = advance(fused("CartPole-v1:ppo", *keys), 1)
    stats = stats_of(mine.engine.learn.updates)
    made = mine.optimizer.state[next(mine.policy.parameters())]["step"].item()
    assert stats.halted == 1.0 and 0 < made < 6 and stats.updates == made + 1
    eager = advance(agent_for("CartPole-v1:ppo", *keys, "engine=eager"), 1)
    assert_near(mine, eager)
    assert mine.metrics.flush()["train/policy/kl_stopped"] == eager.metrics.flush()["train/policy/kl_stopped"]


@pytest.mark.parametrize("field", ["reward", *(pytest.param(x, marks=pytest.mark.slow) for x in ("obs", "parameter"))])
def test_what_is_not_finite_is_reported_and_reaches_no_weight(field):
    assert_refuses(advance(fused("CartPole-v1:ppo", *TINY), 1), field)


def test_an_update_whose_loss_is_not_finite_is_not_made():
    agent = advance(fused("CartPole-v1:ppo", *TINY), 1)
    updates = judged(agent)
    updates.log_prob[updates.order[0, 7]] = math.nan
    before = updates.parameters.values.clone()
    updates.update(0)
    assert torch.equal(updates.parameters.values, before)
    assert stats_of(updates).broken == 1.0 and stats_of(updates).lost == 1.0
    for number in (1, 2):
        updates.update(number)
    assert stats_of(updates).broken == 1.0 and not torch.equal(updates.parameters.values, before)


def test_an_engine_may_change_between_two_iterations():
    eager, again = (agent_for("CartPole-v1:ppo", *TINY, "engine=eager") for _ in range(2))
    assert_changes_with(fused("CartPole-v1:ppo", *TINY), advance(eager, 2), again)


def test_a_continued_run_is_the_same_run():
    assert_goes_on(lambda: fused("CartPole-v1:ppo", *TINY))
