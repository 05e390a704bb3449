"""What fused engines are trained on, every pair of options once; the gradient of autograd; a GPU's work in steps."""

import copy
import math
from collections.abc import Mapping
from functools import partial

import numpy as np
import pytest
import torch
from driven import continued, pairwise
from host_kernels import compile_host
from same_as_eager import learnt
from torch import Tensor

from stride.agents.engines.choice import RECIPES
from stride.agents.engines.fused_gpu.play import FusedPlay, sizes_of
from stride.agents.engines.plan.numbers import Stat
from stride.agents.experience.nouns import Final, Row, Tree, leaves, tree_map
from stride.agents.networks.cnn import Image
from stride.agents.networks.q_network import pick
from stride.agents.ppo import clipped_surrogate, value_loss
from stride.agents.reinforce import masked_mean

# --- rollouts

SMALL = ("n_steps=40", "n_envs=6", "batch_size=80", "n_epochs=2", "threads=2")
TINY = (*SMALL, "hidden_dims=[16,16]")
LOWERED = (*SMALL, "hidden_dims=[16,32]", "policy_lr=1e-2")
GPU = ("n_envs=20", "n_steps=32", "batch_size=160", "max_episode_steps=11", "n_epochs=1")
FIFTY = ("n_envs=8", "n_steps=64", "batch_size=0.25", "policy_lr=1e-3", "clip_range=0.2")
BOTH = ("false", "true")
ON_POLICY = pairwise(
    {
        "config": ("CartPole-v1:ppo", "Pendulum-v1:ppo", "FrozenLake-v1:ppo", "Taxi-v4:ppo", "CartPole-v1:reinforce"),
        "hidden_dims": ("[64,64]", "[24]", "[16,40,33]"),
        "activation": ("tanh", "relu"),
        "share_trunk": BOTH,
        "normalize_obs": BOTH,
        "normalize_reward": BOTH,
        "ent_coef": ("0.0", "0.05"),
        "normalize": ("off", "batch", "rollout"),
        "extra": ("plain", "clipped", "adam"),
    }
)
SMALLER = [case for case in ON_POLICY if case["hidden_dims"] != "[64,64]"]
ON_GPU = [SMALLER[0], *SMALLER[1::2]]  # every choice is in one of them, but for the nets that take g++ the longest
ONLY_PPO = {"plain": ("clip_range_vf=null",), "clipped": ("clip_range_vf=0.05",), "adam": ("clip_range_vf=null",)}
ONLY_REINFORCE = {
    "plain": ("policy_targets=returns",),
    "clipped": ("policy_targets=advantages", "returns_type=mc:episode"),
    "adam": ("policy_targets=advantages",),
}


def on_policy_words(case):
    ppo = case["config"].endswith(":ppo")
    boxes = case["config"].startswith(("CartPole", "Pendulum"))
    keys = ("hidden_dims", "activation", "share_trunk", "normalize_reward", "ent_coef")
    shared = [f"{key}={case[key]}" for key in keys]
    shared += [f"normalize_obs={case['normalize_obs'] if boxes else 'false'}"]
    shared += [f"normalize_{'advantages' if ppo else 'returns'}={case['normalize']}"]
    shared += ["optimizer=adam", "weight_decay=0.01"] if case["extra"] == "adam" else ["optimizer=adamw"]
    shared += ["policy_lr=1e-3", *(["clip_range=0.1", "target_kl=null"] if ppo else [])]
    return (*SMALL, *shared, *(ONLY_PPO if ppo else ONLY_REINFORCE)[case["extra"]])


def marks_on_gpu(case):
    """g++ takes seconds for each: one is fast, the others of ON_GPU are slow, the rest is soak."""
    return [pytest.mark.slow] * (case != ON_GPU[0]) + [pytest.mark.soak] * (case not in ON_GPU)


def named(case):
    return "-".join(str(value) for value in case.values())


# --- a replay memory

