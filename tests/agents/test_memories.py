"""minGRU and transformer against plain loops in double precision; what is refused of them; masks beside them."""

from copy import deepcopy

import gymnasium as gym
import numpy as np
import pytest
import torch
from refusals import refusal
from torch.nn import functional as F
from worlds import Scripted, generator, limited_tables

from stride.agents.engines.choice import build_agent
from stride.agents.engines.fused_gpu.engine import why_not_fused
from stride.agents.engines.plan.on_policy import PPORecipe
from stride.agents.experience import storage
from stride.agents.experience.nouns import tree_map
from stride.agents.networks import transformer
from stride.agents.networks.actor_critic import Plan
from stride.agents.networks.mingru import MinGRU
from stride.agents.networks.policies import POLICIES, build_policy
from stride.agents.networks.transformer import Attention, Transformer
from stride.agents.sockets import EagerEpisodes
from stride.config.loader import load_config
from stride.envs_gym.make import make_envs

KINDS = pytest.mark.parametrize("kind", ["mingru", "transformer"])
SIZE, WIDTH, WINDOW = 3, 6, 4
EXACT = dict(rtol=0, atol=1e-12)


def cell_for(kind, window=WINDOW):
    """Weights far from where they begin, in double precision."""
    cell = MinGRU(SIZE, WIDTH, 3) if kind == "mingru" else Transformer(SIZE, WIDTH, Attention(2, 2, window))
    for index, parameter in enumerate(cell.parameters()):
        torch.nn.init.normal_(parameter, std=0.6, generator=generator(index))
    return cell.double()


def sequence(steps=19, worlds=4):
    """(inputs [T, N, size], beginnings [T, N]); not every world begins with the first row."""
    is_first = torch.rand(steps, worlds, generator=generator(2)) < 0.12
    return torch.randn(steps, worlds, SIZE, generator=generator(1)).double(), is_first


def mingru_of_a_world(cell, x, is_first):
    hidden, outputs = [torch.zeros(WIDTH).double() for _ in cell.layers], []
    for x_t, begins in zip(x, is_first, strict=True):
        for index, layer in enumerate(cell.layers):
            gate, candidate = F.linear(x_t, layer.weight, layer.bias).chunk(2)
            z, before = torch.sigmoid(gate), 0 if begins else hidden[index]
            hidden[index] = (1 - z) * before + z * candidate
            x_t = hidden[index] if index == 0 else x_t + hidden[index]
        outputs.append(x_t)
    return torch.stack(outputs)


def gated(gate, x, y):
    """g(x, y) of Parisotto et al. 2020, section 3.2."""
    (w_r, w_z, w_g), (b_r, b_z, b_g) = gate.of_new.weight.chunk(3), gate.of_new.bias.chunk(3)
    u_r, u_z = gate.of_old.weight.chunk(2)
    r = torch.sigmoid(w_r @ y + b_r + u_r @ x)
    z = torch.sigmoid(w_z @ y + b_z + u_z @ x - 2)
    return (1 - z) * x + z * torch.tanh(w_g @ y + b_g + gate.of_reset.weight @ (r * x))


def transformer_of_a_world(cell, x, is_first):
    past, outputs = [[] for _ in cell.layers], []
    for x_t, begins in zip(x, is_first, strict=True):
        h = cell.embed(x_t)
        for layer, steps in zip(cell.layers, past, strict=True):
            if begins:
                steps.clear()
            query, key, value = (part.chunk(2) for part in layer.project(layer.before_attention(h)).chunk(3))
            steps.append((key, value))
            seen, found = steps[::-1][: WINDOW + 1], []  # the present step first
            for head in range(2):
                scores = [query[head] @ (k[head] + layer.ages[head, age]) for age, (k, _) in enumerate(seen)]
                weights = torch.softmax(torch.stack(scores) / 3**0.5, 0)
                found.append(sum(w * v[head] for w, (_, v) in zip(weights, seen, strict=True)))
            h = gated(layer.after_attention, h, torch.relu(layer.join(torch.cat(found))))
            h = gated(layer.after_hidden, h, torch.relu(layer.hidden(layer.before_hidden(h))))
        outputs.append(h)
    return torch.stack(outputs)


