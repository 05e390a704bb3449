"""TD3 and TQC: losses by hand, a whole step in float64, worlds that are known, exact resume, refusals, one look."""

import probe_envs as probes
import pytest
import torch
from driven import advance, agent_for, continued
from probe_envs import GAMMA, choices
from refusals import refusal
from torch import nn
from untrained_runs import untrained
from worlds import driven

from stride.agents.sac import SAC
from stride.agents.td3 import TD3, actor_loss, smoothed
from stride.agents.tqc import TQC, truncated
from stride.config import schema
from stride.config.loader import load_config
from stride.utils.counter_rng import normal

USUAL = {"n_envs": 8, "max_timesteps": 10**6, "gamma": GAMMA, "hidden_dims": (32,), "buffer_size": 4000}
USUAL |= {"batch_size": 64, "learning_starts": 100, "train_freq": 4, "gradient_steps": 4, "policy_lr": 1e-2, "tau": 0.1}
AGENTS = {
    "sac": (SAC, schema.SACConfig, {"ent_coef": 0.01}),
    "td3": (TD3, schema.TD3Config, {"action_noise": 0.5}),
    "tqc": (TQC, schema.TQCConfig, {"ent_coef": 0.01, "quantiles": 5, "drop_quantiles": 1}),
}
DDPG = {"actor_every": 1, "n_critics": 1, "target_noise": 0.0, "noise_correlation": 0.85}
PRIORITISED = {"n_step": 2, "prioritised": True, "priority_beta": 1.0}
MEMORIES = {"plain": {}, "prioritised": PRIORITISED, "popart": {"value_scale": "popart"}}


def made(kind, world=probes.Aimed, **options):
    agent, config, own = AGENTS[kind]
    return driven(agent(config(**{**USUAL, **own, **options}), world(8)))


# --- losses


def test_the_parts_of_losses_by_hand():
    action, z = torch.tensor([0.0, 0.9, -0.2]), torch.tensor([1.0, 2.0, -9.0])
    assert smoothed(action, z, 0.2, 0.5).tolist() == pytest.approx([0.2, 1.0, -0.7])
    assert torch.equal(smoothed(action, z, 0.0, 0.5), action)
    assert actor_loss(torch.tensor([[1.0, 4.0]])).item() == -2.5
    q = torch.tensor([[[5.0, 1.0, 9.0]], [[2.0, 8.0, 0.0]]])
    assert truncated(q, 1).tolist() == [[0.0, 1.0, 2.0, 5.0]] and truncated(q, 0).shape == (1, 6)


# --- one whole step, with plain layers in float64


def doubled(module):
    """[(weight, bias)] of its layers in their order."""
    layers = [part for part in module.modules() if isinstance(part, nn.Linear)]
    return [tuple(p.detach().double().requires_grad_() for p in (x.weight, x.bias)) for x in layers]


def answer(layers, *inputs):
    x = torch.cat([part.double() for part in inputs], -1)
    for weight, bias in layers[:-1]:
        x = (x @ weight.T + bias).relu()
    return x @ layers[-1][0].T + layers[-1][1]


def soft_action(layers, obs, uniform):
    mean, log_std = answer(layers, obs).chunk(2, -1)
    z = normal(uniform).double()
    x = mean + log_std.exp() * z
    log_prob = torch.distributions.Normal(mean, log_std.exp()).log_prob(x) - (1 - x.tanh() ** 2).log()
    return x.tanh(), log_prob.sum(-1)


def stepped(layers, loss, lr):
    """Plain descent."""
    flat = [p for pair in layers for p in pair]
    gradients = torch.autograd.grad(loss, flat, retain_graph=True)
    return [p - lr * g for p, g in zip(flat, gradients, strict=True)]


def assert_is(module, expected):
    parts = [p for pair in doubled(module) for p in pair]
    assert all((p - x).abs().max() < 1e-6 for p, x in zip(parts, expected, strict=True))


def critics_of(module, obs, action):
    """[n, B, ...] of copies, and the copies."""
    copies = [doubled(network) for network in module.networks]
    return torch.stack([answer(copy, obs, action).squeeze(-1) for copy in copies]), copies


def drawn(agent):
    """Transitions that do not weigh the same."""
    batch = agent.memory.transitions(64, 1, GAMMA)
    return batch._replace(weight=torch.rand(64))


