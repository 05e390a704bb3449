"""A learning rate that follows the KL divergence: its rule, on the engines that know it, resumed."""

import json
import math

import pytest
import torch
from fused_cases import ROLLOUT, SMALL
from same_as_eager import Case, assert_learns_as_eager, assert_resumes, on_eager, on_fused_cpu, train

from stride.agents.engines.fused_gpu.engine import why_not_fused
from stride.agents.engines.plan.on_policy import PPORecipe
from stride.agents.experience.nouns import Final
from stride.agents.ppo import followed_rate
from stride.config.loader import from_plain, load_config, to_plain
from stride.utils.user_error import UserError

PENDULUM, CARTPOLE = "Pendulum-v1:ppo", "CartPole-v1:ppo"
FAR, NEAR = "policy_lr=kl_0.5", "policy_lr=kl_1e-6"  # divergences that short trainings stay below, and exceed
HALVING = "plateau={metric:train/roll/ep_rew/mean,scale:{policy_lr:0.5}}"
CASES = {
    "fused_cpu, rises": Case(PENDULUM, "fused_cpu", (*SMALL, FAR), rounds=((1, 1), (1, 2)), resumes=(2, 3)),
    "fused_cpu, falls": Case(CARTPOLE, "fused_cpu", (*SMALL, NEAR, "target_kl=1e-5"), resumes=(2, 3)),
    "eager": Case(PENDULUM, "eager", (*SMALL, FAR, "normalize_obs=true"), resumes=(2, 3)),
    "graphed": Case(CARTPOLE, "graphed", (*ROLLOUT, FAR), 0.0, ((0, 2), (0, 3)), resumes=(3, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_engines_choose_the_rate_of_eager_and_a_resumed_run_that_of_one_never_stopped(name):
    case = CASES[name]
    agent = assert_learns_as_eager(case)
    rate = float(agent.live.policy_lr)
    assert rate > 3.1e-4 if FAR in case.overrides else rate < 2.9e-4
    assert_resumes(case)


@pytest.mark.parametrize(
    ("rate", "kl", "expected"),
    [
        (3e-4, 0.0161, 2e-4),
        (3e-4, 0.0159, 3e-4),
        (3e-4, 0.0041, 3e-4),
        (3e-4, 0.0039, 4.5e-4),
        (3e-4, math.nan, 3e-4),
        (9e-3, 0.0, 1e-2),
        (1.2e-6, 1.0, 1e-6),
        (0.0, 0.0, 1e-6),
    ],
)
def test_the_rule(rate, kl, expected):
    assert float(followed_rate(torch.tensor(rate), torch.tensor(kl), 0.008)) == pytest.approx(expected)


def test_the_optimizer_gets_what_was_chosen_and_only_updates_that_were_made_count():
    """With target_kl at its lowest, the first update that exceeds it ends the rollout: 0 and its own divergence."""
    agent = on_eager(PENDULUM, *SMALL, NEAR, "target_kl=1e-6", "normalize_advantages=rollout")
    train(agent, 1)
    assert bool(agent.stopped) and 2 <= int(agent.kl_sums[1]) < 6
    train(agent, 1)
    assert [group["lr"] for group in agent.optimizer.param_groups] == [pytest.approx(2e-4)]
    agent.poisoned.fill_(True)
    before = agent.live.policy_lr
    collector = agent.collector
    agent.learn(agent.memory.rollout(collector.carry, Final(collector.obs, collector.carry)))
    assert agent.live.policy_lr == before


def test_a_run_that_had_another_rate_goes_on_from_it():
    checkpoint = {"optimizer_states": [{"param_groups": [{"lr": 0.005}]}]}
    plain, follows = (on_fused_cpu(CARTPOLE, *SMALL, word) for word in ("policy_lr=0.005", NEAR))
    plain.on_save_checkpoint(checkpoint)
    follows.on_load_checkpoint(checkpoint)
    assert follows.live.policy_lr == 0.005


@pytest.mark.parametrize(
    ("config_id", "words", "line"),
    [
        (CARTPOLE, "policy_lr=kl_x", r"policy_lr: after kl_ comes a number above 0, for example kl_0.008, not 'kl_x'"),
        (CARTPOLE, "policy_lr=kl_0", r"above 0"),
        (CARTPOLE, "gamma=kl_0.1", r"gamma: only policy_lr of ppo can follow the KL divergence \(kl_0.1\)"),
        ("CartPole-v1:dqn", "policy_lr=kl_0.1", r"policy_lr: only policy_lr of ppo"),
        ("CartPole-v1:reinforce", "policy_lr=kl_0.1", r"policy_lr: only policy_lr of ppo"),
        (CARTPOLE, "policy_lr=kl_0.1 batch_size=1.0 n_epochs=1", r"at least 2 updates per rollout"),
        (CARTPOLE, "policy_lr=kl_0.1 target_kl=0.05", r"needs target_kl=0.1 or more: 0.05"),
        (CARTPOLE, "policy_lr=kl_0.1 optimizer=laprop lr_warmup=5", r"use lr_warmup=0"),
        (CARTPOLE, f"policy_lr=kl_0.1 {HALVING}", r"would undo that"),
    ],
)
def test_what_it_cannot_do_is_refused(config_id, words, line):
    with pytest.raises(UserError, match=line):
        load_config(*config_id.split(":"), words.split())


def test_a_config_holds_it_as_text_and_kernels_of_a_gpu_leave_it_to_graphs():
    config = load_config("CartPole-v1", "ppo", ["policy_lr=kl_0.008"])
    plain = to_plain(config)
    assert type(plain["policy_lr"]) is str and from_plain(json.loads(json.dumps(plain))) == config
    agent = on_eager(CARTPOLE, *SMALL, "policy_lr=kl_0.008")
    assert why_not_fused(agent.config, agent, PPORecipe) == "it does not support policy_lr: kl_0.008"
