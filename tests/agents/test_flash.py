"""FlashSAC's parts: bins by their definition, a whole step in float64, each key alone, resume, play, refusals."""

import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from driven import advance, agent_for, continued
from refusals import refusal
from untrained_runs import untrained

from stride.agents.networks.categorical import Bins
from stride.agents.networks.encoders import parts_of
from stride.agents.networks.residual import batch_moments
from stride.config.loader import from_plain, load_config, to_plain
from stride.export.decisions import decider
from stride.utils.counter_rng import normal

SMALL = ("n_envs=4", "train_freq=4", "gradient_steps=1", "batch_size=32", "learning_starts=40", "buffer_size=400")
SMALL += ("hidden_dims=[8]", "engine=eager")
FLASH = (*SMALL, "recipe=flash", "bins=11", "bin_range=2")


def agent_of(kind, *words):
    """The agent of Pendulum-v1; of two words for a key the later one counts."""
    return agent_for(f"Pendulum-v1:{kind}", *{word.partition("=")[0]: word for word in (*SMALL, *words)}.values())


def test_bins_against_their_definition():
    bins, b, n = Bins(5, 2.0, torch.device("cpu")), 3, 2
    logits, reward, cost = torch.randn(n, b, 5), torch.tensor([0.3, -5.0, 1.0]), torch.tensor([0.1, 0.0, -0.2])
    discount = torch.tensor([0.9, 0.9, 0.0])
    result = bins.target(reward, discount, logits, cost)
    chances, places = logits.softmax(-1).numpy(), [-2.0, -1.0, 0.0, 1.0, 2.0]
    for row in range(b):
        least = chances[int(np.argmin([chances[i, row] @ places for i in range(n)])), row]
        expected = [0.0] * 5
        for chance, place in zip(least, places, strict=True):
            moved = min(2.0, max(-2.0, reward[row].item() + discount[row].item() * (place - cost[row].item())))
            for k, other in enumerate(places):
                expected[k] += chance * max(0.0, 1 - abs(moved - other))
        assert result[row].tolist() == pytest.approx(expected, abs=1e-6)
    weight = torch.tensor([1.0, 0.5, 0.0])
    entropies = -(result * (logits - logits.logsumexp(-1, keepdim=True))).sum(-1)
    assert bins.loss(logits, result, weight).item() == pytest.approx((weight * entropies).mean().item())
    assert bins.mean(torch.tensor([0.0, 0.0, 9.0, 0.0, 0.0])).item() == pytest.approx(0, abs=1e-6)


# --- a whole step, with plain operations in float64


def doubled(module):
    parameters = {name: p.detach().double().requires_grad_() for name, p in module.named_parameters()}
    return parameters, {name: x.double() for name, x in module.named_buffers() if not name.endswith("hold_chances")}


def normed(x, parameters, moments, name, by_batch):
    """Batch norm; the running moments follow those of the batch."""
    mean, var = moments[f"{name}.mean"], moments[f"{name}.var"]
    if by_batch:
        moments[f"{name}.mean"] = 0.99 * mean + 0.01 * x.detach().mean(0)
        moments[f"{name}.var"] = 0.99 * var + 0.01 * x.detach().var(0)
        mean, var = x.mean(0), x.var(0, correction=0)
    return (x - mean) / (var + 1e-5).sqrt() * parameters[f"{name}.weight"] + parameters[f"{name}.bias"]


def answer(parameters, moments, x, prefix="", by_batch=False):
    """Batch norm, linear, a residual block, RMS norm, head."""
    x = normed(x, parameters, moments, f"{prefix}torso.0", by_batch) @ parameters[f"{prefix}torso.1.weight"].T
    y = x
    for layer in ("widening", "narrowing"):
        y = y @ parameters[f"{prefix}torso.2.{layer}.0.weight"].T
        y = normed(y, parameters, moments, f"{prefix}torso.2.{layer}.1", by_batch).relu()
    x = x + y
    x = x / ((x * x).mean(-1, keepdim=True) + 1e-4).sqrt() * parameters[f"{prefix}torso.3.scale"]
    return x @ parameters[f"{prefix}head.weight"].T + parameters[f"{prefix}head.bias"]


def soft_action(parameters, moments, obs, uniform, by_batch):
    mean, log_std = answer(parameters, moments, obs, by_batch=by_batch).chunk(2, -1)
    x = mean + log_std.exp() * normal(uniform).double()
    log_prob = torch.distributions.Normal(mean, log_std.exp()).log_prob(x) - (1 - x.tanh() ** 2).log()
    return x.tanh(), log_prob.sum(-1)


