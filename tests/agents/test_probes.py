"""Agents in worlds whose values and best actions are known: what is wrong shows here, every switch in seconds."""

from typing import ClassVar

import gymnasium as gym
import probe_envs as probes
import pytest
import torch
from probe_envs import GAMMA, choices, opinions
from worlds import Scripted, driven, random_tables, weights

from stride.agents.dqn import DQN
from stride.agents.ppo import PPO
from stride.agents.pqn import PQN
from stride.agents.q_learning import QLearning
from stride.agents.reinforce import REINFORCE
from stride.agents.sac import SAC
from stride.config.schema import DQNConfig, PPOConfig, PQNConfig, QLearningConfig, REINFORCEConfig, SACConfig

BASE = {"n_envs": 8, "gamma": GAMMA, "max_timesteps": 10**6}
COMMON = {**BASE, "n_steps": 16, "hidden_dims": (32,)}
PLAIN = {"policy_lr": 3e-2, "normalize_returns": "off"}
KINDS = {  # iterations until a world is learnt; what was chosen otherwise pulls less
    "ppo": (PPO, PPOConfig, {"policy_lr": 1e-2}, 15),
    "lagging": (PPO, PPOConfig, {"policy_lr": 1e-2, "lag": 1}, 19),
    "reinforce": (REINFORCE, REINFORCEConfig, PLAIN, 60),
    "with critic": (REINFORCE, REINFORCEConfig, {**PLAIN, "policy_targets": "advantages"}, 120),
}
SHARED = {"share_trunk": True, "normalize_obs": "rolling"}
LESSONS = {
    "constant": (probes.ConstantReward, {}),
    "seen": (probes.SeenReward, {}),
    "seen, shared": (probes.SeenReward, SHARED),
    "delayed": (probes.DelayedReward, {}),
    "endless": (probes.Endless, {}),  # the limit cuts, it does not end: as an end it would be 2.71 at most
    "chosen": (probes.ChosenReward, {}),
    "matched": (probes.MatchedReward, {}),
    "matched, shared": (probes.MatchedReward, SHARED),
    "continuous": (probes.Aimed, {"policy_kwargs": {"log_std_init": -1.0}}),
    "several choices": (probes.Paired, {}),
}
SWITCHES = {
    "ppo": [{"normalize_advantages": how, "clip_range_vf": 0.2} for how in ("rollout", "off")],
    "reinforce": [
        {"returns_type": kind, "normalize_returns": how}
        for kind in ("mc:rtg", "mc:episode")
        for how in ("batch", "rollout")
    ],
}
CASES = [(kind, *lesson) for kind in KINDS for lesson in LESSONS.values() if kind != "reinforce" or lesson[0].right]
CASES += [(kind, probes.ChosenReward, options) for kind, switches in SWITCHES.items() for options in switches]


def made(kind, world, **options):
    agent, config, usual, iterations = KINDS[kind]
    if agent is PPO and "share_trunk" in options:  # policy and value pull at one trunk
        usual, iterations = {**usual, "policy_lr": 3e-3}, iterations * 10 // 3
    return agent(config(**{**COMMON, **usual, **options}), world(8)), iterations * (1 + (world is probes.Endless))


def named(case):
    kind, world, options = case
    slow = [pytest.mark.slow] if kind == "lagging" and world.right else []
    return pytest.param(*case, id="-".join([kind, world.__name__, *map(str, options.values())]), marks=slow)


@pytest.mark.parametrize(("kind", "world", "options"), [named(case) for case in CASES])
def test_what_a_world_teaches_is_learnt(kind, world, options):
    policy = driven(*made(kind, world, **options)).policy
    if world.worth:
        assert opinions(policy, *world.worth).value.tolist() == pytest.approx([*world.worth.values()], abs=0.05)
    elif world is probes.Aimed:
        assert choices(policy, 0) == pytest.approx([0.5], abs=0.1)
    elif world is probes.Paired:
        assert choices(policy, 0) == [[1, 1]]
    else:
        chances = opinions(policy, *world.right).distribution["probability"]
        assert all(row[action] > 0.95 for row, action in zip(chances, world.right.values(), strict=True))


def test_reinforce_learns_nothing_from_a_rollout_without_an_end():
    never = torch.zeros(16, 8, dtype=torch.bool)
    agent, _ = made("reinforce", lambda n: Scripted(torch.ones(16, n), never, never))
    before = weights(agent.policy)
    driven(agent, 2)
    assert torch.equal(before, weights(agent.policy)) and not agent.broken
    assert all(torch.tensor(list(agent.metrics.flush().values())).isfinite())


