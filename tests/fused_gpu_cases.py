"""What the tests of `engine: fused_gpu` share: agents whose worlds and kernels are a GPU's, on this processor."""

import torch
from driven import advance, agent_for
from fused_cases import SMALL
from host_kernels import compile_host

from stride.agents.engines.choice import RECIPES, build_agent
from stride.agents.engines.fused_gpu.engine import fused_gpu
from stride.agents.engines.fused_gpu.learn import FusedLearn
from stride.agents.engines.fused_gpu.play import FusedPlay, sizes_of
from stride.agents.engines.plan.numbers import Stat
from stride.agents.experience.nouns import Final, Row, leaves, tree_map
from stride.config.loader import load_config
from stride.envs_fast.cuda_env import CudaEnv
from stride.envs_fast.registry import WORLDS
from stride.envs_fast.vec_env import CPU

TINY = (*SMALL, "hidden_dims=[16,16]")
FORWARDS, BACKWARDS, SHUFFLED = 0, 1, (2, 3, 4)
N, T = 20, 32
ROLLOUT = (f"n_envs={N}", f"n_steps={T}", "batch_size=160", "max_episode_steps=11", "engine=eager")
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


def fused(config_id, *overrides, compile=compile_host):
    """An agent that plays as eager does and learns by kernels."""
    agent = agent_for(config_id, *overrides, "engine=eager")
    agent.engine = agent.engine._replace(learn=FusedLearn(RECIPES[type(agent)], compile))
    return agent


def judged(agent):
    """Collect and judge; then the updates are as the first of them finds them."""
    start = tree_map(torch.clone, agent.collector.carry)
    agent.collect(agent.config.n_steps)
    work = agent.memory.rollout(start, Final(agent.collector.obs, agent.collector.carry))
    updates = agent.engine.learn.updates_of(agent)
    updates.prepare()
    updates.judge(updates.recipe.reward(work))
    return updates


def stats_of(updates):
    return Stat.from_buffer(updates.stats.numpy())


def held(updates):
    rows = updates.recipe.rows
    found = {"log_prob": updates.log_prob, "value": updates.value, "weight": updates.weight}
    found |= {"target": updates.target, "counted": updates.counted}
    return {name: column[:rows].clone() for name, column in found.items()}


def worlds_for(config, compile=compile_host):
    return CudaEnv(WORLDS[config.env_id], config.n_envs, config.max_episode_steps, CPU, compile, **config.env_kwargs)


def gpu_agent(case, *own, compile=compile_host):
    """An agent whose worlds are a GPU's, on this processor, with an optimizer as the Trainer would give it."""
    name, *given = CASES[case]
    config = load_config(*name.rsplit(":", 1), ["max_timesteps=1e6", *ROLLOUT, *given, *own])
    return with_optimizer(build_agent(config, worlds_for(config, compile)))


def with_optimizer(agent):
    optimizer = agent.configure_optimizers()
    agent.optimizers = lambda use_pl_optimizer=False: optimizer
    return agent


def player(agent, split=8, text=lambda text: text, order=FORWARDS):
    """Its play; of a source that was tampered with."""

    def compile(source, device):
        changed = text(source.text) if source.name.startswith("rollout") else source.text
        kernels = compile_host(source._replace(text=changed), device)
        kernels.order = order
        return kernels

    agent.collector.envs.compile = compile
    recipe = RECIPES[type(agent)](agent)
    return FusedPlay(recipe, sizes_of(agent.policy, recipe.shape.layout, split))


def played(agent):
    """All that a rollout leaves, in numbers."""
    collector, memory = agent.collector, agent.memory
    cut = memory.table.truncated
    step, world = cut.nonzero().unbind(1)
    slots = memory.table.slot[step, world]
    last = torch.stack([leaf[slots, world] for leaf in leaves(memory.final.obs)])
    numbers = {name: leaf.clone() for name, leaf in zip(Row._fields, leaves(memory.table), strict=False)}
    numbers |= {"last": last, "slot now": memory.slot.clone(), "written": memory.written}
    state = collector.state_dict()
    window, worlds = state.pop("window"), state.pop("envs")
    return {**numbers, **state, **window, **worlds}


def assert_same(mine, theirs, at=(), rounding=0.0):
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point() and rounding:
            torch.testing.assert_close(
                value, theirs[name], rtol=rounding, atol=rounding, msg=lambda m, n=name: f"{n}: {m}"
            )
        elif isinstance(value, torch.Tensor):
            assert value.dtype == theirs[name].dtype and torch.equal(value, theirs[name]), (name, at)
        else:
            assert value == theirs[name], (name, at)


def trained(agent, iterations):
    """What its state is afterwards, by name."""
    advance(agent, iterations)
    return {**agent.state_dict(), **played(agent)}


def with_engine(agent, make):
    agent.engine = fused_gpu(RECIPES[type(agent)], agent, make)
    return with_optimizer(agent)