def critics(parameters, moments, obs, action, by_batch):
    x = torch.cat((obs, action), -1)
    return torch.stack([answer(parameters, moments, x, f"networks.{i}.", by_batch) for i in range(2)])


def projected(parameters):
    """Rows of length 1; factor and shift of a norm of length sqrt(n)."""
    result = {}
    for name, p in parameters.items():
        owner = name.rpartition(".")[0]
        if p.dim() == 2:
            result[name] = p / p.norm(dim=1, keepdim=True)
        elif owner.endswith("head"):
            result[name] = p
        else:
            factors = [x for other, x in parameters.items() if other.rpartition(".")[0] == owner]
            result[name] = p * len(p) ** 0.5 / torch.stack([(x * x).sum() for x in factors]).sum().sqrt()
    return result


def assert_is(module, parameters, moments):
    expected = {**parameters, **moments}
    for name, x in [*module.named_parameters(), *module.named_buffers()]:
        if name in expected:
            assert (x - expected[name]).abs().max() < 2e-5, name


@pytest.mark.parametrize("moves_actor", [False, True])
def test_a_step_in_float64(moves_actor):
    agent = advance(agent_of("sac", *FLASH, "blocks=1", "optimizer=sgd", "policy_lr=0.1", "gamma=0.9"), 12)
    assert agent.progress["updates"] > 1
    agent.progress["updates"] = 7 if moves_actor else 8
    batch, u = agent.memory.transitions(32, 1, 0.9)._replace(weight=torch.rand(32)), torch.rand(2, 32, 1)
    (actor, actor_moments), (online, online_moments) = doubled(agent.policy), doubled(agent.critics)
    target, target_moments = doubled(agent.target)
    log_alpha = agent.log_alpha.detach().double().requires_grad_()
    # the scale of rewards, from all rows so far
    table, rows = agent.memory.table, agent.memory.written
    running, returns = torch.zeros(4).double(), []
    for t in range(rows):
        running = table.reward[t].double() + 0.9 * running
        returns.append(running)
        running = running * ~(table.terminated[t] | table.truncated[t])
    spread = torch.stack(returns)
    reward = batch.reward.double() / max(spread.std(correction=0).item(), spread.abs().max().item() / 2)
    obs, next_obs, alpha = batch.obs.double(), batch.next_obs.double(), log_alpha.detach().exp()

    next_action, log_prob = soft_action(actor, actor_moments, next_obs, u[1], by_batch=False)
    both, actions = torch.cat((obs, next_obs)), torch.cat((batch.action.double(), next_action)).detach()
    next_q = critics(target, target_moments, both, actions, by_batch=True)[:, 32:].softmax(-1)
    places = torch.linspace(-2, 2, 11).double()
    least = (next_q @ places).argmin(0)
    moved = places - (alpha * log_prob)[:, None]
    moved = (reward[:, None] + batch.discount.double()[:, None] * moved).clamp(-2, 2)
    nearness = (1 - (moved[:, :, None] - places).abs() / 0.4).clamp(min=0)
    y = (next_q[least, torch.arange(32)][:, :, None] * nearness).sum(1).detach()
    q = critics(online, online_moments, both, actions, by_batch=True)[:, :32]
    loss = -(batch.weight.double() * (y * q.log_softmax(-1)).sum(-1)).mean()
    learnt = [*online.values()]
    if moves_actor:
        action, log_prob = soft_action(actor, actor_moments, obs, u[0], by_batch=True)
        fixed = {name: p.detach() for name, p in online.items()}
        value = critics(fixed, online_moments, obs, action, by_batch=False).softmax(-1) @ places
        loss = loss - (value.amin(0) - alpha * log_prob).mean()
        goal = 0.5 * math.log(2 * math.pi * math.e * 0.15**2)
        loss = loss - log_alpha * (log_prob.detach() + goal).mean()
        learnt += [*actor.values(), log_alpha]
    new = [p.detach() - 0.1 * g for p, g in zip(learnt, torch.autograd.grad(loss, learnt), strict=True)]
    new_online = projected(dict(zip(online, new, strict=False)))
    new_actor = projected(dict(zip(actor, new[len(online) : -1], strict=True))) if moves_actor else actor
    new_target = {name: p + 0.01 * (new_online[name] - p) for name, p in target.items()}

    agent.update(batch, u)
    assert_is(agent.critics, new_online, online_moments)
    assert_is(agent.policy, new_actor, actor_moments)
    assert_is(agent.target, new_target, target_moments)
    assert agent.log_alpha.item() == pytest.approx((new[-1] if moves_actor else log_alpha).item(), abs=1e-5)


