"""SAC's losses by hand, its Gaussian against torch's own, correlated noise, and what must not get gradients."""

import math

import pytest
import torch
from driven import advance
from gymnasium.spaces import Box, Discrete
from probe_envs import Aimed
from worlds import driven

from stride.agents.networks.heads import Normal
from stride.agents.networks.squashed import Critics, SquashedPolicy, squash_correction, squashed_log_prob
from stride.agents.sac import SAC, critic_loss, soft_value, temperature_loss
from stride.config.schema import SACConfig
from stride.utils.user_error import UserError

SPACE = Box(-1, 1, (3,))


def sac(n=4, **options):
    config = {"n_envs": n, "hidden_dims": (16,), "max_timesteps": 10**5, "buffer_size": 2000, "learning_starts": 0}
    return driven(SAC(SACConfig(**{**config, **options}), Aimed(n)))


def policy(correlation=0.0, actions=2):
    return SquashedPolicy(SPACE, Box(-1, 1, (actions,)), (16,), "relu", False, None, correlation, 1)


def test_losses_by_hand():
    q = torch.tensor([[1.0, 4.0], [2.0, 3.0]])
    value = soft_value(q, torch.tensor([-1.0, 2.0]), torch.tensor(0.5))
    assert value.tolist() == [1.5, 2.0]
    assert critic_loss(q, torch.tensor([1.0, 1.0])).item() == ((0 + 9) / 2 + (1 + 4) / 2) / 2
    log_alpha = torch.tensor(0.5, requires_grad=True)
    loss = temperature_loss(log_alpha, torch.tensor([-1.0, 3.0]), -2.0)
    loss.backward()
    assert loss.item() == -0.5 * (1.0 - 2.0)
    assert log_alpha.grad == 1.0, "it shrinks while the entropy, -1, is larger than -2"


def test_log_probabilities_are_those_of_torch():
    mean, log_std, z = torch.randn(3, 50, 2, dtype=torch.float64)
    base = torch.distributions.Normal(mean, log_std.exp())
    squashed = torch.distributions.TransformedDistribution(base, torch.distributions.TanhTransform())
    action = mean + log_std.exp() * z
    expected = squashed.log_prob(action.tanh().clamp(-1 + 1e-15, 1 - 1e-15)).sum(-1)
    inside = (action.abs() < 8).all(-1)
    log_prob = squashed_log_prob(Normal(mean, log_std), z)
    torch.testing.assert_close(log_prob[inside], expected[inside], atol=1e-6, rtol=1e-6)


def test_the_correction_is_finite_where_tanh_is_one():
    x = torch.tensor([-200.0, -30.0, 0.0, 30.0, 200.0], requires_grad=True)
    y = squash_correction(x)
    y.sum().backward()
    far = [2 * math.log(2) - 2 * size for size in (200, 30)]
    assert y.tolist() == pytest.approx([*far, 0, *far[::-1]], rel=1e-4, abs=1e-6) and x.grad.isfinite().all()


def acted(acting, n, begins):
    """(actions, carries) of steps [T, n] of which those in `begins` open an episode."""
    carry, acts = acting.initial(n), []
    for k in range(6):
        noise = torch.rand(n, 1, generator=torch.Generator().manual_seed(k))
        acts.append(acting.act(torch.zeros(n, 3), carry, torch.full((n,), k in begins), noise, False))
        carry = acts[-1].carry
    return acts


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_random_actions_are_even_also_when_they_are_correlated(correlation):
    acting = policy(correlation, 1)
    acting.at_random = True
    counts = torch.histc(acted(acting, 4000, (0,))[4].action, 10, -1, 1)
    assert counts.min() > 320 and counts.max() < 480


