"""What the tests of fused engines share: every pair of options once, and the gradient of autograd in float64."""

import copy
import hashlib
import math
from collections.abc import Mapping

import pytest
import torch
from driven import advance, continued, pairwise
from torch import Tensor

from stride.agents.base import NumbersError
from stride.agents.experience.nouns import tree_map
from stride.agents.ppo import clipped_surrogate, value_loss
from stride.agents.reinforce import masked_mean

SMALL = ("n_steps=40", "n_envs=6", "batch_size=80", "n_epochs=2", "threads=2")
FIFTY = ("n_envs=8", "n_steps=64", "batch_size=0.25", "n_epochs=13", "policy_lr=1e-3", "clip_range=0.2")
CASES = pairwise(
    {
        "config": ("CartPole-v1:ppo", "Pendulum-v1:ppo", "FrozenLake-v1:ppo", "Taxi-v4:ppo", "CartPole-v1:reinforce"),
        "hidden_dims": ("[64,64]", "[24]", "[16,40,33]"),
        "activation": ("tanh", "relu"),
        "share_trunk": ("false", "true"),
        "normalize_obs": ("false", "true"),
        "normalize_reward": ("false", "true"),
        "ent_coef": ("0.0", "0.05"),
        "normalize": ("off", "batch", "rollout"),
        "extra": ("plain", "clipped", "adam"),
    }
)
ONLY_PPO = {"plain": ("clip_range_vf=null",), "clipped": ("clip_range_vf=0.05",), "adam": ("clip_range_vf=null",)}
ONLY_REINFORCE = {
    "plain": ("policy_targets=returns",),
    "clipped": ("policy_targets=advantages", "returns_type=mc:episode"),
    "adam": ("policy_targets=advantages",),
}


def overrides_of(case):
    ppo = case["config"].endswith(":ppo")
    boxes = case["config"].startswith(("CartPole", "Pendulum"))
    keys = ("hidden_dims", "activation", "share_trunk", "normalize_reward", "ent_coef")
    shared = [f"{key}={case[key]}" for key in keys]
    shared += [f"normalize_obs={case['normalize_obs'] if boxes else 'false'}"]
    shared += [f"normalize_{'advantages' if ppo else 'returns'}={case['normalize']}"]
    shared += ["optimizer=adam", "weight_decay=0.01"] if case["extra"] == "adam" else ["optimizer=adamw"]
    shared += ["policy_lr=1e-3", *(["clip_range=0.1", "target_kl=null"] if ppo else [])]
    return [*SMALL, *shared, *(ONLY_PPO if ppo else ONLY_REINFORCE)[case["extra"]]]


def named(case):
    return "-".join(str(value) for value in case.values())


def weights(agent):
    return [p.detach().clone() for p in agent.policy.parameters()]


def digest(agent):
    state = agent.optimizer.state
    moments = [state[p][k] for p in agent.policy.parameters() for k in ("exp_avg", "exp_avg_sq", "step")]
    return hashlib.sha256(b"".join(x.numpy().tobytes() for x in (*weights(agent), *moments))).hexdigest()


def assert_near(mine, theirs, within=5e-6):
    for ours, others in zip(weights(mine), weights(theirs), strict=True):
        assert (ours - others).abs().max() <= within


def assert_learns_like(mine, eager):
    """Two iterations, each from the same checkpoint, so that a rounding in one rollout is not soon another rollout."""
    for _ in range(2):
        advance(eager, 1)
        eager.metrics.flush()
        continued(eager, mine)
        advance(eager, 1), advance(mine, 1)
        assert_near(mine, eager)
        told, expected = mine.metrics.flush(), eager.metrics.flush()
        assert told.keys() == expected.keys()
        for name in told:
            assert told[name] == pytest.approx(expected[name], rel=2e-3, abs=2e-4, nan_ok=True), name
    assert mine.progress == eager.progress


def assert_changes_with(mine, eager, again):
    """Two iterations by each from where `eager` stands; then back to `again`, an eager one, to the bit."""
    continued(eager, mine)
    advance(eager, 2), advance(mine, 2)
    assert torch.equal(eager.memory.table.action, mine.memory.table.action)
    assert_near(mine, eager, within=1e-6)
    assert digest(continued(mine, again)) == digest(mine)


def assert_goes_on(make):
    """Who was stopped in the middle and who never was."""
    straight, half = advance(make(), 4), advance(make(), 2)
    assert digest(straight) == digest(advance(continued(half, make()), 2))


def assert_refuses(agent, field, value=math.nan):
    """A number of the next rollout, or of the critic, that is none: reported, and no weight learns of it."""
    collect = agent.engine.play.collect

    def poisoned(agent, steps):
        collect(agent, steps)
        table = agent.memory.table
        {"reward": table.reward, "obs": table.obs}.get(field, table.reward)[3, 2] = value if field != "parameter" else 1

    agent.engine.play.collect = poisoned
    if field == "parameter":
        with torch.no_grad():
            agent.policy.critic[1].bias.fill_(value)
    before = weights(agent)
    with pytest.raises(NumbersError, match="iteration 2"):
        advance(agent, 1)
    for mine, old in zip(weights(agent), before, strict=True):
        assert torch.equal(mine.nan_to_num(), old.nan_to_num()), "the weights are as before it"


def autograd_gradient(agent, order: Tensor, held: Mapping[str, Tensor], dtype: torch.dtype = torch.float64):
    """Autograd of the agent's own loss on the rows of a minibatch, everything in `dtype`.

    `held` is what was found of all rows: LOG_PROB, VALUE, WEIGHT, TARGET, COUNTED.
    """
    policy, config, row = copy.deepcopy(agent.policy).to(dtype), agent.config, agent.memory.table

    def rows(x):
        return x.flatten(0, 1)[order]

    obs = tree_map(rows, row.obs)
    policy.encoder.forward = lambda _: agent.policy.encoder(obs).to(dtype)
    action = rows(row.action.to(dtype) if row.action.is_floating_point() else row.action)
    own = {name: found.to(dtype)[order] for name, found in held.items()}
    judged = policy.evaluate(obs, (), rows(row.is_first), action)
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