@KINDS
def test_outputs_and_gradients_are_those_of_a_plain_loop(kind, monkeypatch):
    """Over several segments, and with the carry of the first seven rows before the others."""
    monkeypatch.setattr(transformer, "MIN_SEGMENT", 1)
    cell, (x, is_first) = cell_for(kind), sequence()
    plain, loop = deepcopy(cell), {"mingru": mingru_of_a_world, "transformer": transformer_of_a_world}[kind]
    expected = torch.stack([loop(plain, x[:, world], is_first[:, world]) for world in range(x.shape[1])], 1)
    outputs, _ = cell.run(x, cell.initial(x.shape[1]), is_first)
    torch.testing.assert_close(outputs, expected, **EXACT)
    _, state = cell.run(x[:7], cell.initial(x.shape[1]), is_first[:7])
    torch.testing.assert_close(cell.run(x[7:], state, is_first[7:])[0], expected[7:], **EXACT)
    weight = torch.randn(expected.shape, generator=generator(3)).double()
    for result in (outputs, expected):
        (result * weight).sum().backward()
    for one, other in zip(cell.parameters(), plain.parameters(), strict=True):
        assert one.grad.abs().max() > 1e-3
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-10, atol=1e-10)


@KINDS
def test_nothing_reaches_over_the_start_of_an_episode_or_from_ahead(kind):
    cell, (x, _) = cell_for(kind), sequence(9, 2)
    is_first = torch.zeros(9, 2, dtype=torch.bool)
    is_first[5, 0] = True
    state = tuple(torch.rand(tensor.shape, generator=generator(4)).double() for tensor in cell.initial(2))
    state = state if kind == "mingru" else (*state[:2], torch.ones_like(state[2]))
    inputs = [x.requires_grad_(), *(tensor.requires_grad_() for tensor in state)]
    outputs, after = cell.run(x, state, is_first)
    for step, begin in ((6, 5), (4, 0)):
        of_x, *of_state = torch.autograd.grad(outputs[step, 0].sum(), inputs, retain_graph=True, allow_unused=True)
        reached = of_x[:, 0].abs().sum(-1) > 0
        assert reached.nonzero().flatten().tolist() == [*range(begin, step + 1)]
        assert bool(begin) != any(part is not None and part[0].any() for part in of_state)
    if kind == "transformer":
        assert after[2].tolist() == [[1.0] * 4, [1.0] * 4], "the window is full again four steps after the start"


@KINDS
def test_a_mask_holds_step_by_step_and_over_sequences(kind):
    space = gym.spaces.Dict({"action_mask": gym.spaces.MultiBinary(5), "at": gym.spaces.Box(-1, 1, (2,), np.float32)})
    policy = POLICIES[kind](Plan(space, gym.spaces.Discrete(5), (8,)))
    mask, is_first = torch.rand(12, 6, 5, generator=generator(1)) < 0.5, torch.rand(12, 6, generator=generator(2)) < 0.2
    mask[..., 2] = True
    obs = {"action_mask": mask, "at": torch.rand(12, 6, 2, generator=generator(3))}
    carry, actions, chances = policy.initial(6), [], []
    with torch.inference_mode():
        for t in range(12):
            now = tree_map(lambda x, t=t: x[t], obs)
            chances.append(policy.explain(now, carry, is_first[t]).distribution["probability"])
            noise = torch.rand(6, policy.draws, generator=generator(9 + t))
            action, _, carry = policy.act(now, carry, is_first[t], noise, False)
            actions.append(action)
        judged = policy.evaluate(obs, policy.initial(6), is_first, torch.stack(actions))
    chosen = torch.stack(actions)[..., None]
    assert mask.gather(-1, chosen).all() and not torch.stack(chances)[~mask].any()
    log_prob = torch.stack(chances).gather(-1, chosen)[..., 0].log()
    torch.testing.assert_close(judged.log_prob, log_prob, rtol=0, atol=1e-5)