def test_the_paddle_catches_what_it_follows():
    """From what is seen alone, wherever the dot begins."""
    world, columns = probes.PixelCatch(), set()
    for seed in range(30):
        picture, _ = world.reset(seed=seed)
        assert picture.shape == (1, 16, 16) and (picture == 255).sum() == 8
        dot, paddle = picture[0, 0, ::2].argmax(), picture[0, -1, ::2].argmax()
        columns.add(int(dot))
        for step in range(7):
            picture, reward, ended, cut, _ = world.step(1 + int(dot > paddle) - int(dot < paddle))
            paddle = picture[0, -1, ::2].argmax() if step < 6 else paddle
            assert ended == (step == 6) and not cut and reward == ended
    assert len(columns) >= 7


# --- action values, from a replay memory or not

REPLAY = {**BASE, "hidden_dims": (32,), "buffer_size": 4000, "batch_size": 64, "learning_starts": 100, "train_freq": 4}
OF_DQN = {
    "plain": {"double_q": False},
    "double": {},
    "dueling": {"dueling": True},
    "3 steps": {"n_step": 3},
    "prioritised": {"prioritised": True, "priority_beta": 1.0},
    "quantiles": {"quantiles": 5},
    "squares": {"huber": None},
    "polyak": {"tau": 0.5, "target_freq": 16},
    "normalized": {"normalize_obs": "rolling"},
    "everything": {"dueling": True, "n_step": 2, "prioritised": True, "quantiles": 5, "replay_storage": "memmap"},
}


def dqn(world, **options):
    rest = {"policy_lr": 3e-3, "gradient_steps": 4, "target_freq": 64, "epsilon": 0.5}
    return DQN(DQNConfig(**{**REPLAY, **rest, **options}), world(8))


def pqn(world, **options):
    rest = {"n_steps": 16, "hidden_dims": (32,), "policy_lr": 1e-2, "epsilon": 0.5}
    return PQN(PQNConfig(**{**BASE, **rest, **options}), world(8))


def check_lesson(policy, world, **tolerance):
    """Values as the world has them, and the best action; where there is a right one it pays 1."""
    worth = world.worth or dict.fromkeys(world.right, 1)
    assert opinions(policy, *worth).value.tolist() == pytest.approx([*worth.values()], **tolerance)
    assert not world.right or choices(policy, *world.right) == [*world.right.values()]


@pytest.mark.parametrize("world", [probes.SeenReward, probes.DelayedReward, probes.MatchedReward, probes.Endless])
@pytest.mark.parametrize("options", OF_DQN.values(), ids=OF_DQN)
def test_dqn_learns_what_a_world_teaches(options, world):
    """Endless: V = 1 + gamma V = 10; as an end it would be 2.71 at most. Half of each rollout crosses a limit."""
    if world is probes.Endless:
        options = {"policy_lr": 1e-2, "target_freq": 32, **options, **({"target_freq": 16} if "tau" in options else {})}
    agent = driven(dqn(world, **options), 90 if world is probes.Endless else 50)
    check_lesson(agent.policy, world, **({"rel": 0.04} if world is probes.Endless else {"abs": 0.08}))


@pytest.mark.parametrize("normalize_obs", [False, "rolling"])
@pytest.mark.parametrize(
    ("world", "return_lambda"),  # all alike where an episode is one step
    [
        (probes.SeenReward, 0.65),
        (probes.MatchedReward, 0.65),
        *((probes.DelayedReward, lam) for lam in (0.0, 0.65, 1.0)),
    ],
)
def test_pqn_learns_what_a_world_teaches(world, return_lambda, normalize_obs):
    policy = driven(pqn(world, return_lambda=return_lambda, normalize_obs=normalize_obs), 15).policy
    if world is probes.MatchedReward:
        assert choices(policy, 1, -1) == [1, 0]
    else:
        check_lesson(policy, world, abs=0.08)


@pytest.mark.parametrize("return_lambda", [0.0, 0.65, 1.0])
def test_pqn_goes_on_after_a_time_limit(return_lambda):
    check_lesson(driven(pqn(probes.Endless, return_lambda=return_lambda), 45).policy, probes.Endless, rel=0.04)


# --- continuous actions


class AimedAtSeen(probes.Aimed):
    """The target is half of what is seen."""

    def observe(self):
        return self.coin

    def reward(self, action):
        return 1 - (action[:, 0] - self.coin / 2).square()


def sac(world, **options):
    rest = {"policy_lr": 1e-2, "gradient_steps": 4, "tau": 0.1, "ent_coef": 0.01}
    return SAC(SACConfig(**{**REPLAY, **rest, **options}), world(8))


def critic_values(agent, seen, action):
    with torch.no_grad():
        return agent.critics(torch.tensor([[float(seen)]]), torch.tensor([[float(action)]])).flatten().tolist()


