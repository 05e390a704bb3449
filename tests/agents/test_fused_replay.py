"""DQN and SAC in the fused engine against the eager one, autograd in float64 and the memory's own transitions."""

import copy
import math

import pytest
import torch
from driven import advance, agent_for, continued, pairwise

from stride.agents.base import NumbersError
from stride.agents.engines.fused_cpu.learn import ReplayLearn
from stride.agents.engines.fused_cpu.play import AttachedPlay
from stride.agents.experience.nouns import tree_map
from stride.utils.user_error import UserError

SMALL = ("n_envs=3", "train_freq=16", "gradient_steps=4", "buffer_size=300", "learning_starts=40", "policy_lr=1e-3")
SMALL += ("max_episode_steps=30",)
SHARED = {
    "hidden_dims": ("[64,64]", "[32]", "[16,48,33]"),
    "activation": ("relu", "tanh"),
    "normalize_obs": ("false", "true", "static"),
    "batch_size": ("64", "50", "7"),
    "optimizer": ("adam", "adamw"),
    "max_grad_norm": ("null", "0.5"),
    "gamma": ("0.99", "0.9"),
}
DQN = pairwise(
    {
        "config": ("Acrobot-v1:dqn", "MountainCar-v0:dqn"),
        **SHARED,
        "double_q": ("false", "true"),
        "dueling": ("false", "true"),
        "n_step": ("1", "3"),
        "huber": ("1.0", "null"),
        "target_freq": ("7", "1000"),
        "tau": ("1.0", "0.3"),
    }
)
SAC = pairwise(
    {
        "config": ("Pendulum-v1:sac", "MountainCarContinuous-v0:sac"),
        **SHARED,
        "ent_coef": ("null", "0.1"),
        "tau": ("0.005", "1.0"),
        "noise_correlation": ("0.0", "0.5"),
    }
)
CASES = DQN + SAC


def overrides_of(case):
    return [*SMALL, "weight_decay=0.01", *(f"{key}={value}" for key, value in case.items() if key != "config")]


def named(case):
    return "-".join(str(value) for value in case.values())


def everything(agent):
    """What is learnt, the targets behind it, and the moments."""
    state = agent.optimizer.state
    moments = [state[p][k] for p in learnt(agent) for k in ("exp_avg", "exp_avg_sq", "step")]
    return [x.detach().clone() for x in (*learnt(agent), *agent.target.parameters(), *moments)]


def learnt(agent):
    return [p for group in agent.optimizer.param_groups for p in group["params"]]


