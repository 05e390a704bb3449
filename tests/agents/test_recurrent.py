"""Policies with a memory: step by step equals whole sequences, states begin anew with episodes, cuts keep worlds whole.

That what is only known from before can be acted upon is among the probe worlds of test_probes.py.
"""

from functools import partial
from itertools import product

import pytest
import torch
from torch import nn
from worlds import Scripted, generator, limited_tables, random_tables

from stride.agents.experience.collector import Collector
from stride.agents.experience.memory import Memory, slots_for
from stride.agents.experience.nouns import Final, tree_map
from stride.agents.networks.actor_critic import Plan
from stride.agents.networks.recurrent import (
    GRU,
    LSTM,
    GRUActorCritic,
    LSTMActorCritic,
    MinGRUActorCritic,
    Recurrence,
    TransformerActorCritic,
)

TRANSFORMER = partial(TransformerActorCritic, layers=2, heads=3, window=5)
MEMORIES = {"lstm": LSTMActorCritic, "gru": GRUActorCritic, "mingru": MinGRUActorCritic, "transformer": TRANSFORMER}
KINDS = pytest.mark.parametrize("kind", MEMORIES.values(), ids=MEMORIES)
SHARED = pytest.mark.parametrize("share_trunk", [False, True], ids=["separate", "shared"])
ENDS = dict(rtol=1e-6, atol=1e-6)


def wild(policy, seed=5):
    """Weights far from their gentle beginning, so that differences show."""
    for i, p in enumerate(policy.parameters()):
        nn.init.normal_(p, std=0.5, generator=generator(seed + i))
    return policy


def policy_for(kind, envs, **options):
    policy = wild(kind(Plan(envs.observation_space, envs.action_space, (7, 6), **options)))
    for memory in policy.memories:
        memory.layers[0].weight.data.mul_(0.05)  # instants go up to 50, where tanh would be 1 for all of them
    return policy


def played(policy, envs, steps, calls=1):
    """(collector, start carry, rollout) of the last of some collects."""
    collector = Collector(envs, policy, 3)
    memory = Memory(collector.example(), collector.carry, steps, slots_for(steps, envs.time_limit), 0)
    for _ in range(calls):
        start = tree_map(torch.clone, collector.carry)
        collector.collect(steps, memory)
    return collector, start, memory.rollout(start, Final(collector.obs, collector.carry))


def scripted(n=5, seed=1, **options):
    return Scripted(*random_tables(40, n, seed), **options)


@pytest.mark.parametrize(("cell", "torchs"), [(LSTM, nn.LSTM), (GRU, nn.GRU)])
def test_a_recurrence_is_torchs_own_begun_anew_with_each_episode(cell, torchs):
    mine, theirs = Recurrence(cell, 3, (6,), "tanh"), torchs(3, 6)
    for name, parameter in mine.cell.named_parameters():
        getattr(theirs, f"{name}_l0").data.copy_(parameter.data)
    x, first = torch.randn(9, 4, 3, generator=generator()), torch.rand(9, 4, generator=generator(2)) < 0.3
    outputs, state = mine(x, mine.initial(4), first)
    for t, world in product(range(9), range(4)):
        begin = max([0, *first[: t + 1, world].nonzero().flatten().tolist()])
        expected, last = theirs(x[begin : t + 1, world])
        torch.testing.assert_close(outputs[t, world], expected[-1], **ENDS)
    for part, final in zip(state, last if cell is LSTM else [last], strict=True):  # of the last world at the end
        torch.testing.assert_close(part[world], final[0], **ENDS)
    assert first[1:].any(1).sum() > 3 and not first.all(0).any()


@KINDS
@SHARED
@pytest.mark.parametrize("critic", [True, False])
@pytest.mark.parametrize("calls", [1, 3])
def test_acting_step_by_step_equals_evaluating_the_whole(kind, share_trunk, critic, calls):
    """The log-probabilities of the actions, taken one step at a time, against one pass over the rollout."""
    envs, answers = scripted(), []
    policy = policy_for(kind, envs, share_trunk=share_trunk, critic=critic)
    inner = policy.head.sample

    def sample(parameters, u):
        answers.append((parameters.clone(), inner(parameters, u)))
        return answers[-1][1]

    policy.head.sample = sample
    _, start, rollout = played(policy, envs, 13, calls)
    row = rollout.row
    assert row.is_first[1:].any() and not row.is_first.all() and (calls == 1 or not row.is_first[0].all())
    with torch.no_grad():
        judged = policy.evaluate(row.obs, start, row.is_first, row.action)
        value = policy.value(row.obs, start, row.is_first)
    log_probs = torch.stack([policy.head.log_prob(p, a) for p, a in answers[-13:]])
    torch.testing.assert_close(judged.log_prob, log_probs, **ENDS)
    torch.testing.assert_close(value, judged.value, **ENDS)
    assert judged.log_prob.std() > 1e-3 and (not critic or value.std() > 1e-3)
    assert critic or not value.any()


@KINDS
@SHARED
@pytest.mark.parametrize("limit", [None, 4], ids=["a slot per step", "few slots"])
def test_what_a_limit_cut_off_is_valued_with_the_state_of_its_own_episode(kind, share_trunk, limit):
    """By hand, world by world: the final observation follows on the row that led to it."""
    envs = Scripted(*limited_tables(40, 5, limit, 2), time_limit=limit)
    policy = policy_for(kind, envs, share_trunk=share_trunk)
    collector, start, rollout = played(policy, envs, 16, 2)
    row = rollout.row
    with torch.no_grad():
        value = policy.value(row.obs, start, row.is_first)
        values = policy.next_values(rollout, value, collector.is_first)
    last, checked = torch.cat((row.obs[1:], rollout.next.obs[None])), 0
    for t, world in (~row.terminated).nonzero().tolist():
        cut = row.truncated[t, world]
        following = row.obs[t, world] + torch.tensor([0.0, 1.0]) if cut else last[t, world]  # a Scripted world counts
        obs = torch.cat([row.obs[: t + 1, world], following[None]])[:, None]
        begins = collector.is_first[world] & (t == 15) & ~cut
        flags = torch.cat([row.is_first[: t + 1, world], begins[None]])[:, None]
        with torch.no_grad():
            expected = policy.value(obs, tree_map(lambda x, w=world: x[w : w + 1], start), flags)[-1, 0]
        torch.testing.assert_close(values[t, world], expected, **ENDS)
        checked += bool(cut)
    assert checked > 5
