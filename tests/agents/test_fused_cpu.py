"""The fused engine against the eager one and against autograd in float64: the specification of its kernels."""

import copy
import math

import numpy as np
import pytest
import torch
from driven import advance, agent_for
from fused_cases import (
    CASES,
    FIFTY,
    SMALL,
    assert_changes_with,
    assert_goes_on,
    assert_learns_like,
    assert_near,
    assert_refuses,
    autograd_gradient,
    digest,
    named,
    overrides_of,
    weights,
)

from stride.agents.base import NumbersError
from stride.agents.engines.fused_cpu.kernels import shuffle
from stride.agents.engines.fused_cpu.kernels.calls import ints
from stride.agents.engines.fused_cpu.learn import RolloutLearn
from stride.agents.engines.fused_cpu.workers import TRIALS, TRY_EVERY, Pace
from stride.agents.engines.plan.on_policy import PPORecipe
from stride.agents.experience.nouns import Final, tree_map
from stride.agents.sockets import EagerPlay
from stride.utils.counter_rng import SHUFFLE, Key, counters, fill_words, permutation
from stride.utils.kernel_cache import njit
from stride.utils.user_error import UserError


@pytest.mark.parametrize("case", CASES, ids=named)
def test_every_pair_of_options_learns_as_eager_does(case):
    eager = agent_for(case["config"], *overrides_of(case), "engine=eager")
    fused = agent_for(case["config"], *overrides_of(case), "engine=fused_cpu")
    assert isinstance(fused.engine.learn, RolloutLearn)
    assert_learns_like(fused, eager)
    table, other = fused.memory.table, eager.memory.table
    if table.action.dtype == torch.int64:
        assert torch.equal(table.action, other.action)
        assert torch.equal(table.reward, other.reward) and torch.equal(table.slot, other.slot)
        assert fused.collector.window.summary() == eager.collector.window.summary()


def bound_at_first_update(agent):
    """Collect and judge; then the frame is as the first update finds it."""
    start = tree_map(torch.clone, agent.collector.carry)
    agent.collect(agent.config.n_steps)
    work = agent.memory.rollout(start, Final(agent.collector.obs, agent.collector.carry))
    bound = agent.engine.learn.bound
    bound.attach(agent.optimizer)
    bound.begin()
    bound.prepare(bound.recipe.reward(work), bound.recipe.order())
    bound.recipe.before_learning(bound.live)
    bound.run(bound.frame.fields.judge, bound.frame.address, 1, 1)
    bound.live.max_norm = math.inf
    return bound


def autograd(agent, bound):
    """The gradient of the first minibatch in float64."""
    rows = bound.recipe.rows
    order = bound.frame.held["order"][:rows][: agent.config.minibatch_size].astype(np.int64)
    names = ("log_prob", "value", "weight", "target", "counted")
    held = {name: torch.from_numpy(bound.frame.held[name][:rows]) for name in names}
    return autograd_gradient(agent, torch.from_numpy(order), held)


def in_torchs_form(bound, name, parameters):
    """A flat buffer of ours as a list in the order of `parameters`."""
    flat, found = bound.frame.held[name], {}
    for place in bound.recipe.shape.layout.tensors:
        shape = tuple(place.parameter.shape)
        matrix = shape if len(shape) == 2 else (1, *shape)
        strides = (4 * place.row, 4 * place.column)
        view = np.lib.stride_tricks.as_strided(flat[place.offset :], matrix, strides)
        found[id(place.parameter)] = torch.from_numpy(view.copy().reshape(shape))
    return [found[id(p)] for p in parameters]


@pytest.mark.parametrize("case", CASES, ids=named)
def test_the_gradient_is_that_of_autograd_in_double_precision(case):
    if case["activation"] == "relu":
        case = {**case, "hidden_dims": "[16]"}  # at a kink of a relu two right answers differ; few units, few kinks
    agent = agent_for(case["config"], *overrides_of(case), "engine=fused_cpu")
    advance(agent, 1)
    agent.metrics.flush()
    bound = bound_at_first_update(agent)
    expected = autograd(agent, bound)
    bound.run(bound.frame.fields.update, bound.frame.address, 1, 1)
    parameters = list(agent.policy.parameters())
    largest = max(g.abs().max().item() for g in expected)
    for mine, theirs in zip(in_torchs_form(bound, "gradient", parameters), expected, strict=True):
        assert (mine - theirs).abs().max().item() <= 1e-6 * largest


@pytest.mark.parametrize("log_std", [-5.5, 2.5])
def test_a_deviation_beyond_its_bounds_has_no_slope(log_std):
    agent = agent_for("Pendulum-v1:ppo", *SMALL, f"policy_kwargs.log_std_init={log_std}", "engine=fused_cpu")
    bound = bound_at_first_update(agent)
    expected = autograd(agent, bound)
    bound.run(bound.frame.fields.update, bound.frame.address, 1, 1)
    found = in_torchs_form(bound, "gradient", list(agent.policy.parameters()))
    names = [name for name, _ in agent.policy.named_parameters()]
    (place,) = [place for place, name in enumerate(names) if name.endswith("log_std")]
    assert not expected[place].any() and torch.equal(found[place], torch.zeros_like(found[place]))


def test_fifty_updates_stay_with_torch():
    eager = advance(agent_for("CartPole-v1:ppo", *FIFTY, "engine=eager"), 1)
    fused = advance(agent_for("CartPole-v1:ppo", *FIFTY, "engine=fused_cpu"), 1)
    assert fused.progress["updates"] == 52
    assert_near(fused, eager)