REFUSED = {
    "window=0": "policy_kwargs.window must be at least 1 and at most 4,096, not 0",
    "layers=0": "policy_kwargs.layers must be at least 1 and at most 64, not 0",
    "heads=0": "policy_kwargs.heads must be at least 1 and at most 8, not 0",
    "heads=3": "policy_kwargs.heads 3 does not divide the memory's width 8; 2 or 4 does",
    "window=7": "policy_kwargs.window 7 is never filled: episodes have at most 7 steps; window=6 sees all of one",
}


def test_a_transformer_that_cannot_be_is_refused_in_one_line(monkeypatch):
    envs = Scripted(*limited_tables(40, 4, 7, 2), time_limit=7)

    def built(words):
        sizes = ["hidden_dims=8", "n_envs=4", "n_steps=16", "batch_size=1.0"]
        overrides = [f"policy_kwargs.{word}" for word in words.split()]
        return build_policy(load_config("CartPole-v1", "ppo", ["policy=transformer", *sizes, *overrides]), envs, True)

    assert {words: refusal(built, words) for words in REFUSED} == REFUSED
    # 2 networks x 2 layers x (keys + values) x 6 steps x 8 numbers x 4 bytes, 4 worlds, 2 x 4 slots and 3 states
    policy = built("window=6")
    caches = [x for keys, values, _ in policy.initial(1) for x in (keys, values)]
    assert policy.carry_bytes == 2 * 2 * 2 * 6 * 8 * 4 == sum(x.nbytes for x in caches)
    monkeypatch.setattr(storage, "free_bytes", lambda storage: 40_000)
    allowed = "policy_kwargs.window 6 needs 67.6 kB, 36 kB may be used in memory; policy_kwargs.window=3 fits"
    assert refusal(built, "window=6") == allowed
    built("window=3")


@KINDS
@pytest.mark.parametrize("variant", ["CartPole-v1:pqn", "CartPole-v1:dqn", "Pendulum-v1:sac", "CartPole-v1:dreamer"])
def test_other_learners_refuse_them_by_name(kind, variant):
    def built(policy):
        config = load_config(*variant.split(":"), [f"policy={policy}", "max_timesteps=1e5"])
        return build_agent(config, make_envs(config, config.n_envs))

    line = refusal(built, kind)
    assert kind in line or line.endswith("policy has no effect in dreamer: it has its own network")


@pytest.mark.parametrize("kind", ["lstm", "gru", "transformer"])
def test_engines_say_that_eager_takes_them(kind):
    config = load_config("CartPole-v1", "ppo", [f"policy={kind}", "batch_size=1.0"])
    assert build_agent(config, make_envs(config, config.n_envs)).engine.name == "eager"
    fused = load_config("CartPole-v1", "ppo", [f"policy={kind}", "batch_size=1.0", "engine=fused_cpu"])
    assert f"it does not support policy: {kind}; engine=auto takes eager" in refusal(
        lambda: build_agent(fused, make_envs(fused, fused.n_envs))
    )


def test_the_fused_engine_takes_mingru_and_refuses_pictures_beside_it():
    words = ["policy=mingru", "batch_size=1.0", "max_timesteps=1e5"]
    config = load_config("CartPole-v1", "ppo", words)
    agent = build_agent(config, make_envs(config, config.n_envs))
    assert agent.engine.name == "fused_cpu" and type(agent.engine.episodes) is EagerEpisodes
    assert why_not_fused(config, agent, PPORecipe) == "it does not support policy: mingru"
    seen = load_config("CartPole-v1", "ppo_pixels", [*words, "resize_obs=[36,36]", "engine=fused_cpu"])
    line = refusal(lambda: build_agent(seen, make_envs(seen, seen.n_envs)))
    assert "it does not support pictures with policy: mingru; engine=auto takes eager" in line