REPLAY = ("n_envs=3", "train_freq=16", "gradient_steps=4", "buffer_size=300", "learning_starts=40", "policy_lr=1e-3")
REPLAY += ("max_episode_steps=30",)
SHARED = {
    "hidden_dims": ("[64,64]", "[32]", "[16,48,33]"),
    "activation": ("relu", "tanh"),
    "normalize_obs": ("false", "true", "static"),
    "batch_size": ("64", "50", "7"),
    "optimizer": ("adam", "adamw"),
    "max_grad_norm": ("null", "0.5"),
    "gamma": ("0.99", "0.9"),
}
OF_DQN = {"double_q": BOTH, "dueling": BOTH, "n_step": ("1", "3"), "huber": ("1.0", "null")}
OF_DQN |= {"target_freq": ("7", "1000"), "tau": ("1.0", "0.3")}
OF_SAC = {"ent_coef": ("null", "0.1"), "tau": ("0.005", "1.0"), "noise_correlation": ("0.0", "0.5")}
OF_SAC |= {"n_step": ("1", "3")}
OF_TD3 = {"actor_every": ("2", "1", "3"), "n_critics": ("2", "1", "3"), "target_noise": ("0.2", "0.0")}
OF_TD3 |= {"target_noise_clip": ("0.5", "0.1"), "action_noise": ("0.1", "0.5"), "tau": ("0.005", "1.0")}
OF_TD3 |= {"noise_correlation": ("0.0", "0.5"), "n_step": ("1", "3")}
OF_TQC = {"n_critics": ("2", "1", "3"), "quantiles": ("25", "4"), "drop_quantiles": ("2", "0", "3"), **OF_SAC}
DQN = pairwise({"config": ("Acrobot-v1:dqn", "MountainCar-v0:dqn"), **SHARED, **OF_DQN})
SAC = pairwise({"config": ("Pendulum-v1:sac", "MountainCarContinuous-v0:sac"), **SHARED, **OF_SAC})
TD3 = pairwise({"config": ("Pendulum-v1:td3",), **SHARED, **OF_TD3})
TQC = pairwise({"config": ("Pendulum-v1:tqc",), **SHARED, **OF_TQC})
OFF_POLICY = DQN + SAC + TD3 + TQC


def off_policy_words(case):
    return (*REPLAY, "weight_decay=0.01", *(f"{key}={value}" for key, value in case.items() if key != "config"))


# --- sequences

MINGRU = ("policy=mingru", "n_envs=8", "n_epochs=2", "policy_lr=1e-3")
SEQUENCES = (*MINGRU, "n_steps=70", "batch_size=280")  # longer than a tile
MEMORIES = {
    "plain": ("CartPole-v1:ppo", *SEQUENCES, "hidden_dims=[24,20]", "normalize_obs=true", "max_episode_steps=45"),
    "a trunk": (
        "Pendulum-v1:ppo", *MINGRU, "n_steps=24", "batch_size=96", "hidden_dims=[16]", "policy_kwargs.layers=3",
        "share_trunk=true", "activation=relu", "normalize_reward=true", "max_episode_steps=31",
    ),
    "places": ("FrozenLake-v1:ppo", *SEQUENCES, "hidden_dims=[8,33]", "policy_kwargs.layers=1", "ent_coef=0.05"),
    "masks": ("Taxi-v4:ppo", *SEQUENCES, "hidden_dims=16", "max_episode_steps=12"),
    "returns": (
        "CartPole-v1:reinforce", *SEQUENCES, "hidden_dims=[16]", "policy_targets=returns", "returns_type=mc:episode",
    ),
    "a critic": ("CartPole-v1:reinforce", *SEQUENCES, "hidden_dims=[16]", "policy_targets=advantages"),
}  # fmt: skip

# --- graphs