def assert_close(mine, theirs, tolerance):
    for a, b in zip(everything(mine), everything(theirs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=tolerance)


def assert_equal(mine, theirs):
    assert all(torch.equal(a, b) for a, b in zip(everything(mine), everything(theirs), strict=True))


@pytest.mark.parametrize("case", CASES, ids=named)
def test_every_pair_of_options_learns_as_eager_does(case):
    eager = agent_for(case["config"], *overrides_of(case), "engine=eager")
    fused = agent_for(case["config"], *overrides_of(case), "engine=fused_cpu")
    assert isinstance(fused.engine.learn, ReplayLearn)
    for _ in range(3):  # past the end of the ring
        advance(eager, 2)
        eager.metrics.flush()
        continued(eager, fused)  # so that a rounding in one action cannot become another path
        advance(eager, 1)
        advance(fused, 1)
        assert_close(fused, eager, 1e-5)
        told, expected = fused.metrics.flush(), eager.metrics.flush()
        assert told.keys() == expected.keys()
        for name in told:
            assert told[name] == pytest.approx(expected[name], rel=2e-3, abs=2e-4, nan_ok=True), name
        assert fused.progress == eager.progress
        mine, theirs = fused.memory, eager.memory
        assert (mine.written, mine.drawn) == (theirs.written, theirs.drawn)
        assert torch.equal(mine.slot, theirs.slot) and torch.equal(mine._cuts, theirs._cuts)
        for name in ("is_first", "terminated", "truncated", "slot"):
            assert torch.equal(getattr(mine.table, name), getattr(theirs.table, name))
        assert fused.collector.window.summary() == pytest.approx(eager.collector.window.summary(), rel=1e-5)
        for name in ("obs", "action", "reward"):
            torch.testing.assert_close(getattr(mine.table, name), getattr(theirs.table, name), rtol=1e-4, atol=1e-4)


def in_double(agent, batch):
    """Autograd of the agent's own update on this batch, everything in float64: a gradient for each parameter."""
    config = agent.config
    for part in [m for m in agent.modules() if hasattr(m, "encoder")]:
        part.encoder.forward = lambda obs, forward=part.encoder.forward: forward(obs).double()
    singles = [copy.deepcopy(m) for m in agent.modules() if hasattr(m, "leaf")]
    agent.double()
    for module, single in zip([m for m in agent.modules() if hasattr(m, "leaf")], singles, strict=True):
        module.leaf = single.leaf  # statistics stay as they are: what is compared begins behind them
    batch = tree_map(lambda x: x.double() if x.is_floating_point() else x, batch)._replace(
        obs=batch.obs, next_obs=batch.next_obs
    )
    agent.descend = lambda optimizer, loss, max_norm: (loss.backward(), torch.zeros(1))[1]
    if config.algo_id == "dqn":
        agent.update(batch, None)
    else:
        agent.update(batch, agent.update_noise(1)[0])
    return [p.grad for p in learnt(agent)]


@pytest.mark.parametrize("case", CASES, ids=named)
def test_the_gradient_is_that_of_autograd_in_double_precision(case):
    if case["activation"] == "relu":
        case = {**case, "hidden_dims": "[16]"}  # at a kink of a relu two right answers differ; few units, few kinks
    given = overrides_of(case)
    fused = advance(agent_for(case["config"], *given, "engine=fused_cpu"), 4)
    exact = continued(fused, agent_for(case["config"], *given, "engine=eager"))
    steps = getattr(exact.config, "n_step", 1)
    (batch,) = exact.memory.draws(1, exact.config.batch_size, steps, exact.live.gamma)
    fused.renew_statistics = lambda: None
    expected = in_double(exact, batch)
    fused.engine.learn.learn(fused, 1)
    flat = torch.from_numpy(fused.engine.learn.bound.frame.held["gradient"])
    places = {id(place.parameter): place for place in fused.engine.learn.bound.recipe.shape.layout.tensors}
    largest = max(g.abs().max().item() for g in expected)
    for parameter, gradient in zip(learnt(fused), expected, strict=True):
        mine = places[id(parameter)].view(flat)
        assert (mine - gradient).abs().max().item() <= 1e-6 * largest


@pytest.mark.parametrize("config", ["CartPole-v1:dqn", "Pendulum-v1:sac"])
def test_fifty_updates_stay_with_torch(config):
    keys = ("learning_starts=60", "train_freq=100", "gradient_steps=50", "batch_size=128")
    eager = advance(agent_for(config, *keys, "engine=eager"), 1)
    fused = advance(agent_for(config, *keys, "engine=fused_cpu"), 1)
    assert fused.progress["updates"] == 50
    apart = torch.cat(
        [(mine - theirs).abs().flatten() for mine, theirs in zip(learnt(fused), learnt(eager), strict=True)]
    )
    assert apart.quantile(0.999) <= 2e-7
    # 50 steps of 1e-3: where a gradient is almost 0 Adam sees noise. Eager's own SAC, given its minibatches in another
    # order, ends up to 5e-6 away from itself
    assert apart.max() <= (5e-6 if config.endswith("dqn") else 1e-5)


@pytest.mark.parametrize("config", ["CartPole-v1:dqn", "Pendulum-v1:sac"])
@pytest.mark.parametrize("batch_size", [64, 200, 300])
def test_one_and_two_threads_are_equal_to_the_last_bit(config, batch_size):
    keys = (*SMALL, f"batch_size={batch_size}")
    one, two = (agent_for(config, *keys, f"threads={n}") for n in (1, 2))
    advance(one, 12)
    advance(two, 1)
    two.engine.learn.bound.pace.choose = lambda: 2  # else it is as many as pay
    advance(two, 11)
    assert two.engine.learn.bound.workers.threads == 2 and one.engine.learn.bound.workers.threads == 1
    assert_equal(one, two)
    assert torch.equal(one.memory.table.obs, two.memory.table.obs)


@pytest.mark.parametrize("config", ["CartPole-v1:dqn", "Pendulum-v1:sac"])
def test_a_continued_run_is_the_same_run_and_an_engine_may_change(config):
    straight = advance(agent_for(config, *SMALL, "engine=fused_cpu"), 8)
    half = advance(agent_for(config, *SMALL, "engine=fused_cpu"), 4)
    resumed = advance(continued(half, agent_for(config, *SMALL, "engine=fused_cpu")), 4)
    assert_equal(straight, resumed)
    eager = continued(half, agent_for(config, *SMALL, "engine=eager"))
    assert_equal(half, eager)
    assert_close(advance(eager, 1), advance(half, 1), 1e-5)


@pytest.mark.parametrize("config", ["CartPole-v1:dqn", "Pendulum-v1:sac"])
def test_updates_alone_on_gymnasiums_worlds(config):
    keys = (*SMALL, "env_backend=gym")
    eager, fused = (agent_for(config, *keys, f"engine={name}") for name in ("eager", "auto"))
    assert isinstance(fused.engine.play, AttachedPlay) and isinstance(fused.engine.learn, ReplayLearn)
    assert fused.engine.name == "fused_cpu" and fused.engine.reason.startswith("updates only")
    assert_close(advance(fused, 5), advance(eager, 5), 2e-5)


@pytest.mark.parametrize(("steps", "worlds", "rows"), [(1, 1, 120), (1, 3, 300), (3, 2, 220), (5, 4, 420)])
def test_what_is_drawn_are_the_memorys_transitions(steps, worlds, rows):
    keys = (f"n_step={steps}", f"n_envs={worlds}", f"buffer_size={rows}", "train_freq=9", "max_episode_steps=7")
    agent = agent_for("CartPole-v1:dqn", *keys, "learning_starts=9e5", "batch_size=40", "engine=fused_cpu")
    for _ in range(12):
        advance(agent, 2)
        memory, bound = agent.memory, agent.engine.learn.bound
        if not memory.ready(steps + 1):
            continue
        before = memory.drawn
        assert list(bound.draws(30, 0.9)) == [30]
        found = [bound.frame.held[name] for name in ("place", "following", "reward", "discount")]
        place, following, reward, discount = (torch.from_numpy(x[: 30 * 40].copy()) for x in found)
        memory.drawn = before
        exact = memory.transitions(30 * 40, steps, 0.9)
        obs, final = memory.table.obs.flatten(0, 1), memory.final.obs.flatten(0, 1)
        next_obs = torch.where((following < 0)[:, None], final[(~following).clamp(min=0)], obs[following.clamp(min=0)])
        assert torch.equal(obs[place], exact.obs) and torch.equal(next_obs, exact.next_obs)
        assert torch.equal(discount, exact.discount)
        torch.testing.assert_close(reward, exact.reward, rtol=1e-6, atol=0)
        assert torch.equal(memory.table.action.flatten()[place], exact.action)


def test_a_checkpoint_holds_tensors_of_their_own():
    agent = advance(agent_for("Pendulum-v1:sac", *SMALL, "engine=fused_cpu"), 4)
    checkpoint = {"state_dict": agent.state_dict(), "optimizer_states": [agent.optimizer.state_dict()]}
    assert not agent.policy.torso[0].weight.is_contiguous()  # kept transposed, a view of all parameters
    agent.on_save_checkpoint(checkpoint)
    moments = [x for each in checkpoint["optimizer_states"][0]["state"].values() for x in each.values()]
    for tensor in (*checkpoint["state_dict"].values(), *moments):
        assert tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    assert len(moments) == 3 * len(learnt(agent))


@pytest.mark.parametrize("config", ["CartPole-v1:dqn", "Pendulum-v1:sac"])
@pytest.mark.parametrize("field", ["reward", "obs", "parameter"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_reported_and_reaches_no_weight(config, field, value):
    agent = advance(agent_for(config, *SMALL, "env_backend=gym", "engine=fused_cpu"), 4)
    collect = agent.engine.play.collect

    def poisoned(agent, steps):
        collect(agent, steps)
        if field != "parameter":
            getattr(agent.memory.table, field)[(agent.memory.written - 3) % agent.memory.rows, 1] = value

    agent.engine.play.collect = poisoned
    if field == "parameter":
        with torch.no_grad():
            learnt(agent)[-2].view(-1)[0] = value
    before = [p.detach().clone() for p in learnt(agent)]
    with pytest.raises(NumbersError, match="iteration 5"):
        advance(agent, 1)
    for mine, old in zip(learnt(agent), before, strict=True):
        assert torch.equal(mine.nan_to_num(), old.nan_to_num())


@pytest.mark.parametrize("config", ["CartPole-v1:dqn", "Pendulum-v1:sac"])
@pytest.mark.parametrize("updates", [4, 7])
def test_a_loss_that_is_not_finite_is_named_whether_or_not_its_update_is_told_of(config, updates):
    agent = advance(agent_for(config, *SMALL, "engine=fused_cpu"), 6)
    agent.progress["updates"] = updates  # every eighth of DQN's is told of
    agent.engine.learn.bound.frame.held["sums"][0] = math.nan
    with pytest.raises(NumbersError, match="the loss stopped being a number"):
        advance(agent, 1)


@pytest.mark.parametrize(
    ("config", "overrides", "named"),
    [
        ("CartPole-v1:dqn", ["prioritised=true"], "prioritised"),
        ("CartPole-v1:dqn", ["quantiles=5"], "quantiles"),
        ("CartPole-v1:dqn", ["optimizer=sgd"], "optimizer: sgd"),
        ("Pendulum-v1:sac", ["hidden_dims=[]"], "hidden_dims"),
        ("Pendulum-v1:sac", ["nan_guard=skip"], "nan_guard"),
    ],
)
def test_what_it_does_not_know_is_refused_by_name_and_auto_takes_eager(config, overrides, named):
    with pytest.raises(UserError, match=named):
        agent_for(config, *SMALL, *overrides, "engine=fused_cpu")
    agent = agent_for(config, *SMALL, *overrides)
    assert agent.engine.name == "eager" and named in agent.engine.reason