PLAIN = {"optimizer": "sgd", "policy_lr": 0.1, "hidden_dims": (16, 16)}


@pytest.mark.parametrize("moves_actor", [False, True])
def test_a_step_of_td3_in_float64(moves_actor):
    agent = advance(made("td3", **PLAIN), 4)
    agent.progress["updates"] = 7 if moves_actor else 8
    batch, z = drawn(agent), 3 * torch.randn(64, 1)
    actor, target_actor = doubled(agent.policy), doubled(agent.target_policy)
    noise = (0.2 * z.double()).clamp(-0.5, 0.5)
    next_action = (answer(target_actor, batch.next_obs).tanh() + noise).clamp(-1, 1)
    next_q, targets = critics_of(agent.target, batch.next_obs, next_action)
    y = (batch.reward + batch.discount * next_q.amin(0)).detach()
    q, critics = critics_of(agent.critics, batch.obs, batch.action)
    expected = [stepped(copy, (batch.weight * (q[i] - y).square()).mean() / 2, 0.1) for i, copy in enumerate(critics)]
    policy_loss = -answer(critics[0], batch.obs, answer(actor, batch.obs).tanh()).mean()
    moved = stepped(actor, policy_loss, 0.1 if moves_actor else 0.0)
    agent.update(batch, z)
    assert_is(agent.policy, moved)
    for network, copy in zip(agent.critics.networks, expected, strict=True):
        assert_is(network, copy)
    for target, old, new in zip(
        (agent.target_policy, *agent.target.networks), (target_actor, *targets), (moved, *expected), strict=True
    ):
        flat = [p for pair in old for p in pair]
        assert_is(target, [p + moves_actor * 0.1 * (x - p) for p, x in zip(flat, new, strict=True)])


def test_a_step_of_tqc_in_float64():
    agent = advance(made("tqc", n_critics=3, ent_coef=None, **PLAIN), 4)
    batch, u = drawn(agent), torch.rand(2, 64, 1)
    actor, alpha = doubled(agent.policy), agent.log_alpha.detach().double().exp()
    next_action, log_prob = soft_action(actor, batch.next_obs, u[1])
    next_q, _ = critics_of(agent.target, batch.next_obs, next_action)
    kept = next_q.permute(1, 0, 2).reshape(64, 15).sort(1).values[:, :12] - alpha * log_prob[:, None]
    y = (batch.reward[:, None] + batch.discount[:, None] * kept).detach()
    q, critics = critics_of(agent.critics, batch.obs, batch.action)
    error = y[None, :, None] - q[..., None]
    tau = ((torch.arange(5).double() + 0.5) / 5)[:, None]
    huber = torch.where(error.abs() <= 1, error.square() / 2, error.abs() - 0.5)
    loss = (batch.weight[:, None, None] * (tau - (error < 0).double()).abs() * huber).mean()
    expected = [stepped(copy, loss, 0.1) for copy in critics]
    action, log_prob = soft_action(actor, batch.obs, u[0])
    value = torch.stack([answer(copy, batch.obs, action) for copy in critics]).mean((0, 2)) - alpha * log_prob
    moved = stepped(actor, -value.mean(), 0.1)
    log_alpha = agent.log_alpha.item() + 0.1 * (log_prob - 1).mean().item()
    agent.update(batch, u)
    for network, copy in zip(agent.critics.networks, expected, strict=True):
        assert_is(network, copy)
    assert_is(agent.policy, moved)
    assert agent.log_alpha.item() == pytest.approx(log_alpha, abs=1e-6)


# --- worlds


class Delayed(probes.DelayedReward):
    """Two steps, reward 0, then 1, whatever is done: Q = gamma, then 1."""

    action_space = probes.Aimed.action_space


def values(agent, *seen):
    with torch.no_grad():
        q = agent.critics(torch.tensor(seen)[:, None], torch.zeros(len(seen), 1))
    return (q.mean(-1) if q.dim() == 3 else q).flatten().tolist()


@pytest.mark.parametrize("kind", AGENTS)
@pytest.mark.parametrize("options", MEMORIES.values(), ids=MEMORIES)
def test_values_are_of_what_follows(kind, options):
    agent = advance(made(kind, Delayed, **options), 75)
    assert values(agent, 0.0, 1.0) == pytest.approx([GAMMA, 1.0] * len(agent.critics.networks), abs=0.1)
    if options is PRIORITISED:
        priorities = agent.memory.priorities.state_dict()["leaves"]
        assert len(set(priorities[priorities > 0].tolist())) > 10