ROLLOUT = ("n_envs=4", "n_steps=8", "batch_size=16", "n_epochs=2")
MOVING = ("policy_lr=lin_0.01", "clip_range=lin_0.3", "ent_coef=lin_0.02", "vf_coef=cos_0.5")
GRAPHED = {
    "plain": ("CartPole-v1:ppo", *ROLLOUT),
    "schedules": ("CartPole-v1:ppo", *ROLLOUT, *MOVING, "clip_range_vf=lin_0.3", "target_kl=lin_0.01"),
    "normalised": ("CartPole-v1:ppo", *ROLLOUT, "normalize_obs=true", "normalize_reward=true"),
    "target_kl": ("CartPole-v1:ppo", *ROLLOUT, "target_kl=1e-4", "policy_lr=0.01"),
    "accumulate": ("CartPole-v1:ppo", *ROLLOUT, "accumulate=2"),
    "lstm": ("CartPole-v1:ppo_lstm", *ROLLOUT, "hidden_dims=16"),
    "gru": ("CartPole-v1:ppo", *ROLLOUT, "policy=gru", "hidden_dims=[8,8]"),
    "mingru": ("CartPole-v1:ppo", *ROLLOUT, "policy=mingru", "hidden_dims=8"),
    "transformer": ("CartPole-v1:ppo", *ROLLOUT, "policy=transformer", "hidden_dims=8"),
    "shared": ("CartPole-v1:ppo", *ROLLOUT, "share_trunk=true", "normalize_advantages=rollout"),
    "rmsprop": ("CartPole-v1:ppo", *ROLLOUT, "optimizer=rmsprop", "policy_lr=0.001"),
    "adam": ("CartPole-v1:ppo", *ROLLOUT, "optimizer=adam", "policy_lr=exp_0.01"),
    "sgd": ("CartPole-v1:ppo", *ROLLOUT, "optimizer=sgd", "policy_lr=warmup_0.1"),
    "numbers": ("Pendulum-v1:ppo", *ROLLOUT, "normalize_obs=true", "policy_lr=lin_0.001"),
    "images": ("CartPole-v1:ppo_pixels", *ROLLOUT, "resize_obs=[36,36]"),
    "dicts, masks, truncations": ("Taxi-v4:ppo", *ROLLOUT, "max_episode_steps=12"),
    "unguarded": ("CartPole-v1:ppo", *ROLLOUT, "nan_guard=off"),
    "reinforce": ("CartPole-v1:reinforce", *ROLLOUT, "policy_targets=returns", "ent_coef=lin_0.01"),
    "reinforce, a critic": ("CartPole-v1:reinforce", *ROLLOUT, "policy_targets=advantages", "normalize_returns=batch"),
    "whole episodes": ("CartPole-v1:reinforce", *ROLLOUT, "policy_targets=returns", "returns_type=mc:episode"),
    "bf16": ("CartPole-v1:ppo", *ROLLOUT, "precision=bf16", "normalize_obs=true"),
    "popart": ("CartPole-v1:ppo", *ROLLOUT, "value_scale=popart"),
    "pqn": ("CartPole-v1:pqn", *ROLLOUT, "epsilon=lin_1.0"),
    "lag": ("CartPole-v1:ppo", *ROLLOUT, "lag=1", "normalize_obs=true", *MOVING),
    "lag, lstm": ("CartPole-v1:ppo_lstm", *ROLLOUT, "lag=1", "hidden_dims=16"),
}

# --- gradients


def collected(agent):
    """The work of one more rollout."""
    start = tree_map(torch.clone, agent.collector.carry)
    agent.collect(agent.config.n_steps)
    return agent.memory.rollout(start, Final(agent.collector.obs, agent.collector.carry))


def gradients_of(recipe, flat: Tensor, parameters):
    """A flat buffer of kernels as gradients of these parameters."""
    places = {id(place.parameter): place for place in recipe.shape.layout.tensors}
    return [places[id(parameter)].view(flat).reshape(parameter.shape) for parameter in parameters]


def furthest(mine, theirs):
    """The largest difference between two lists of gradients, as a share of the largest gradient."""
    largest = max(x.abs().max().item() for x in theirs)
    return max((x - y).abs().max().item() for x, y in zip(mine, theirs, strict=True)) / largest


def features_of(image, obs, dtype=torch.float64):
    """Features of pictures in `dtype`, as the weights that make them are."""
    return image.join(image.convolutions(image.channels_first(obs).to(dtype) / image.highest))


