"""Intrinsic rewards: novelty, scale and value against plain code, and a sea whose treasure no walk by chance finds."""

from collections import Counter

import pytest
import torch
from driven import advance, agent_for, continued
from refusals import refusal
from replay_log import same
from tiny_runs import tiny_run
from torch import nn
from worlds import weights

from stride.agents.engines.graphed import why_not_graphed
from stride.agents.experience.minibatches import minibatches
from stride.agents.experience.nouns import Final
from stride.agents.networks.cnn import Image
from stride.agents.networks.heads import Gaussian
from stride.agents.trained.loading import load_run

ROLLOUT = ("n_envs=4", "n_steps=16", "batch_size=32", "n_epochs=2", "policy_lr=0.01", "hidden_dims=16", "engine=eager")
CUT = "max_episode_steps=13"  # so that some episodes of CartPole are cut, others end
KINDS = ("rnd", "icm", "counts")
SMALL = "exploration.width=16"


def exploring(kind, *words, algorithm="CartPole-v1:ppo"):
    block = () if kind == "none" else (f"exploration.kind={kind}", SMALL)
    return agent_for(algorithm, *ROLLOUT, *block, *words)


def a_rollout(agent):
    """The next rollout, of which nothing is learnt."""
    agent.collect(agent.config.n_steps)
    return agent.memory.rollout((), Final(agent.collector.obs, agent.collector.carry))


def a_cut_rollout(agent):
    """The next one in which an episode ends and another is cut."""
    rollouts = (a_rollout(agent) for _ in range(100))
    return next(x for x in rollouts if x.row.terminated.any() and x.row.truncated.any())


def layers(network):
    return [layer for layer in network.modules() if isinstance(layer, nn.Linear)]


def plain(x, network):
    """Linear layers in float64, relu between them."""
    *inner, outer = layers(network)
    for layer in inner:
        x = torch.clip(x @ layer.weight.double().T + layer.bias.double(), min=0)
    return x @ outer.weight.double().T + outer.bias.double()


def seen(novelty, obs):
    """Observations in float64, normalised and clipped."""
    norm = novelty.sight.norm
    x = (obs.double() - norm.mean.double()) / (norm.var.double() + 1e-8).sqrt()
    return x.clip(-5, 5)


def plain_errors(novelty, batch):
    """(the novelty of each row [B], what is minimised []) in float64."""
    x, next_x = seen(novelty, batch.obs), seen(novelty, batch.next_obs)
    share = batch.known.double() / batch.known.sum()
    if not hasattr(novelty, "inverse_model"):
        error = ((plain(next_x, novelty.predictor) - plain(next_x, novelty.target)) ** 2).mean(-1)
        return error, (error * share).sum()
    features, next_features = (plain(inputs, novelty.features) for inputs in (x, next_x))
    features, next_features = (
        (y - y.mean(-1, keepdim=True)) / (y.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()
        for y in (features, next_features)
    )
    action = batch.action.double()
    if not isinstance(novelty.head, Gaussian):
        action = torch.eye(2, dtype=torch.float64)[batch.action]
    predicted = plain(torch.cat([features, action], -1), novelty.forward_model)
    error = ((predicted - next_features) ** 2).mean(-1) / 2
    told = plain(torch.cat([features, next_features], -1), novelty.inverse_model)
    if isinstance(novelty.head, Gaussian):
        spread = torch.distributions.Normal(told, novelty.head.log_std.double().exp())
        log_prob = spread.log_prob(action).sum(-1)
    else:
        log_prob = torch.log_softmax(told, -1)[torch.arange(len(told)), batch.action]
    return error, (0.2 * error * share - 0.8 * log_prob * share).sum()


@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [("rnd", "CartPole-v1:ppo"), ("icm", "CartPole-v1:ppo"), ("icm", "Pendulum-v1:ppo")],
)
def test_novelty_loss_and_one_update_are_those_of_plain_code(kind, algorithm):
    agent = advance(exploring(kind, algorithm=algorithm), 2)
    explorer = agent.explorer
    explorer.advantage(a_rollout(agent), 0.9)
    experience = explorer.experience
    judged = explorer.novelty.judge(experience)
    batch = next(iter(minibatches(experience, 64, agent.key(99, 1))))
    assert algorithm == "Pendulum-v1:ppo" or not batch.known.all()
    error, loss = plain_errors(explorer.novelty, batch)
    value = plain(seen(explorer.novelty, batch.obs), explorer.critic)[:, 0]
    loss = loss + ((value - batch.target.double()) ** 2).mean() / 2
    learnt = [p for group in explorer.optimizer.param_groups for p in group["params"]]
    gradients = torch.autograd.grad(loss, learnt)
    norm = torch.cat([g.flatten() for g in gradients]).double().norm()
    before = [p.detach().clone() for p in learnt]
    target = weights(explorer.novelty.target) if kind == "rnd" else None
    explorer.update(batch, explorer.optimizer)
    rows, _ = torch.sort(judged.flatten().double())
    torch.testing.assert_close(rows, torch.sort(error)[0], rtol=1e-4, atol=1e-6)
    for p, g, old in zip(learnt, gradients, before, strict=True):
        clipped = g.double() * min(1.0, agent.config.max_grad_norm / norm)
        torch.testing.assert_close(p.grad.double(), clipped, rtol=1e-3, atol=1e-6)
        assert not p.grad.any() or not torch.equal(p, old)
    assert target is None or torch.equal(target, weights(explorer.novelty.target))


