"""On-policy agents in worlds whose values and best actions are known: what is wrong shows here, each in seconds."""

import probe_envs as probes
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from probe_envs import GAMMA, choices, opinions
from worlds import Scripted, driven, random_tables, weights

from stride.agents.ppo import PPO
from stride.agents.reinforce import REINFORCE
from stride.config.schema import PPOConfig, REINFORCEConfig

pytestmark = pytest.mark.usefixtures("one_thread")
COMMON = {"n_envs": 8, "n_steps": 16, "gamma": GAMMA, "hidden_dims": (32,), "max_timesteps": 10**6}
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(
    "space", [Discrete(3), MultiDiscrete([2, 3]), Box(-1, 1, (2,))], ids=["one", "several", "real"]
)
@pytest.mark.parametrize(
    "options", [{}, {"normalize_obs": "rolling", "normalize_reward": True}], ids=["raw", "normalized"]
)
def test_every_kind_of_observation_and_action_runs(kind, named, space, options):
    agent, _ = made(kind, lambda n: Scripted(*random_tables(50, n, 0), action_space=space, named=named), **options)
    before = weights(agent.policy)
    driven(agent, 2)
    assert agent.progress["iterations"] == 2 and agent.progress["env_steps"] == 256
    assert agent.progress["updates"] == (32 if isinstance(agent, PPO) else 2)
    assert not torch.equal(before, weights(agent.policy)) and weights(agent.policy).isfinite().all()
    row = agent.metrics.flush()
    assert "train/loss/policy" in row and all(torch.tensor(list(row.values())).isfinite())


def test_reinforce_learns_nothing_from_a_rollout_without_an_end():
    never = torch.zeros(16, 8, dtype=torch.bool)
    agent, _ = made("reinforce", lambda n: Scripted(torch.ones(16, n), never, never))
    before = weights(agent.policy)
    driven(agent, 2)
    assert torch.equal(before, weights(agent.policy)) and not agent.broken
    assert all(torch.tensor(list(agent.metrics.flush().values())).isfinite())


@pytest.mark.parametrize(("strive", "paid"), [(1, 1.0), (0, -1.0)])
def test_the_paddle_catches_what_it_follows(strive, paid):
    """From what is seen alone, wherever the dot begins; who stays never has it here."""
    world, columns = probes.PixelCatch(), set()
    for seed in range(30):
        picture, _ = world.reset(seed=seed)
        assert picture.shape == (1, 16, 16) and (picture == 255).sum() == 8
        dot, paddle = picture[0, 0, ::2].argmax(), picture[0, -1, ::2].argmax()
        if not strive and dot == paddle:
            continue
        columns.add(int(dot))
        for step in range(7):
            picture, reward, ended, cut, _ = world.step(1 + strive * int((dot > paddle) - int(dot < paddle)))
            paddle = picture[0, -1, ::2].argmax() if step < 6 else paddle
            assert ended == (step == 6) and not cut and (ended or reward == 0)
        assert reward == paid and (picture == 255).sum() == (4 if strive else 8)
    assert len(columns) >= 7