@pytest.mark.parametrize(
    ("kind", "options"), [("td3", {}), ("td3", DDPG), ("td3", {"normalize_obs": "rolling"}), ("tqc", {})],
    ids=["td3", "ddpg", "normalized", "tqc"],
)  # fmt: skip
def test_they_aim(kind, options):
    assert choices(advance(made(kind, **options), 75).policy, 0) == pytest.approx([0.5], abs=0.15)


def test_td3_acts_with_noise_and_at_random_until_learning_starts():
    agent = made("td3", learning_starts=64, action_noise=0.3, train_freq=8)
    assert [agent.policy.at_random for _ in range(3) if advance(agent, 1)] == [True, False, False]
    obs, u = torch.zeros(4000, 1), torch.rand(4000, 1, generator=torch.Generator().manual_seed(1))
    nn.init.zeros_(agent.policy.head.weight), nn.init.zeros_(agent.policy.head.bias)
    action = agent.policy.act(obs, (), None, u, False).action
    assert action.std().item() == pytest.approx(0.3, abs=0.01) and action.abs().max() <= 1
    assert agent.policy.explain(obs[:1], (), None).distribution["std"].item() == pytest.approx(0.3)


# --- the agents of the house


RESUMED = {
    "td3": ("Pendulum-v1:td3", "noise_correlation=0.5", "actor_every=3", "action_noise=lin_0.2"),
    "tqc": ("Pendulum-v1:tqc", "value_scale=popart"),
    "sac": ("Pendulum-v1:sac",),
}
SMALL = ("n_envs=2", "train_freq=8", "gradient_steps=1", "updates_per_step=0.3", "batch_size=8", "learning_starts=20")
SMALL += ("hidden_dims=[16]", "buffer_size=400", "normalize_obs=true", "prioritised=true", "n_step=3")


@pytest.mark.parametrize("kind", RESUMED)
def test_2n_steps_are_n_and_a_resume_and_n(kind):
    words = (*RESUMED[kind], *SMALL)
    straight, half = advance(agent_for(*words), 20), advance(agent_for(*words), 10)
    assert half.engine.name == "eager" and half.progress["updates"] % 3, "between two updates of the actor"
    resumed = advance(continued(half, agent_for(*words)), 10)
    assert resumed.progress == straight.progress
    state, (one, other) = resumed.state_dict(), (straight.memory, resumed.memory)
    assert all(torch.equal(state[name], x) for name, x in straight.state_dict().items())
    assert torch.equal(one.priorities.state_dict()["leaves"], other.priorities.state_dict()["leaves"])
    assert all(map(torch.equal, one.columns_written(), other.columns_written()))


REFUSED = {
    "td3 actor_every=0": "actor_every must be at least 1, not 0",
    "td3 n_critics=0": "n_critics must be at least 1, not 0",
    "td3 target_noise=-1": "target_noise must be at least 0, not -1",
    "tqc drop_quantiles=25": "drop_quantiles 25 leaves none of the 25 quantiles; use at most 24",
    "tqc quantiles=1": "quantiles must be at least 2 in tqc",
    "td3 policy_delay=2": "in Stride it is called actor_every",
    "tqc engine=graphed": "engine: graphed needs device: cuda",
}


@pytest.mark.parametrize("words", REFUSED)
def test_each_refusal_is_a_line(words):
    variant, word = words.split()
    assert REFUSED[words] in refusal(load_config, "Pendulum-v1", variant, [word])


@pytest.mark.parametrize("kind", ["td3", "tqc"])
def test_discrete_actions_are_refused_and_the_player_shows_what_it_can(kind):
    config_id = f"Pendulum-v1:{kind}"
    assert "td3 need actions with bounds" in refusal(agent_for, config_id, "env_id=CartPole-v1", "spec={}")
    player, obs = untrained(config_id, spread=0.02).agent, torch.tensor([1.0, 0.0, 0.0]).numpy()
    opinion, sight = player.explain(obs), player.saliency(obs, "greedy")
    assert opinion.value is None and opinion.distribution["mean"] * 2 == pytest.approx(player.act(obs))
    assert abs(sight.action[""]).max() > 0 and sight.value is None