def test_noise_keeps_its_share_and_stays_standard_normal_and_begins_anew_with_an_episode():
    z = torch.stack([act.carry[:, 0] for act in acted(policy(0.9, 1), 20000, (0, 4))])
    assert z.std(1).tolist() == pytest.approx([1] * 6, abs=0.03) and z.mean(1).abs().max() < 0.03
    following = [torch.corrcoef(z[k : k + 2])[0, 1].item() for k in range(5)]
    assert following == pytest.approx([0.9, 0.9, 0.9, 0.0, 0.9], abs=0.03)


def test_critics_side_by_side_are_networks_of_their_own():
    critics = Critics(3, SPACE, 2, (16, 8), "relu", False, None, seed=1)
    obs, action = torch.randn(5, 3), torch.randn(5, 2)
    q = critics(obs, action)
    for k in range(3):
        x = torch.cat((obs, action), -1)
        for depth, layer in enumerate(critics.networks[k].layers):
            x = x.relu() if depth else x
            x = x @ layer.weight.T + layer.bias
        torch.testing.assert_close(q[k], x[:, 0])


def test_the_policy_learns_through_the_critics_without_teaching_them():
    critics = Critics(2, SPACE, 2, (16,), "relu", False, None, seed=1)
    action = torch.randn(5, 2, requires_grad=True)
    critics(torch.randn(5, 3), action, frozen=True).sum().backward()
    assert action.grad.abs().sum() > 0 and all(p.grad is None for p in critics.parameters())


def test_an_update_is_the_three_losses_apart():
    """One backward pass over the sum gives every part the gradient of its own loss alone."""
    agent = advance(sac(n=1, train_freq=50, gradient_steps=1, policy_lr=1e-3), 1)
    batch = agent.memory.transitions(64, 1, 0.99)
    noise = torch.rand(2, 64, 1)
    together = {}
    agent.optimizer.step = lambda: together.update(
        {p: p.grad.clone() for g in agent.optimizer.param_groups for p in g["params"]}
    )
    target = {name: p.clone() for name, p in agent.target.named_parameters()}
    alpha = agent.log_alpha.detach().exp()
    with torch.no_grad():
        action, log_prob = agent.policy.draw(batch.next_obs, noise[1])
        goal = batch.reward + batch.discount * (agent.target(batch.next_obs, action).amin(0) - alpha * log_prob)
    agent.zero_grad()
    ((agent.critics(batch.obs, batch.action) - goal) ** 2).mean(-1).sum().div(2).backward()
    apart = {p: p.grad.clone() for p in agent.critics.parameters()}
    agent.zero_grad()
    action, log_prob = agent.policy.draw(batch.obs, noise[0])
    (alpha * log_prob - agent.critics(batch.obs, action).amin(0)).mean().backward()
    apart |= {p: p.grad.clone() for p in agent.policy.parameters()}
    apart[agent.log_alpha] = -(log_prob + agent.target_entropy).mean().detach()
    agent.update(batch, noise)
    assert together.keys() == apart.keys()
    for p, gradient in apart.items():
        torch.testing.assert_close(together[p], gradient, atol=1e-6, rtol=1e-4)
    for (name, p), now in zip(agent.target.named_parameters(), agent.critics.parameters(), strict=True):
        torch.testing.assert_close(p, target[name] + 0.005 * (now - target[name]))


@pytest.mark.parametrize("space", [Discrete(3), Box(-math.inf, math.inf, (2,))])
def test_discrete_and_unbounded_actions_are_refused(space):
    with pytest.raises(UserError, match="actions with bounds"):
        SquashedPolicy(SPACE, space, (16,), "relu", False, None, 0.0, 1)


def test_a_fixed_temperature_is_not_learnt():
    agent = advance(sac(ent_coef=0.2, train_freq=5), 3)
    assert agent.log_alpha == 0 and agent.metrics.flush()["train/policy/alpha"] == pytest.approx(0.2)


def test_it_acts_at_random_until_learning_starts():
    agent = sac(learning_starts=40, train_freq=5)
    states = [(agent.policy.at_random, agent.progress["updates"]) for _ in range(4) if advance(agent, 1)]
    assert states == [(True, 0), (True, 0), (False, 1), (False, 2)]