# --- each key alone


def test_a_recipe_is_values_of_keys_below_those_beside_it():
    config = load_config("Pendulum-v1", "sac", ["recipe=flash", "bins=51", "max_timesteps=1000"])
    assert (config.bins, config.blocks, config.norm, config.target_std) == (51, 2, "batch", 0.15)
    assert config.policy_lr.at(1000, 1000) == pytest.approx(1.5e-4), "it is above the block of the environment"
    assert from_plain(to_plain(config)) == config
    critic = load_config("Pendulum-v1", "sac", ["recipe=crossq", "critic.lr_scale=2"]).critic_shape
    assert critic.hidden_dims == (1024, 1024) and critic.lr_scale == 2


@pytest.mark.parametrize("norm", ["layer", "batch", "rms"])
def test_norms_make_features_even(norm):
    agent = agent_of("sac", f"norm={norm}")
    layer = agent.critics.networks[0].torso[-1]
    x = 5 + 3 * torch.randn(200, layer[0].in_features)
    with batch_moments(agent.critic_norms):
        y = layer[1](layer[0](x)).detach()
    if norm == "rms":
        assert torch.allclose(y.square().mean(1), torch.ones(200), atol=1e-2)
    else:
        axis = {"layer": 1, "batch": 0}[norm]
        assert y.mean(axis).abs().max() < 1e-4 and torch.allclose(
            y.std(axis, correction=0), torch.tensor(1.0), atol=0.1
        )


def test_noise_is_held_as_long_as_zipf_says():
    policy = agent_of("sac", "noise_hold=4").policy
    n, carry, zs = 4000, policy.initial(4000), []
    generator, obs = torch.Generator().manual_seed(1), torch.zeros(4000, 3)
    for step in range(12):
        is_first = torch.full((n,), step == 0)
        is_first[:100] = True
        carry = policy.act(obs, carry, is_first, torch.rand(n, 2, generator=generator), False).carry
        zs.append(carry[0][:, 0].clone())
    new = torch.stack([a != b for a, b in zip(zs[1:], zs, strict=False)])
    assert new[:, :100].all(), "an episode begins with noise of its own"
    first_hold = new[:, 100:].float().argmax(0) + 1
    weights = torch.tensor([1, 1 / 4, 1 / 9, 1 / 16])
    shares = torch.stack([(first_hold == k).float().mean() for k in (1, 2, 3, 4)])
    assert torch.allclose(shares, weights / weights.sum(), atol=0.02) and first_hold.max() == 4


def test_rows_of_weights_have_length_one_and_norms_theirs():
    agent = advance(agent_of("td3", "weight_projection=true", "norm=layer"), 14)
    assert agent.progress["updates"] > 1
    for network in (agent.policy, agent.critics):
        for layer in network.modules():
            if isinstance(layer, torch.nn.Linear):
                assert torch.allclose(layer.weight.norm(dim=1), torch.tensor(1.0), atol=1e-6)
            elif isinstance(layer, torch.nn.LayerNorm):
                assert (layer.weight.square() + layer.bias.square()).sum().item() == pytest.approx(8, rel=1e-5)


def test_keys_of_the_losses():
    agent = agent_of("sac", "target_std=0.2", "initial_alpha=0.05", "actor_every=3", "actor.lr_scale=0.5")
    assert agent.target_entropy == pytest.approx(torch.distributions.Normal(0.0, 0.2).entropy().item(), rel=1e-6)
    assert agent.log_alpha.exp().item() == pytest.approx(0.05)
    rates = [group["lr"] for group in agent.optimizer.param_groups]
    assert rates == [rates[1] / 2, rates[1], rates[1]] and len(agent.optimizer.param_groups[2]["params"]) == 1
    advance(agent, 4)
    moved = {}
    for _ in range(6):  # each with one update
        before = agent.policy.head.weight.detach().clone()
        advance(agent, 1)
        moved[agent.progress["updates"]] = not torch.equal(before, agent.policy.head.weight)
    assert moved == {update: update % 3 == 0 for update in moved} and len(moved) == 6


def test_a_joint_batch_has_moments_of_both_halves():
    agents = [advance(agent_of("sac", "norm=batch", f"joint_batch={joint}"), 9) for joint in ("false", "true")]
    batch = agents[0].memory.transitions(32, 1, 0.9)
    far = batch._replace(next_obs=batch.next_obs + 5)
    q = [[agent.present_q(x, x.action).detach() for x in (batch, far)] for agent in agents]
    assert torch.equal(*q[0]) and not torch.allclose(*q[1])