def autograd_gradient(
    agent, order: Tensor, held: Mapping[str, Tensor], dtype: torch.dtype = torch.float64, start: Tree = ()
):
    """Autograd of the agent's own loss on the rows of a minibatch, everything in `dtype`.

    `held` are columns of all rows: log_prob, value, weight, target, counted; `start` is the carry before the rollout.
    """
    if leaves(start):  # complete sequences, world after world
        order = order.view(-1, agent.config.n_steps).t()
        start = tree_map(lambda x: x[order[0]].to(dtype), start)
    policy, config, row = copy.deepcopy(agent.policy).to(dtype), agent.config, agent.memory.table
    values = policy.network if config.algo_id == "pqn" else None
    encoder = (values or policy).encoder
    plain = (agent.policy.network if values else agent.policy).encoder

    def rows(x):
        return x.flatten(0, 1)[order]

    obs = tree_map(rows, row.obs)
    encoder.forward = lambda _: plain(obs).to(dtype)
    if isinstance(image := encoder.leaf[0], Image):
        encoder.forward = lambda _: features_of(image, obs, dtype)
    action = rows(row.action.to(dtype) if row.action.is_floating_point() else row.action)
    own = {name: column.to(dtype)[order] for name, column in held.items()}
    if values:
        ((own["target"] - pick(values(obs), action)).square().mean() / 2).backward()
        return [p.grad for p in policy.parameters()]
    judged = policy.evaluate(obs, start, rows(row.is_first), action)
    weight, counted, live = own["weight"], own["counted"], agent.live
    mode = config.normalize_advantages if config.algo_id == "ppo" else config.normalize_returns
    if mode != "off":
        over, share = weight, counted
        if mode == "rollout":
            over, share = held["weight"].to(dtype), held["counted"].to(dtype)
        mean = masked_mean(over, share)
        weight = (weight - mean) / (masked_mean((over - mean).square(), share).sqrt() + 1e-8)
    if config.algo_id == "ppo":
        ratio = (judged.log_prob - own["log_prob"]).exp()
        loss = clipped_surrogate(ratio, weight, live.clip_range) - live.ent_coef * judged.entropy.mean()
        clip = live.clip_range_vf
        loss = loss + live.vf_coef * value_loss(judged.value, own["value"], own["target"], clip)
    else:
        loss = -masked_mean(judged.log_prob * weight, counted) - live.ent_coef * masked_mean(judged.entropy, counted)
        if policy.critic is not None:
            loss = loss + live.vf_coef * (judged.value - own["target"]).square().mean()
    loss.backward()
    return [p.grad for p in policy.parameters()]


def first_update(agent):
    """(gradients by kernels, by autograd) of the first minibatch of one more rollout."""
    work = collected(agent)
    bound = agent.engine.learn.bound
    bound.attach(agent.optimizer)
    bound.begin()
    bound.prepare(bound.recipe.reward(work), bound.recipe.order(), work.start)
    bound.recipe.before_learning(bound.live)
    bound.run(bound.frame.fields.judge, bound.frame.address, 1, 1)
    bound.live.max_norm = math.inf
    order = torch.from_numpy(bound.frame.held["order"][: agent.config.minibatch_size].astype(np.int64))
    names = ("log_prob", "value", "weight", "target", "counted")
    columns = {name: torch.from_numpy(bound.frame.held[name][: bound.recipe.rows]) for name in names}
    exact = autograd_gradient(agent, order, columns, start=work.start)
    bound.run(bound.frame.fields.update, bound.frame.address, 1, 1)
    flat = torch.from_numpy(bound.frame.held["gradient"])
    return gradients_of(bound.recipe, flat, agent.policy.parameters()), exact


def in_double(agent, batch):
    """Autograd of the agent's own update on this batch, everything in float64: a gradient for each parameter."""
    for encoder in [part.encoder for part in agent.modules() if hasattr(part, "encoder")]:
        statistics = copy.deepcopy(encoder)  # stay as they are: what is compared begins behind them
        encoder.forward = lambda obs, plain=statistics: plain(obs).double()
        if isinstance(encoder.leaf[0], Image):
            encoder.forward = partial(features_of, encoder.leaf[0])
    agent.double()
    double = tree_map(lambda x: x.double() if x.is_floating_point() else x, batch)
    agent.descend = lambda optimizer, loss, max_norm: (loss.backward(), torch.zeros(1))[1]
    noise = None if agent.config.algo_id == "dqn" else agent.update_noise(1)[0]
    agent.update(double._replace(obs=batch.obs, next_obs=batch.next_obs), noise)
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in learnt(agent)]


def next_update(fused, eager):
    """(gradients by kernels, by autograd) of the next update from a replay memory; `eager` goes on as `fused` would."""
    exact = continued(fused, eager)
    steps = getattr(exact.config, "n_step", 1)
    (batch,) = exact.memory.draws(1, exact.config.batch_size, steps, exact.live.gamma)
    fused.renew_statistics = lambda: None
    expected = in_double(exact, batch)
    fused.engine.learn.learn(fused, 1)
    bound = fused.engine.learn.bound
    flat = torch.from_numpy(bound.frame.held["gradient"])
    return gradients_of(bound.recipe, flat, learnt(fused)), expected


# --- rollouts and updates of `engine: fused_gpu`, step by step, on this processor

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
