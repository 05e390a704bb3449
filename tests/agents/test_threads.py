"""What a seed gives does not depend on how many threads work: first weights anywhere, results where it is promised."""

import pytest
import torch
from driven import advance, agent_for

from stride.agents.networks.layers import LayerNorm, one_thread
from stride.commands.plain_tree import fingerprint

ROLLOUT = ("n_envs=4", "n_steps=16", "batch_size=0.5", "n_epochs=2")
EAGER = ("engine=eager", "batch_size=32")
WIDE = ("n_envs=8", "n_steps=64", "batch_size=256", "n_epochs=2", "engine=fused_cpu")
REPLAY = ("n_envs=2", "buffer_size=500", "learning_starts=32", "train_freq=16", "gradient_steps=4")
MODEL = ("n_envs=2", "buffer_size=500", "learning_starts=64", "batch_length=8", "train_freq=40", "train_ratio=8")
TRAINED = {
    "ppo, fused": ("CartPole-v1:ppo", *ROLLOUT, "engine=fused_cpu"),
    "ppo, fused, on gym's worlds": ("CartPole-v1:ppo", *ROLLOUT, "engine=fused_cpu", "env_backend=gym"),
    "ppo, eager": ("CartPole-v1:ppo", *ROLLOUT, "engine=eager", "normalize_obs=true", "normalize_reward=true"),
    "ppo, lstm": ("CartPole-v1:ppo", *ROLLOUT, "policy=lstm"),
    "reinforce, fused": ("CartPole-v1:reinforce", "n_envs=4", "n_steps=64", "engine=fused_cpu"),
    "reinforce, gru": ("CartPole-v1:reinforce", "n_envs=4", "n_steps=32", "policy=gru", "engine=eager"),
    "pqn": ("CartPole-v1:pqn", *ROLLOUT),
    "ppo, fused, wide": ("CartPole-v1:ppo", *WIDE),
    "ppo, fused, normalised": (
        "CartPole-v1:ppo",
        *WIDE,
        "normalize_obs=true",
        "normalize_reward=true",
        "target_kl=0.01",
    ),
    **{
        f"{config[-3:]}, fused, wide, {size} rows": (config, *REPLAY, "engine=fused_cpu", f"batch_size={size}")
        for config in ("CartPole-v1:dqn", "Pendulum-v1:sac")
        for size in (64, 200, 300)
    },
    "dqn, eager": ("CartPole-v1:dqn", *REPLAY, *EAGER, "prioritised=true", "n_step=3", "dueling=true"),
    "sac, eager": ("Pendulum-v1:sac", *REPLAY, *EAGER),
    "q_learning": ("FrozenLake-v1:q_learning",),
    "dreamer, fused": ("CartPole-v1:dreamer", *MODEL),
}
BEGUN = TRAINED | {"wide": ("CartPole-v1:ppo", "hidden_dims=[512,512]")}
# torch's threads wait long where cores are short
LONG = ("ppo, lstm", "reinforce, gru", "ppo, eager", "sac, eager", "dreamer, fused")


@pytest.fixture(autouse=True)
def threads_afterwards():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def made(words, threads):
    torch.set_num_threads(threads)
    return agent_for(*words, f"threads={threads}", "seed=7717")


@pytest.mark.parametrize("name", BEGUN)
def test_first_weights_are_the_same_for_any_number_of_threads(name):
    assert len({fingerprint(made(BEGUN[name], threads).state_dict()) for threads in (1, 2, 3)}) == 1


@pytest.mark.parametrize("name", [pytest.param(x, marks=[pytest.mark.slow] * (x in LONG)) for x in TRAINED])
def test_what_was_learnt_is_the_same_for_any_number_of_threads(name):
    """Also where all of them must work, though fewer would be faster."""
    is_fused = "engine=fused_cpu" in TRAINED[name]
    learnt = set()
    for threads in (1, 2, 3):
        agent = advance(made(TRAINED[name], threads), 1)
        if is_fused:
            bound = agent.engine.learn.bound
            bound.pace.choose = lambda bound=bound: bound.workers.threads
            assert (bound.workers.threads > 1) == (threads > 1) or "wide" not in name
        advance(agent, 11 if "wide" in name else 1)
        assert agent.progress["updates"]
        optimizer = agent.optimizers()  # Q-learning has none
        parts = [agent.state_dict(), optimizer and optimizer.state_dict(), agent.memory.columns_written()]
        learnt.add(fingerprint([*parts, agent.collector.window.state_dict()]))
    assert len(learnt) == 1


def test_a_layer_norm_gives_the_gradients_of_torchs_own():
    x = torch.randn(300, 17, generator=torch.Generator().manual_seed(1))
    ours, theirs = LayerNorm(17), torch.nn.LayerNorm(17)
    torch.set_num_threads(1)
    expected = gradients(theirs, x)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        assert fingerprint(gradients(ours, x)) == fingerprint(expected)
    assert gradients(ours, x, needed=False)[0] is None


def gradients(norm, x, needed=True):
    norm.zero_grad()
    x = x.clone().requires_grad_(needed)
    y = norm(x)
    y.square().sum().backward()
    return [x.grad, norm.weight.grad, norm.bias.grad, y.detach()]


def test_one_thread_ends_with_as_many_as_before():
    torch.set_num_threads(2)
    with pytest.raises(KeyError), one_thread():
        assert torch.get_num_threads() == 1
        raise KeyError
    assert torch.get_num_threads() == 2
