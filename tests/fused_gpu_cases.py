"""What the tests of `engine: fused_gpu` share: its rollouts and updates, step by step, on this processor."""

import torch
from fused_cases import collected
from host_kernels import compile_host

from stride.agents.engines.choice import RECIPES
from stride.agents.engines.fused_gpu.play import FusedPlay, sizes_of
from stride.agents.engines.plan.numbers import Stat
from stride.agents.experience.nouns import Row, leaves

FORWARDS, BACKWARDS, SHUFFLED = 0, 1, (2, 3, 4)  # orders of threads


def in_order(order):
    """Kernels whose threads take turns in this order."""

    def compile(source, device):
        kernels = compile_host(source, device)
        kernels.order = order
        return kernels

    return compile


def judged(agent):
    """Collect and judge; then the updates are as the first of them finds them."""
    work = collected(agent)
    updates = agent.engine.learn.updates_of(agent)
    updates.prepare()
    updates.judge(updates.recipe.reward(work))
    return updates


def stats_of(updates):
    return Stat.from_buffer(updates.stats.numpy())


def held(updates):
    columns = {name: getattr(updates, name) for name in ("log_prob", "value", "weight", "target", "counted")}
    return {name: column[: updates.recipe.rows].clone() for name, column in columns.items()}


def player(agent, split=8, order=FORWARDS):
    """The agent's rollouts by a kernel, with so many threads for a world."""
    agent.collector.envs.compile = in_order(order)
    recipe = RECIPES[type(agent)](agent)
    return FusedPlay(recipe, sizes_of(agent.policy, recipe.shape.layout, split))


def played(agent):
    """All that a rollout leaves, in numbers."""
    memory = agent.memory
    step, world = memory.table.truncated.nonzero().unbind(1)
    slots = memory.table.slot[step, world]
    last = torch.stack([leaf[slots, world] for leaf in leaves(memory.final.obs)])
    rows = {name: leaf.clone() for name, leaf in zip(Row._fields, leaves(memory.table), strict=False)}
    memory_state = {"last": last, "slot now": memory.slot.clone(), "written": memory.written}
    return {**rows, **memory_state, "collector": agent.collector.state_dict()}