def test_what_was_played_has_the_policys_log_probabilities_and_values():
    for config_id in ("CartPole-v1:ppo", "Pendulum-v1:ppo"):
        agent = advance(agent_for(config_id, *SMALL, "engine=fused_cpu"), 2)
        before = copy.deepcopy(agent.policy)
        bound = bound_at_first_update(agent)
        row = agent.memory.table
        judged = before.evaluate(row.obs, (), row.is_first, row.action)
        for name, exact in (("log_prob", judged.log_prob), ("value", judged.value)):
            mine = torch.from_numpy(bound.frame.held[name][: bound.recipe.rows]).view_as(exact)
            assert (mine - exact).abs().max() <= 2e-6 * exact.abs().max()


@pytest.mark.parametrize(
    "extra", [(), ("normalize_obs=true", "normalize_reward=true", "target_kl=0.01")], ids=["", "+"]
)
def test_one_and_two_threads_are_equal_to_the_last_bit(extra):
    keys = ("n_envs=8", "n_steps=64", "batch_size=256", "n_epochs=2", *extra)
    one, two = (agent_for("CartPole-v1:ppo", *keys, f"threads={n}") for n in (1, 2))
    advance(one, 60)
    advance(two, 1)
    two.engine.learn.bound.pace.choose = lambda: 2  # else it is as many as pay
    advance(two, 59)
    assert two.engine.learn.bound.workers.threads == 2 and one.engine.learn.bound.workers.threads == 1
    assert digest(one) == digest(two)
    assert one.collector.window.summary() == two.collector.window.summary()


def test_an_engine_may_change_between_two_iterations():
    eager, again = (agent_for("CartPole-v1:ppo", *SMALL, "engine=eager") for _ in range(2))
    assert_changes_with(agent_for("CartPole-v1:ppo", *SMALL, "engine=fused_cpu"), advance(eager, 3), again)


def test_a_continued_run_is_the_same_run():
    assert_goes_on(lambda: agent_for("Pendulum-v1:ppo", *SMALL, "engine=fused_cpu"))


def test_updates_alone_on_gymnasiums_worlds():
    keys = (*SMALL, "env_backend=gym")
    eager, fused = (agent_for("CartPole-v1:ppo", *keys, f"engine={name}") for name in ("eager", "auto"))
    assert isinstance(fused.engine.play, EagerPlay) and isinstance(fused.engine.learn, RolloutLearn)
    assert fused.engine.name == "fused_cpu" and fused.engine.reason.startswith("updates only")
    advance(eager, 5)
    advance(fused, 5)
    assert torch.equal(eager.memory.table.action, fused.memory.table.action)
    assert_near(fused, eager, within=1e-6)


@pytest.mark.parametrize("field", ["reward", "obs", "parameter"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_reported_and_reaches_no_weight(field, value):
    keys = (*SMALL, "env_backend=gym", "engine=fused_cpu")
    assert_refuses(advance(agent_for("CartPole-v1:ppo", *keys), 1), field, value)


@pytest.mark.parametrize(("buffer", "place", "said"), [("sums", 0, "the loss"), ("partial", 5, "the gradient")])
def test_an_update_whose_loss_or_gradient_is_not_finite_is_not_made(buffer, place, said):
    """Both are sums that begin where the last minibatch left them, at zero; here they do not."""
    mine, other = (agent_for("CartPole-v1:ppo", *SMALL, "engine=fused_cpu") for _ in range(2))
    advance(mine, 1), advance(other, 1)
    mine.engine.learn.bound.frame.held[buffer][place] = math.nan
    before = weights(mine)
    with pytest.raises(NumbersError, match=f"^{said} stopped being a number in iteration 2"):
        advance(mine, 1)
    advance(other, 1)
    made = [agent.optimizer.state[next(agent.policy.parameters())]["step"].item() for agent in (mine, other)]
    assert made[0] == made[1] - 1 and all(x.isfinite().all() for x in weights(mine))
    assert not all(torch.equal(x, y) for x, y in zip(weights(mine), before, strict=True)), "the others were"


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["policy=lstm"], "policy: lstm"),
        (["optimizer=sgd"], "optimizer: sgd"),
        (["hidden_dims=[]"], "hidden_dims"),
    ],
)
def test_what_it_does_not_know_is_refused_by_name_and_auto_takes_eager(overrides, named):
    with pytest.raises(UserError, match=named):
        agent_for("CartPole-v1:ppo", *SMALL, *overrides, "engine=fused_cpu")
    agent = agent_for("CartPole-v1:ppo", *SMALL, *overrides)
    assert agent.engine.name == "eager" and named in agent.engine.reason


def test_observations_of_other_types_are_refused_by_name():
    agent = agent_for("CartPole-v1:ppo", *SMALL)
    assert PPORecipe.why_not(agent.config, agent.policy, agent.collector.obs) is None
    assert "torch.uint8" in PPORecipe.why_not(
        agent.config, agent.policy, agent.collector.obs.byte()
    )  # images laid flat


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
    pace, blocks = Pace(2), []
    for block in range(4):
        blocks.append([])
        for _ in range(TRY_EVERY):
            blocks[-1].append(threads := pace.choose())
            pace.took(threads, 1.0 if threads == 1 else 3.0 if block == 0 else 0.1)
    assert all(block[: TRIALS + 1] == [2] * TRIALS + [1] for block in blocks)
    rest = TRY_EVERY - TRIALS - 1
    assert blocks[0][-rest:] == [1] * rest and blocks[3][-rest:] == [2] * rest