@pytest.mark.parametrize("episodic", [False, True])
def test_intrinsic_advantages_by_hand_run_on_or_end_with_the_episode(episodic):
    agent = advance(exploring("rnd", CUT, f"exploration.episodic={episodic}", "exploration.coef=3"), 2)
    explorer, gamma, lam = agent.explorer, 0.99, 0.9
    rollout = a_cut_rollout(agent)
    paid, reward = [], explorer.reward
    explorer.reward = lambda given: paid.append(reward(given)) or paid[0]
    advantage = explorer.advantage(rollout, lam)
    row, [r] = rollout.row, paid
    assert not r[row.terminated].any() and r[~row.terminated].all()

    def value(obs):
        return plain(seen(explorer.novelty, obs), explorer.critic).item()

    for world in range(4):
        running = 0.0
        for t in reversed(range(16)):
            following = rollout.next.obs[world] if t == 15 else row.obs[t + 1, world]
            worth, flows = value(following), 1.0
            if episodic and row.truncated[t, world]:
                worth, flows = value(rollout.final.obs[row.slot[t, world], world]), 0.0
            elif episodic and row.terminated[t, world]:
                worth = flows = 0.0
            delta = r[t, world].item() + gamma * worth - value(row.obs[t, world])
            running = delta + gamma * lam * flows * running
            assert advantage[t, world].item() == pytest.approx(3 * running, abs=1e-4)