@pytest.mark.parametrize(
    "options",
    [{}, {"ent_coef": None, "target_entropy": -2.0}, {"noise_correlation": 0.9}, {"normalize_obs": "rolling"}],
    ids=["fixed", "learnt", "correlated", "normalized"],
)
def test_sac_aims_by_what_it_sees(options):
    agent = driven(sac(AimedAtSeen, **options), 75)
    assert choices(agent.policy, 1, -1) == pytest.approx([0.5, -0.5], abs=0.15)
    assert critic_values(agent, 1, 0.5) == pytest.approx([1, 1], abs=0.1)
    assert critic_values(agent, 1, -0.5) == pytest.approx([0, 0], abs=0.25)


def test_the_entropy_aimed_at_is_one_nat_less_for_each_action_unless_said():
    assert sac(AimedAtSeen, ent_coef=None).target_entropy == -1
    assert sac(AimedAtSeen, ent_coef=None, target_entropy=-0.5).target_entropy == -0.5


@pytest.mark.slow
def test_the_learnt_temperature_keeps_the_entropy():
    agent = driven(sac(AimedAtSeen, ent_coef=None, target_entropy=-0.5, tau=0.05), 300)
    obs = torch.tensor([1.0, -1.0]).repeat(256)[:, None]
    u = torch.rand(512, 1, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        entropy = -agent.policy.draw(obs, u)[1].mean().item()
    assert entropy == pytest.approx(-0.5, abs=0.15)


# --- tables


def q_learning(world, **options):
    class Counted(world):
        """What is seen as a number: -1, 0, 1 and 2 are 0 to 3."""

        right: ClassVar = {seen + 1: action for seen, action in world.right.items()}
        worth: ClassVar = {seen + 1: value for seen, value in world.worth.items()} or dict.fromkeys(right, 1)

        def __init__(self, num_envs):
            super().__init__(num_envs)
            self.observation_space = gym.spaces.Discrete(4)

        def sight(self):
            return self.observe().long() + 1

    return QLearning(QLearningConfig(**{**BASE, "policy_lr": 0.2, "epsilon": 0.5, **options}), Counted(8)), Counted


@pytest.mark.parametrize(
    ("world", "iterations", "options", "tolerance"),
    [
        (probes.ConstantReward, 20, {}, {"abs": 1e-3}),
        (probes.SeenReward, 30, {}, {"abs": 1e-3}),
        (probes.DelayedReward, 40, {}, {"abs": 1e-3}),
        (probes.Endless, 120, {}, {"rel": 1e-2}),
        (probes.MatchedReward, 200, {}, {"abs": 0.05}),
        (probes.MatchedReward, 200, {"visits_power": 0.6, "policy_lr": 1.0}, {"abs": 0.05}),
        (probes.MatchedReward, 200, {"initial_q": 3.0, "epsilon": 0.1}, {"abs": 0.05}),
    ],
)
@pytest.mark.parametrize("n_steps", [1, 4])
def test_a_table_learns_what_a_world_teaches(world, iterations, options, tolerance, n_steps):
    agent, counted = q_learning(world, n_steps=n_steps, **options)
    values = driven(agent, iterations).policy.table
    assert values[[*counted.worth]].amax(-1).tolist() == pytest.approx([*counted.worth.values()], **tolerance)
    assert values[[*counted.right]].argmax(-1).tolist() == [*counted.right.values()]


# --- whatever is seen and done

NUMBERS, CHOICE, CHOICES = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(3), gym.spaces.MultiDiscrete([2, 3])
DONE = [(kind, space) for kind in KINDS for space in (CHOICE, CHOICES, NUMBERS)] + [("dqn", CHOICE), ("sac", NUMBERS)]


@pytest.mark.parametrize(("kind", "space"), DONE)
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
def test_every_kind_of_observation_and_action_runs(kind, space, named, normalized):
    options = {"normalize_obs": "rolling"} if normalized else {}

    def world(n):
        return Scripted(*random_tables(50, n, 0), action_space=space, named=named)

    if kind in KINDS:
        agent, _ = made(kind, world, normalize_reward=normalized, **options)
    else:
        agent = {"dqn": dqn, "sac": sac}[kind](world, **options)
    before = weights(agent.policy)
    driven(agent, 2 if kind in KINDS else 8)
    assert agent.progress["env_steps"] == 256
    assert agent.progress["updates"] == (32 if isinstance(agent, PPO) else 2 if isinstance(agent, REINFORCE) else 20)
    assert not torch.equal(before, weights(agent.policy)) and weights(agent.policy).isfinite().all()
    row = agent.metrics.flush()
    assert {"train/loss/policy", "train/loss/q"} & row.keys() and all(torch.tensor(list(row.values())).isfinite())
