"""Gradients of fused kernels against autograd in float64: the specification of their maths."""

import copy
import math

import numpy as np
import pytest
import torch
from driven import advance, continued
from fused_cases import (
    OFF_POLICY,
    ON_POLICY,
    SMALL,
    autograd_gradient,
    collected,
    furthest,
    gradients_of,
    named,
    off_policy_words,
    on_policy_words,
)
from fused_gpu_cases import held, judged, stats_of
from same_as_eager import learning_on_gpu, learnt, on_eager, on_fused_cpu

from stride.agents.experience.nouns import tree_map

FAST = next(named(case) for case in ON_POLICY if case["config"] == "Pendulum-v1:ppo")  # each takes g++ some seconds
ON_GPU = [pytest.param(case, id=named(case), marks=[pytest.mark.slow] * (named(case) != FAST)) for case in ON_POLICY]


def few_kinks(case):
    """At a kink of a relu two right answers differ; few units have few kinks."""
    return {**case, "hidden_dims": "[16]"} if case["activation"] == "relu" else case


def first_update(agent):
    """(gradients by kernels, by autograd) of the first minibatch of one more rollout."""
    work = collected(agent)
    bound = agent.engine.learn.bound
    bound.attach(agent.optimizer)
    bound.begin()
    bound.prepare(bound.recipe.reward(work), bound.recipe.order())
    bound.recipe.before_learning(bound.live)
    bound.run(bound.frame.fields.judge, bound.frame.address, 1, 1)
    bound.live.max_norm = math.inf
    order = torch.from_numpy(bound.frame.held["order"][: agent.config.minibatch_size].astype(np.int64))
    names = ("log_prob", "value", "weight", "target", "counted")
    columns = {name: torch.from_numpy(bound.frame.held[name][: bound.recipe.rows]) for name in names}
    exact = autograd_gradient(agent, order, columns)
    bound.run(bound.frame.fields.update, bound.frame.address, 1, 1)
    flat = torch.from_numpy(bound.frame.held["gradient"])
    return gradients_of(bound.recipe, flat, agent.policy.parameters()), exact


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


@pytest.mark.parametrize("case", ON_GPU)
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


def in_double(agent, batch):
    """Autograd of the agent's own update on this batch, everything in float64: a gradient for each parameter."""
    for part in [m for m in agent.modules() if hasattr(m, "encoder")]:
        part.encoder.forward = lambda obs, forward=part.encoder.forward: forward(obs).double()
    singles = [copy.deepcopy(m) for m in agent.modules() if hasattr(m, "leaf")]
    agent.double()
    for module, single in zip([m for m in agent.modules() if hasattr(m, "leaf")], singles, strict=True):
        module.leaf = single.leaf  # statistics stay as they are: what is compared begins behind them
    double = tree_map(lambda x: x.double() if x.is_floating_point() else x, batch)
    agent.descend = lambda optimizer, loss, max_norm: (loss.backward(), torch.zeros(1))[1]
    noise = None if agent.config.algo_id == "dqn" else agent.update_noise(1)[0]
    agent.update(double._replace(obs=batch.obs, next_obs=batch.next_obs), noise)
    return [p.grad for p in learnt(agent)]


@pytest.mark.parametrize("case", OFF_POLICY, ids=named)
def test_fused_cpu_off_policy(case):
    case = few_kinks(case)
    words = off_policy_words(case)
    fused = advance(on_fused_cpu(case["config"], *words), 4)
    exact = continued(fused, on_eager(case["config"], *words))
    steps = getattr(exact.config, "n_step", 1)
    (batch,) = exact.memory.draws(1, exact.config.batch_size, steps, exact.live.gamma)
    fused.renew_statistics = lambda: None
    expected = in_double(exact, batch)
    fused.engine.learn.learn(fused, 1)
    bound = fused.engine.learn.bound
    flat = torch.from_numpy(bound.frame.held["gradient"])
    assert furthest(gradients_of(bound.recipe, flat, learnt(fused)), expected) <= 1e-6