def test_actor_and_critic_have_networks_and_sights_of_their_own():
    agent = agent_of("td3", "actor.hidden_dims=[5]", "critic={hidden_dims: [6,7], norm: rms, activation: tanh}")
    assert agent.policy.head.in_features == 5 and not agent.actor_norms
    assert agent.critics.networks[0].head.in_features == 7
    space = gym.spaces.Dict({"obs": gym.spaces.Box(-1, 1, (2,)), "state": gym.spaces.Box(-1, 1, (3,))})
    assert [*parts_of(space, ("obs",), "actor")] == ["obs"] and parts_of(space, None, "actor") is space
    assert "has no part 'stat'; did you mean state?" in refusal(parts_of, space, ("stat",), "critic")
    assert "this environment's has only one" in refusal(agent_of, "td3", "critic.obs=[state]")


# --- the agents of the house


ALL = {
    "sac": (*FLASH, "noise_hold=3"),
    "td3": ("norm=batch", "joint_batch=true", "bins=11", "weight_projection=true", "normalize_reward=true",
            "noise_hold=3", "critic.lr_scale=2", "blocks=1"),
    "tqc": (*SMALL, "recipe=flash", "bins=null", "prioritised=true", "n_step=2"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ALL)
def test_2n_steps_are_n_and_a_resume_and_n(kind):
    straight, half = advance(agent_of(kind, *ALL[kind]), 20), advance(agent_of(kind, *ALL[kind]), 14)
    assert half.progress["updates"] > 1 and half.engine.name == "eager"
    resumed = advance(continued(half, agent_of(kind, *ALL[kind])), 6)
    state = resumed.state_dict()
    assert all(torch.equal(state[name], x) for name, x in straight.state_dict().items())
    assert "torso.0.mean" in " ".join(state) and not torch.equal(state["policy.torso.0.mean"], torch.zeros(3))
    one, other = straight.reward_scale.state_dict(), resumed.reward_scale.state_dict()
    assert one["largest"] > 0 and all(torch.equal(other[name], x) for name, x in one.items())
    assert all(map(torch.equal, straight.memory.columns_written(), resumed.memory.columns_written()))


def test_play_and_export_use_running_moments():
    player = untrained("Pendulum-v1:sac", *SMALL[:-1], *FLASH[len(SMALL) :], "blocks=1").agent
    obs = torch.randn(6, 3)
    mode = player.policy.mode(obs)
    assert torch.allclose(mode[:1], player.policy.mode(obs[:1]), atol=1e-6), "no row depends on another"
    decide = decider(player.policy)
    assert torch.allclose(decide(obs, (), None).action, mode, atol=1e-6)
    state = {name: x.clone() for name, x in player.policy.state_dict().items()}
    sight = player.saliency(obs[0].numpy(), "greedy")
    assert abs(sight.action[""]).max() > 0
    assert all(torch.equal(state[name], x) for name, x in player.policy.state_dict().items())


REFUSED = {
    "sac noise_hold=0": "noise_hold must be at least 1, not 0",
    "sac actor_every=0": "actor_every must be at least 1, not 0",
    "sac joint_batch=true": "joint_batch has no effect without batch norm",
    "sac norm=batch batch_size=1": "norm: batch needs a batch_size of 2 or more",
    "sac bin_range=3": "bin_range has no effect on critics of one value; set bins",
    "sac bins=11 value_scale=popart": "value_scale: popart scales values that bins fix",
    "tqc bins=11": "tqc learns quantiles",
    "sac blocks=1": "blocks have one width: actor has hidden_dims [256, 256]",
    "sac noise_hold=3 noise_correlation=0.5": "both make noise last",
    "sac target_std=0.2 target_entropy=-1": "set the same thing",
    "sac recipe=flsh": "recipe takes flash, crossq or null, not 'flsh'",
    "td3 recipe=flash": "recipe belongs to sac and tqc",
    "td3 critic.lr_scale=0": "critic.lr_scale must be above 0, not 0",
    "ppo bins=11": "bins belongs to ",
}


@pytest.mark.parametrize("words", REFUSED)
def test_each_refusal_is_a_line(words):
    variant, *overrides = words.split()
    assert REFUSED[words] in refusal(load_config, "Pendulum-v1", variant, overrides)


def test_kernels_refuse_by_name():
    for word in ("norm=rms", "actor_every=2", "normalize_reward=true", "critic.hidden_dims=[8]"):
        line = refusal(agent_of, "sac", word, "engine=fused_cpu")
        assert f"it does not support {word.partition('=')[0].partition('.')[0]}" in line
