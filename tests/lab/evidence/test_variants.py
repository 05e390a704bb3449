"""The evidence script: exact values by hand, a tiny measurement, what is kept, what failed, what the page says."""

import math
import re
from dataclasses import replace
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch

from lab.evidence import trainings
from lab.evidence.exact import (
    HIT,
    MAX_HAND_STEPS,
    STICK,
    action_probabilities,
    blackjack,
    exact_value,
    policy_value,
    read_table,
)
from lab.evidence.file import Evidence, config_hash, is_solved, summary
from lab.evidence.report import failures, not_solved, older_part
from stride.agents.engines.choice import build_agent
from stride.config.loader import load_config
from stride.envs_gym.make import make_envs

# Two states: in 0 action 0 stays for 1, action 1 goes to 1 for 0; in 1 action 0 ends for 10, action 1 slips back half
# the time (for 2) and ends else (for 4).
TABLE = {
    0: {0: [(1.0, 0, 1.0, False)], 1: [(1.0, 1, 0.0, False)]},
    1: {0: [(1.0, 0, 10.0, True)], 1: [(0.5, 0, 2.0, False), (0.5, 1, 4.0, True)]},
}


@pytest.mark.parametrize(("start", "policy", "limit", "value"), [
    ([1, 0], [[0, 1], [1, 0]], 1, 0.0),  # cut before the 10
    ([1, 0], [[0, 1], [1, 0]], 7, 10.0),  # nothing follows an end
    ([1, 0], [[0, 1], [0, 1]], 4, 4.5),  # 0 + (2 + 4) / 2 + half of another 3
    ([1, 0], [[0.5, 0.5], [1, 0]], 2, 0.5 * (1 + 0.5) + 0.5 * 10),  # sampled: stays once or twice, or goes
    ([0.25, 0.75], [[1, 0], [1, 0]], 3, 0.25 * 3 + 0.75 * 10),
])  # fmt: skip
def test_the_value_of_a_small_chain_by_hand(start, policy, limit, value):
    chain = SimpleNamespace(unwrapped=SimpleNamespace(P=TABLE, initial_state_distrib=np.array(start, float)))
    assert policy_value(read_table(chain), np.array(policy, float), limit) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize(
    ("env_id", "limit", "value"), [("FrozenLake-v1", 100, 0.7402), ("CliffWalking-v1", 100, -13.0)]
)
def test_the_known_optimum(env_id, limit, value):
    table = read_table(gymnasium.make(env_id))
    v = np.zeros(len(table.start))
    for _ in range(20_000):
        q = table.reward + table.follows @ v
        v = q.max(1)
    greedy = np.eye(q.shape[1])[q.round(9).argmax(1)]
    assert policy_value(table, greedy, limit) == pytest.approx(value, abs=5e-5)
    assert policy_value(table, greedy, 5) != pytest.approx(value, abs=0.1)  # the limit is felt
    assert (table.follows.sum(-1) <= 1 + 1e-12).all() and table.start.sum() == pytest.approx(1)


def answering(biases, env_id="FrozenLake-v1", *overrides):
    """(config, policy whose logits are these, whatever the state)."""
    config = load_config(env_id, "ppo", ["env_backend=gym", *overrides])
    policy = build_agent(config, make_envs(config, 1)).policy
    with torch.no_grad():
        policy.actor[-1].linear.weight.zero_()
        policy.actor[-1].linear.bias.copy_(torch.tensor(biases))
    return config, policy


RIGHT_OR_DOWN = [-50.0, 1.0, 1.0 + math.log(3), -50.0]


def test_a_policy_is_asked_about_every_state_greedy_or_sampled():
    """Greedy: its likeliest action; sampled: its probabilities. Observations are those of the states, not the start."""
    config, policy = answering(RIGHT_OR_DOWN)
    worlds = make_envs(config, 1)
    assert np.array_equal(action_probabilities(config, policy, worlds, 16), np.tile([0.0, 0, 1, 0], (16, 1)))
    sampled = replace(config, eval_deterministic=False)
    asked = action_probabilities(sampled, policy, worlds, 16)
    assert asked == pytest.approx(np.tile([0.0, 0.25, 0.75, 0], (16, 1)), abs=1e-6)
    table = read_table(gymnasium.make("FrozenLake-v1"))
    assert exact_value(sampled, policy) == pytest.approx(policy_value(table, asked, 100))
    assert exact_value(config, policy) != pytest.approx(exact_value(sampled, policy), abs=1e-3)
    with torch.no_grad():
        policy.actor[0][0].weight.mul_(40)
        policy.actor[-1].linear.weight.normal_(std=4.0)
    obs, noise = torch.arange(16), torch.zeros(16, 1)
    acts = policy.act(obs, (), torch.ones(16, dtype=torch.bool), noise, True).action.tolist()
    assert action_probabilities(config, policy, worlds, 16).argmax(1).tolist() == acts and len({*acts}) > 1


