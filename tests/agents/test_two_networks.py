"""`actor` and `critic` blocks of PPO and REINFORCE: each network with its own layers, parts of what is seen, rate."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from driven import advance, continued, with_optimizer
from refusals import refusal

from stride.agents.engines.choice import build_agent, may_be_fused
from stride.config.loader import from_plain, load_config, to_plain
from stride.envs_gym.make import make_envs
from stride.export.decisions import decider

SMALL = ("n_envs=4", "n_steps=8", "batch_size=16", "n_epochs=2", "hidden_dims=[6]", "max_timesteps=1e5",
         "normalize_obs=true")  # fmt: skip
BOTH = "critic={obs: [state, obs], hidden_dims: [5, 7], norm: layer, activation: relu, lr_scale: 2}"


class Told(gym.Env):
    """What the agent sees, `obs`, and what a simulator knows besides, `state`."""

    observation_space = gym.spaces.Dict(
        {"obs": gym.spaces.Box(-1, 1, (2,), np.float32), "state": gym.spaces.Box(-1, 1, (3,), np.float32)}
    )
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observe(), {}

    def observe(self):
        draws = self.np_random.uniform(-1, 1, 5).astype(np.float32)
        return {"obs": draws[:2], "state": draws[2:]}

    def step(self, action):
        return self.observe(), float(action), False, False, {}


gym.register("Told-v0", Told, max_episode_steps=5)


def agent_of(kind, *words):
    words = {word.partition("=")[0]: word for word in (*SMALL, "engine=eager", "env_id=Told-v0", *words)}
    config = load_config("CartPole-v1", kind, [*words.values()])
    return with_optimizer(build_agent(config, make_envs(config, config.n_envs)))


def both(obs, state):
    return {"obs": torch.full((1, 2), obs), "state": torch.full((1, 3), state)}


def test_each_network_reads_its_own_parts():
    agent = advance(agent_of("ppo", "actor.obs=[obs]", BOTH), 2)
    policy, first = agent.policy, torch.zeros(1, dtype=torch.bool)
    views = [both(0.1, 0.1), both(0.1, 0.9), both(0.9, 0.1)]
    choices, values = zip(*(policy.parameters_and_value(view, (), first) for view in views), strict=True)
    assert torch.equal(choices[0], choices[1]) and not torch.equal(choices[0], choices[2])
    assert len({value.item() for value in values}) == 3
    assert policy.head.linear.in_features == 6 and policy.critic[1].in_features == 7
    assert torch.equal(decider(policy)(views[1], (), first).scores["probability"], choices[1].softmax(-1))
    row = agent.metrics.flush()
    assert row["train/grad_norm/critic"] > 0 and row["train/grad_norm/actor"] > 0
    rates = [group["lr"] for group in agent.optimizer.param_groups]
    assert rates[-1] == 2 * rates[0]


def test_a_block_of_what_is_there_anyway_changes_no_bit():
    plain, blocks = (advance(agent_of("ppo", *words), 3) for words in ((), ("actor.hidden_dims=[6]",)))
    assert all(map(torch.equal, plain.policy.parameters(), blocks.policy.parameters()))
    assert [*plain.state_dict()] == [*agent_of("ppo").state_dict()]
    even = agent_of("ppo", "critic.init=uniform").policy
    weight = even.critic[0][0].weight
    assert weight.abs().max() <= weight.shape[1] ** -0.5
    assert torch.equal(even.actor[0][0].weight, agent_of("ppo").policy.actor[0][0].weight)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("ppo", (BOTH, "actor.obs=[obs]", "value_scale=popart")),
        ("reinforce", (BOTH, "policy_targets=advantages", "actor={norm: rms, blocks: 1, lr_scale: 0.5}")),
    ],
)
def test_2n_steps_are_n_and_a_resume_and_n(kind, words):
    config = agent_of(kind, *words).config
    assert from_plain(to_plain(config)) == config
    straight, half = advance(agent_of(kind, *words), 6), advance(agent_of(kind, *words), 3)
    resumed = advance(continued(half, agent_of(kind, *words)), 3).state_dict()
    assert all(torch.equal(resumed[name], x) for name, x in straight.state_dict().items())


def test_kernels_leave_it_to_eager_and_say_why():
    agent = agent_of("ppo", "critic.norm=layer", "engine=auto", "env_id=CartPole-v1")
    assert (agent.engine.name, agent.engine.reason) == ("eager", "it does not support actor and critic")
    assert not may_be_fused(agent.config)
    line = refusal(agent_of, "ppo", "critic.norm=layer", "engine=fused_cpu", "env_id=CartPole-v1")
    assert "it does not support actor and critic; engine=auto takes eager" in line


REFUSED = {
    "ppo critic.norm=layer share_trunk=true": "networks apart from each other; set share_trunk=false",
    "ppo actor.norm=batch": "actor.norm: batch is for sac, tqc and td3; use layer or rms",
    "ppo actor={blocks: 1, hidden_dims: [6,6]}": "blocks have one width: actor has hidden_dims [6, 6]",
    "ppo critic.lr_scale=0": "critic.lr_scale must be above 0, not 0",
    "ppo critic.obs=[stat]": "critic.obs: the observation has no part 'stat'; did you mean state?",
    "ppo critic.norm=layer policy=gru": "actor and critic are blocks for policy mlp and cnn; GRUActorCritic has",
    "reinforce critic.norm=layer policy_targets=returns": "no effect without a critic; set policy_targets=advantages",
    "pqn critic.norm=layer": "critic belongs to ",
}


@pytest.mark.parametrize("words", REFUSED)
def test_each_refusal_is_a_line(words):
    kind, *overrides = words.replace(", ", ",").replace(": ", ":").split()
    assert REFUSED[words] in refusal(agent_of, kind, *overrides)
