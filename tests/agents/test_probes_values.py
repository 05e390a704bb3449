"""Agents that learn action values, on worlds whose values are known by heart: every switch, each in seconds."""

import gymnasium as gym
import pytest
import torch
from probe_envs import ChosenReward, ConstantReward, DelayedReward, Endless, MatchedReward, Probe, SeenReward
from worlds import Scripted, driven, random_tables, weights

from stride.agents.dqn import DQN
from stride.agents.pqn import PQN
from stride.agents.q_learning import QLearning
from stride.agents.sac import SAC
from stride.config.schema import DQNConfig, PQNConfig, QLearningConfig, SACConfig


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """These networks are too small to share."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


GAMMA = 0.9
COMMON = {"n_envs": 8, "gamma": GAMMA, "max_timesteps": 10**6}
REPLAY = {"hidden_dims": (32,), "buffer_size": 4000, "batch_size": 64, "learning_starts": 100, "train_freq": 4}
SWITCHES = {
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
EVERY_SWITCH = pytest.mark.parametrize("options", SWITCHES.values(), ids=SWITCHES)


def dqn(world, **options):
    rest = {"policy_lr": 3e-3, "gradient_steps": 4, "target_freq": 64, "epsilon": 0.5}
    return DQN(DQNConfig(**{**COMMON, **REPLAY, **rest, **options}), world(8))


def values(agent, *seen):
    obs = torch.tensor(seen, dtype=torch.float32)[:, None]
    with torch.no_grad():
        return agent.policy.network.mean(obs).amax(-1).tolist()


def answers(agent, *seen):
    obs = torch.tensor(seen, dtype=torch.float32)[:, None]
    first, noise = torch.ones(len(seen), dtype=torch.bool), torch.zeros(len(seen), agent.policy.draws)
    with torch.no_grad():
        return agent.policy.act(obs, agent.policy.initial(len(seen)), first, noise, True).action.view(-1).tolist()


@EVERY_SWITCH
def test_dqn_knows_what_is_seen(options):
    assert values(driven(dqn(SeenReward, **options), 50), 1, -1) == pytest.approx([1, -1], abs=0.08)


@EVERY_SWITCH
def test_dqn_discounts(options):
    assert values(driven(dqn(DelayedReward, **options), 50), 0, 1) == pytest.approx([GAMMA, 1], abs=0.08)


@EVERY_SWITCH
def test_dqn_goes_on_after_a_time_limit(options):
    """V = 1 + gamma V = 10; as an end it would be 2.71 at most. Half of each rollout crosses a limit."""
    rest = {"policy_lr": 1e-2, "target_freq": 32, **options}
    rest |= {"target_freq": 16} if "tau" in options else {}
    assert values(driven(dqn(Endless, **rest), 90), 0) == pytest.approx([1 / (1 - GAMMA)], rel=0.04)


@EVERY_SWITCH
def test_dqn_chooses_by_what_it_sees(options):
    agent = driven(dqn(MatchedReward, **options), 50)
    assert answers(agent, 1, -1) == [1, 0]
    assert values(agent, 1, -1) == pytest.approx([1, 1], abs=0.1)


@pytest.mark.parametrize("updates_per_step", [0.25, 1.0])
def test_dqn_learns_at_a_pace_of_its_own(updates_per_step):
    agent = driven(dqn(ChosenReward, updates_per_step=updates_per_step), 25)
    assert answers(agent, 0) == [1]
    assert agent.progress["updates"] == int((25 * 32 - 96) * updates_per_step)


# From rollouts


def pqn(world, **options):
    rest = {"n_steps": 16, "hidden_dims": (32,), "policy_lr": 1e-2, "epsilon": 0.5}
    return PQN(PQNConfig(**{**COMMON, **rest, **options}), world(8))


NORMALIZED = pytest.mark.parametrize("normalize_obs", [False, "rolling"])
LAMBDAS = pytest.mark.parametrize("return_lambda", [0.0, 0.65, 1.0])  # all alike where an episode is one step


@NORMALIZED
def test_pqn_knows_what_is_seen_and_chooses_by_it(normalize_obs):
    assert values(driven(pqn(SeenReward, normalize_obs=normalize_obs), 15), 1, -1) == pytest.approx([1, -1], abs=0.08)
    assert answers(driven(pqn(MatchedReward, normalize_obs=normalize_obs), 15), 1, -1) == [1, 0]


@LAMBDAS
@NORMALIZED
def test_pqn_discounts(return_lambda, normalize_obs):
    agent = driven(pqn(DelayedReward, return_lambda=return_lambda, normalize_obs=normalize_obs), 15)
    assert values(agent, 0, 1) == pytest.approx([GAMMA, 1], abs=0.08)


@LAMBDAS
def test_pqn_goes_on_after_a_time_limit(return_lambda):
    agent = driven(pqn(Endless, return_lambda=return_lambda, policy_lr=1e-2), 45)
    assert values(agent, 0) == pytest.approx([1 / (1 - GAMMA)], rel=0.04)


# Continuous actions


class Aimed(Probe):
    """One step, -(a - target)^2 for a real action."""

    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.action_space = gym.spaces.Box(-1, 1, (1,))

    def reward(self, action):
        return -(action[:, 0] - 0.5).square()


class AimedAtSeen(Aimed):
    """The target is half of what is seen."""

    def observe(self):
        return self.coin

    def reward(self, action):
        return 1 - (action[:, 0] - self.coin / 2).square()


class Unmoved(Aimed):
    """Reward 1 for ever whatever is done, cut every 3 steps."""

    length, ends_by_limit, time_limit = 3, True, 3

    def reward(self, action):
        return torch.ones(self.num_envs)


def sac(world, **options):
    rest = {"policy_lr": 1e-2, "gradient_steps": 4, "tau": 0.1, "ent_coef": 0.01}
    return SAC(SACConfig(**{**COMMON, **REPLAY, **rest, **options}), world(8))


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
    assert answers(agent, 1, -1) == pytest.approx([0.5, -0.5], abs=0.15)
    assert critic_values(agent, 1, 0.5) == pytest.approx([1, 1], abs=0.1)
    assert critic_values(agent, 1, -0.5) == pytest.approx([0, 0], abs=0.25)


@pytest.mark.slow
def test_sac_goes_on_after_a_time_limit():
    agent = driven(sac(Unmoved, ent_coef=1e-4, tau=0.05), 300)
    assert critic_values(agent, 0, 0.0) == pytest.approx([10, 10], rel=0.05)


def test_the_entropy_aimed_at_is_one_nat_less_for_each_action_unless_told():
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


# Tables


def counted(world):
    """The same world, what is seen told as a number: -1, 0, 1 and 2 are 0 to 3."""

    class Counted(world):
        def __init__(self, num_envs):
            super().__init__(num_envs)
            self.observation_space = gym.spaces.Discrete(4)
            self.out = self.out._replace(obs=self.out.obs[:, 0].long(), final_obs=self.out.final_obs[:, 0].long())
            self.seen, self.final = torch.zeros(2, num_envs, 1)

        def reset(self, seed):
            self.out, plain = self.out._replace(obs=self.seen), self.out
            super().reset(seed)
            self.out = plain
            return self._tell()

        def step(self, action):
            self.out, plain = self.out._replace(obs=self.seen, final_obs=self.final), self.out
            super().step(action)
            self.out = plain
            self.out.final_obs.copy_(self.final[:, 0].long() + 1)
            self._tell()
            return self.out

        def _tell(self):
            self.out.obs.copy_(self.seen[:, 0].long() + 1)
            return self.out.obs

    return Counted


def q_learning(world, **options):
    return QLearning(QLearningConfig(**{**COMMON, "policy_lr": 0.2, "epsilon": 0.5, **options}), counted(world)(8))


def table(agent, *seen):
    return agent.policy.table[torch.tensor(seen) + 1].amax(-1).tolist()


STEPS = pytest.mark.parametrize("n_steps", [1, 4])


@STEPS
def test_a_table_knows_constants_what_is_seen_and_discounting(n_steps):
    assert table(driven(q_learning(ConstantReward, n_steps=n_steps), 20), 0) == pytest.approx([1], abs=1e-3)
    assert table(driven(q_learning(SeenReward, n_steps=n_steps), 30), 1, -1) == pytest.approx([1, -1], abs=1e-3)
    assert table(driven(q_learning(DelayedReward, n_steps=n_steps), 40), 0, 1) == pytest.approx([0.9, 1], abs=1e-3)


@STEPS
def test_a_table_goes_on_after_a_time_limit(n_steps):
    assert table(driven(q_learning(Endless, n_steps=n_steps), 120), 0) == pytest.approx([10], rel=1e-2)


@pytest.mark.parametrize("options", [{}, {"visits_power": 0.6, "policy_lr": 1.0}, {"initial_q": 3.0, "epsilon": 0.1}])
def test_a_table_chooses_by_what_it_sees(options):
    agent = driven(q_learning(MatchedReward, **options), 200)
    assert agent.policy.table[[0, 2]].argmax(-1).tolist() == [0, 1]
    assert table(agent, -1, 1) == pytest.approx([1, 1], abs=0.05)


# Every kind of world


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("kind", [dqn, sac])
def test_every_kind_of_observation_runs(kind, named):
    space = gym.spaces.Box(-1, 1, (2,)) if kind is sac else gym.spaces.Discrete(3)
    agent = kind(lambda n: Scripted(*random_tables(50, n, 0), action_space=space, named=named))
    before = weights(agent.policy)
    driven(agent, 8)
    assert agent.progress["env_steps"] == 8 * 32 and agent.progress["updates"] == 5 * 4
    assert not torch.equal(before, weights(agent.policy)) and weights(agent.policy).isfinite().all()
    row = agent.metrics.flush()
    assert "train/loss/q" in row and all(torch.tensor(list(row.values())).isfinite())