def test_blackjack_is_valued_by_its_own_rules_alone():
    config, sticking = answering([1.0, 0.0], "Blackjack-v1")
    table, hands = blackjack()
    always = policy_value(table, np.eye(2)[np.zeros(len(hands), int)], MAX_HAND_STEPS)
    assert exact_value(config, sticking) == pytest.approx(always)
    assert exact_value(replace(config, env_kwargs={"sab": False}), sticking) is None
    assert exact_value(*answering([1.0, 0.0], "CartPole-v1")) is None, "no table tells its dynamics"


def test_blackjacks_best_policy_is_that_of_the_book():
    """Sutton and Barto, figure 5.2: hard hands stick from 17 against 7 and more, from 13 against 2 and 3."""
    table, hands = blackjack()
    value = np.zeros(len(table.start))
    for _ in range(MAX_HAND_STEPS):
        gain = table.reward + table.follows @ value
        value = gain.max(1)
    assert table.start.sum() == pytest.approx(1) and table.start @ value == pytest.approx(-0.0431, abs=5e-5)
    best = dict(zip(map(tuple, hands.tolist()), gain.argmax(1), strict=True))  # of 21 with an ace, the natural
    first_stick = {up: min(t for t in range(12, 22) if best[t, up, 0] == STICK) for up in range(1, 11)}
    assert first_stick == {1: 17, 2: 13, 3: 13, 4: 12, 5: 12, 6: 12, 7: 17, 8: 17, 9: 17, 10: 17}
    twenty = hands.tolist().index([20, 7, 0])
    assert table.reward[twenty, HIT] == pytest.approx(-12 / 13)  # only an ace helps
    natural = max(i for i, row in enumerate(hands.tolist()) if row == [21, 1, 1])
    assert table.reward[natural, STICK] == pytest.approx(1 - 4 / 13)  # a draw where the dealer has one too


@pytest.mark.parametrize(("reached", "goal", "solved"), [
    ({"mean": 7.2, "exact": 7.6}, 7.5, True),  # bad luck in 100 episodes
    ({"mean": 7.8, "exact": 6.2}, 7.5, False),  # good luck
    ({"mean": 7.5}, 7.5, True),
    ({}, 7.5, False),
    ({"mean": 7.8}, None, False),
])  # fmt: skip
def test_solved_is_what_is_known_best(reached, goal, solved):
    assert is_solved(reached, goal) is solved


def record(seed, mean, steps, solved=True):
    values = {"mean": mean, "episodes": 100}
    return {
        "seed": seed, "status": "finished", "solved": solved, "reason": "goal reached", "env_steps": steps,
        "seconds": 10.0 * seed, "goal": 475.0, "final": values, "best": values, "git_hash": "abc", "versions": {},
        "curve": {"val": [[0, 0.0], [steps, mean]], "train": []},
    }  # fmt: skip


def test_the_page_has_the_worst_and_hides_nothing(snapshot):
    failed = {"seed": 6, "status": "failed", "code": -9, "line": "killed"}
    means = (500.0, 490.0, 480.0, 470.0, 100.0)
    records = [*(record(i, m, 1000 * i, m >= 475) for i, m in enumerate(means, 1)), failed]
    evidence = Evidence(
        "CartPole-v1:ppo", "ppo", config_hash(load_config("CartPole-v1", "ppo")), goal=475.0,
        machine={"cpu": "a processor", "cores": 2}, commands=["python -m lab.evidence"],
        seeds={record["seed"]: record for record in records},
    )  # fmt: skip
    page = "\n".join([*older_part([evidence]), *not_solved(evidence), *failures(evidence)])
    assert [line for line in page.splitlines() if re.search(r"CartPole-v1:ppo\b", line)] == snapshot
    alone = summary([record(1, 500.0, 10)])["final"]
    assert alone == {"iqm": 500.0, "low": None, "high": None, "mean": 500.0, "worst": 500.0}


def test_the_hash_is_of_what_is_trained():
    words = ("", "seed=7", "description=other words", "spec.description=x", "gamma=0.9", "spec.goal=400")
    hashes = [config_hash(load_config("CartPole-v1", "ppo", [word] if word else [])) for word in words]
    assert len({*hashes[:4]}) == 1 and len({*hashes}) == 3


def test_a_process_without_a_record_has_failed(tmp_path):
    job = trainings.Job("CartPole-v1:ppo", 4, load_config("CartPole-v1", "ppo"))
    end = trainings.Finished(0, 1, "Traceback\nerror: no luck\n\n")
    failed = {"seed": 4, "status": "failed", "code": 1, "line": "error: no luck"}
    assert trainings.result(job, tmp_path / "none.json", end) == failed
    killed = trainings.result(job, tmp_path / "none.json", trainings.Finished(0, -9, ""))
    assert killed == {**failed, "code": -9, "line": "no word"}