@pytest.mark.parametrize("episodic", [False, True])
def test_novelty_is_that_of_where_an_action_led_divided_by_the_deviation_of_its_discounted_sum(episodic):
    agent = exploring("rnd", CUT, f"exploration.episodic={episodic}", "exploration.gamma=0.9")
    returns, running = [], torch.zeros(4, dtype=torch.float64)
    for _ in range(3):
        rollout = a_cut_rollout(agent)
        row = rollout.row
        scaled = agent.explorer.reward(rollout)
        novelty = torch.zeros(16, 4, dtype=torch.float64)
        for t, world in (~row.terminated).nonzero().tolist():
            led_to = rollout.next.obs[world] if t == 15 else row.obs[t + 1, world]
            if row.truncated[t, world]:
                led_to = rollout.final.obs[row.slot[t, world], world]
            novelty[t, world] = agent.explorer.novelty.error(row.obs[t, world], row.action[t, world], led_to).item()
        for t in range(16):
            running = novelty[t] + 0.9 * running
            returns.append(running)
            if episodic:
                running = running * ~(row.terminated[t] | row.truncated[t])
        deviation = torch.stack(returns).std(correction=0)
        torch.testing.assert_close(scaled.double(), novelty / deviation, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bits", [0, 32])
def test_visits_are_counted_and_paid_by_their_root(bits):
    agent = exploring("counts", f"exploration.bits={bits}", algorithm="FrozenLake-v1:ppo")
    visits, paid, novelty = Counter(), [], agent.explorer.novelty
    judge = novelty.judge
    novelty.judge = lambda experience: paid.append(judge(experience)) or paid[-1]
    for _ in range(3):
        agent.explorer.reward(a_rollout(agent))
        experience = agent.explorer.experience
        visits.update(experience.next_obs[experience.known].tolist())
        for t, world in experience.known.nonzero().tolist():
            n = visits[int(experience.next_obs[t, world])]
            assert paid[-1][t, world].item() == pytest.approx(n**-0.5)
    assert len(visits) > 4 and novelty.describe()["train/explore/counters"] == len(visits)


def test_simhash_lets_neighbours_share_a_counter_and_exact_hashes_do_not():
    agent = exploring("counts", "exploration.bits=16")
    novelty = agent.explorer.novelty
    agent.explorer.reward(a_rollout(agent))
    x = agent.memory.table.obs.flatten(0, 1)
    near, far = x + 1e-5 * x.std(0), x.flip(0)
    shared = [(novelty.cells(x) == novelty.cells(other)).float().mean().item() for other in (near, far)]
    assert shared[0] > 0.95 > 0.5 > shared[1]
    novelty.bits = 0
    assert not (novelty.cells(x) == novelty.cells(near)).any() and torch.equal(novelty.cells(x), novelty.cells(x + 0.0))
    assert torch.equal(novelty.cells(torch.zeros(1, 4)), novelty.cells(-torch.zeros(1, 4)))


def test_pictures_are_read_as_the_policy_reads_its_own_and_every_pixel_is_normalised():
    small = ("policy_kwargs.cnn=small", "policy_kwargs.features=16", "resize_obs=10")
    agent = exploring("icm", *small, algorithm="CartPole-v1:ppo_pixels")
    networks = agent.explorer.networks
    assert len([x for x in networks.modules() if isinstance(x, Image)]) == 2
    advance(agent, 2)
    first = agent.metrics.flush()["train/loss/novelty"]
    obs = agent.memory.table.obs
    sight = agent.explorer.novelty.sight
    assert sight.norm.count == 2 * 64 and sight(obs).abs().max() <= 5 and len(sight.norm.mean) == obs[0, 0].numel()
    advance(agent, 6)
    assert agent.metrics.flush()["train/loss/novelty"] < first


CASES = [*((kind, "CartPole-v1:ppo") for kind in KINDS), ("icm", "CartPole-v1:pqn"), ("counts", "CartPole-v1:pqn")]


@pytest.mark.parametrize(("kind", "algorithm"), CASES)
def test_twice_n_iterations_are_n_a_checkpoint_and_n_more_to_the_bit(kind, algorithm):
    straight = advance(exploring(kind, CUT, algorithm=algorithm), 6)
    halved = advance(exploring(kind, CUT, algorithm=algorithm), 3)
    other = advance(continued(halved, exploring(kind, CUT, algorithm=algorithm)), 3)
    assert torch.equal(weights(other.policy), weights(straight.policy))
    assert same(other.explorer.state_dict(), straight.explorer.state_dict())
    assert not same(halved.explorer.state_dict(), straight.explorer.state_dict())


@pytest.mark.parametrize(("kind", "algorithm"), [("rnd", "CartPole-v1:ppo"), ("counts", "CartPole-v1:pqn")])
def test_with_no_weight_the_policy_is_that_of_no_exploration_to_the_bit(kind, algorithm):
    """Neither draws, nor weights, nor what the memory holds is touched; with a weight the policy is another."""
    alone, idle, moved = (
        advance(exploring(name, *words, algorithm=algorithm), 3)
        for name, words in (("none", ()), (kind, ("exploration.coef=0",)), (kind, ()))
    )
    assert torch.equal(weights(idle.policy), weights(alone.policy))
    assert torch.equal(idle.memory.table.reward, alone.memory.table.reward)
    assert not torch.equal(weights(moved.policy), weights(alone.policy)) and (moved.memory.table.reward == 1).all()
    assert moved.policy.state_dict().keys() == alone.policy.state_dict().keys()


def test_what_has_explored_is_played_like_any_other(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    run = tiny_run(**{"exploration.kind": "rnd", "exploration.width": 16})
    agent = load_run(run.id, "last").agent
    assert agent.act([0.0, 0.0, 0.0, 0.0]) in (0, 1)


REFUSED = [
    ("CartPole-v1:ppo", "exploration=rnd", "exploration takes a mapping or null, not 'rnd'"),
    ("CartPole-v1:ppo", "exploration.kind=rdn", "takes rnd, icm, counts, not 'rdn'; did you mean rnd?"),
    ("CartPole-v1:ppo", "exploration.coeff=1", "exploration has no 'coeff'; did you mean coef?"),
    ("CartPole-v1:ppo", "exploration.coef=-1", "exploration.coef must be at least 0, not -1.0"),
    ("CartPole-v1:pqn", "exploration.bits=63", "exploration.bits must be at least 0 and at most 62, not 63"),
    ("CartPole-v1:ppo", "exploration.kind=icm lag=1", "use lag=0"),
    ("Pendulum-v1:sac", "exploration.kind=rnd", "exploration belongs to ppo and pqn"),
    ("CartPole-v1:dqn", "exploration.kind=rnd", "exploration belongs to ppo and pqn"),
    ("CartPole-v1:dreamer", "exploration.kind=rnd", "exploration belongs to ppo and pqn"),
    ("CartPole-v1:ppo", "exploration.kind=rnd engine=fused_cpu", "not support exploration; engine=auto takes eager"),
    ("CartPole-v1:pqn", "exploration.kind=rnd engine=fused_cpu", "not support exploration; engine=auto takes eager"),
]


@pytest.mark.parametrize(("algorithm", "words", "line"), REFUSED)
def test_who_cannot_explore_says_so(algorithm, words, line):
    assert line in refusal(agent_for, algorithm, *words.split())


def test_engine_auto_takes_eager_and_says_why():
    agent = agent_for("CartPole-v1:ppo", "exploration.kind=counts")
    assert agent.engine.name == "eager" and agent.engine.reason == "it does not support exploration"
    assert "it does not support exploration" in str(why_not_graphed(agent.config, agent))


# --- a sea of 14 x 14 squares: by chance one dive in 16,384 finds the treasure, and each step towards it costs

ROWS, DIVES = 14, 3_000


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, "none"])
def test_a_treasure_that_chance_does_not_find(kind):
    block = () if kind == "none" else (f"exploration.kind={kind}",)
    agent = agent_for("bsuite/DeepSea-v0:ppo", f"env_kwargs.size={ROWS}", "seed=1", "engine=eager", *block)
    best_share = 0.0
    while agent.progress["env_steps"] < DIVES * ROWS and best_share < 0.5:
        advance(agent, 1)
        treasures = (agent.memory.table.reward > 0.5).sum().item()
        best_share = max(best_share, treasures * ROWS / agent.config.rollout_size)
    assert best_share < 0.1 if kind == "none" else best_share >= 0.5
