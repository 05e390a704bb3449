"""Which engine a config gets: one refuses by name what it does not know; `engine: auto` takes the next and says why.

Then `engine: graphed` with a tape in the place of CUDA's graphs; that it trains as eager does is in
test_same_as_eager.py, that CUDA captures the same operations is for lab/gpu_check.py to show.
"""

from dataclasses import replace

import pytest
import torch
from driven import advance, agent_for
from same_as_eager import as_on_a_device, gpu_worlds
from snapshots import shown
from tape import Tape, TapedEnv
from worlds import NAN, Scripted, driven, random_tables, weights

from stride.agents.engines.choice import choose_engine, choose_on_cpu, choose_on_gpu, may_be_fused
from stride.agents.engines.fused_cpu import engine as cpu_engine
from stride.agents.engines.fused_gpu import engine as gpu_engine
from stride.agents.engines.graphed import CudaGraph, graphed
from stride.agents.engines.plan.on_policy import PPORecipe
from stride.agents.ppo import PPO
from stride.config.loader import load_config
from stride.config.schema import PPOConfig
from stride.utils.user_error import UserError

SEES = "policy_kwargs.cnn=small resize_obs=10"  # small pictures
REFUSED = {
    "fused_cpu": (
        "CartPole-v1:ppo policy=lstm", "CartPole-v1:ppo optimizer=sgd", "CartPole-v1:ppo hidden_dims=[]",
        "CartPole-v1:ppo lag=1", "CartPole-v1:dqn prioritised=true", "CartPole-v1:dqn quantiles=5",
        "CartPole-v1:dqn optimizer=sgd", "Pendulum-v1:sac hidden_dims=[]", "Pendulum-v1:sac nan_guard=skip",
        "CartPole-v1:dreamer batch_size=24", "CartPole-v1:dreamer size=1m", "CartPole-v1:ppo_pixels",
        f"CartPole-v1:ppo_pixels {SEES}", f"CartPole-v1:ppo_pixels {SEES} share_trunk=true activation=tanh",
        "CartPole-v1:ppo_pixels policy_kwargs.cnn=small hidden_dims=[]",
        f"CartPole-v1:dqn obs=pixels policy=cnn {SEES} hidden_dims=[] frame_stack=2", "CartPole-v1:dqn frame_stack=2",
        "Pendulum-v1:td3 prioritised=true", "Pendulum-v1:td3 norm=layer", "Pendulum-v1:td3 value_scale=popart",
        "Pendulum-v1:td3 critic.hidden_dims=[64]", "Pendulum-v1:sac actor_every=2", "Pendulum-v1:tqc norm=rms",
        "Pendulum-v1:sac frame_stack=2", "CartPole-v1:dqn obs=pixels policy=cnn policy_kwargs.cnn=small hidden_dims=[]",
        "CartPole-v1:pqn activation=tanh", "CartPole-v1:pqn accumulate=2", "CartPole-v1:pqn hidden_dims=[]",
        "CartPole-v1:pqn obs=pixels policy=cnn policy_kwargs.cnn=residual resize_obs=10",
    ),
    "fused_gpu": (
        "CartPole-v1:ppo hidden_dims=[512,512]", "CartPole-v1:ppo policy=gru", "Blackjack-v1:ppo", "CartPole-v1:dqn",
        "CartPole-v1:ppo optimizer=radam", "CartPole-v1:ppo precision=bf16 hidden_dims=[64]",
    ),
    "graphed": (
        "CartPole-v1:ppo_lstm", "CartPole-v1:dqn", "CartPole-v1:ppo policy=gru gamma=lin_0.99",
        "FrozenLake-v1:q_learning",
    ),
}  # fmt: skip
TAKEN = [  # where the worlds are, what is trained there, and what it asks for
    ("fused_cpu", "CartPole-v1:ppo precision=bf16", {}),
    ("fused_cpu", "CartPole-v1:dreamer precision=bf16", {}),
    ("fused_cpu", "CartPole-v1:ppo", {"engine": "eager"}),
    ("fused_cpu", "CartPole-v1:ppo env_backend=gym", {}),
    ("fused_cpu", "CartPole-v1:dqn env_backend=gym", {}),
    ("fused_cpu", "Pendulum-v1:td3", {}),
    ("fused_cpu", "Pendulum-v1:td3 actor_every=1 n_critics=1 target_noise=0 noise_correlation=0.85", {}),  # DDPG
    ("fused_cpu", "Pendulum-v1:tqc", {}),
    ("fused_cpu", "CartPole-v1:dreamer", {}),
    ("fused_cpu", "CartPole-v1:pqn optimizer=radam", {}),
    ("fused_cpu", f"CartPole-v1:pqn obs=pixels policy=cnn {SEES} hidden_dims=[24]", {}),
    ("fused_cpu", f"CartPole-v1:ppo_pixels {SEES} hidden_dims=[]", {}),
    ("fused_cpu", f"CartPole-v1:dqn obs=pixels policy=cnn {SEES} hidden_dims=[] dueling=true", {}),
    ("graphed", "CartPole-v1:ppo", {"engine": "eager"}),
    ("fused_gpu", "CartPole-v1:ppo", {"engine": "auto"}),
    ("fused_gpu", "CartPole-v1:ppo", {"engine": "fused_gpu"}),
    ("fused_gpu", "CartPole-v1:ppo", {"engine": "graphed"}),
    ("fused_gpu", "CartPole-v1:ppo lag=1", {"engine": "auto"}),  # played beside the updates
    ("fused_gpu", "CartPole-v1:ppo hidden_dims=[16,32]", {"engine": "auto", "precision": "tf32"}),
    ("the host", "CartPole-v1:ppo env_backend=gym engine=eager", {"engine": "auto"}),
]


class Elsewhere(TapedEnv):
    """Gymnasium's worlds, for a policy on a GPU."""

    device = torch.device("cuda:0")


def agent_of(words, asked):
    """An agent whose worlds are where the engine is for."""
    config, *overrides = words.split()
    if asked == "fused_gpu":
        return agent_for(config, *overrides, "engine=eager", worlds=gpu_worlds)
    agent = agent_for(config, *overrides)
    if asked == "graphed":
        agent.collector.envs = Elsewhere(agent.collector.envs)
    return agent


def on_gpu(agent, **changes):
    return choose_on_gpu(replace(agent.config, **changes), agent)


@pytest.mark.parametrize("asked", REFUSED)
def test_an_engine_refuses_by_name_and_auto_takes_the_next(asked, snapshot):
    choose, lines = choose_on_cpu if asked == "fused_cpu" else choose_on_gpu, []
    for words in REFUSED[asked]:
        agent = agent_of(words, asked)
        taken = choose(replace(agent.config, engine="auto"), agent)
        with pytest.raises(UserError) as error:
            choose(replace(agent.config, engine=asked), agent)
        before, _, why = str(error.value).partition(" does not support this config: ")
        assert before == f"engine: {asked}" and why.endswith(f"; engine=auto takes {taken.name}")
        assert why.partition(";")[0] in taken.reason or words == "CartPole-v1:dqn"
        lines += [words, f"    {why}"]
    assert shown("\n".join(lines)) == snapshot


def test_what_is_taken_is_named_with_the_reason_and_by_whom_it_plays_and_learns(snapshot):
    lines = []
    for place, words, asked in TAKEN:
        agent = agent_of(words, place)
        by_gpu = place in ("fused_gpu", "the host")
        engine = on_gpu(agent, **asked) if by_gpu else choose_engine(replace(agent.config, **asked), agent)
        lines += [f"{place}: {words} {asked}", f"    {engine.name}: {engine.reason}"]
        lines += [f"    {type(engine.play).__name__}, {type(engine.learn).__name__}"]
    assert shown("\n".join(lines)) == snapshot


def test_fused_cpu_refuses_a_processor_that_nobody_has_tried(monkeypatch):
    monkeypatch.setattr(cpu_engine, "FEATURES", frozenset({"neon", "fp-armv8"}))
    agent = agent_for("CartPole-v1:ppo")
    assert agent.engine.name == "eager" and "AVX2" in agent.engine.reason
    assert not may_be_fused(load_config("CartPole-v1", "ppo"))  # so none of its kernels are compiled for nothing
    with pytest.raises(UserError, match="does not support this config: its kernels need a processor with AVX2"):
        agent_for("CartPole-v1:ppo", "engine=fused_cpu")


def test_observations_of_other_types_are_refused_by_name():
    agent = agent_for("CartPole-v1:ppo")
    assert PPORecipe.why_not(agent.config, agent.policy, agent.collector.obs) is None
    images_laid_flat = agent.collector.obs.byte()
    assert "torch.uint8" in PPORecipe.why_not(agent.config, agent.policy, images_laid_flat)


def test_tensor_cores_that_a_gpu_does_not_have_are_refused(monkeypatch):
    agent = agent_of("CartPole-v1:ppo hidden_dims=[16,32]", "fused_gpu")
    monkeypatch.setattr(gpu_engine, "capability", lambda device: (7, 5))
    with pytest.raises(UserError, match="tf32 needs a GPU with sm_80 or newer, this one is sm_75; engine=auto"):
        on_gpu(agent, engine="fused_gpu", precision="tf32")


# --- what a graph captures, refuses and does again


@pytest.fixture
def as_there():
    with as_on_a_device():
        yield


def test_a_replay_that_meets_no_number_learns_nothing(as_there):
    reward, terminated, truncated = random_tables(56, 4, 0)
    reward[35, 2] = NAN  # in the fifth rollout
    config = PPOConfig(n_envs=4, n_steps=8, hidden_dims=(8,), policy_lr=1e-2, max_timesteps=10**6, nan_guard="skip")
    tables = reward, terminated, truncated
    plain, other = driven(PPO(config, Scripted(*tables))), driven(PPO(config, TapedEnv(Scripted(*tables))))
    other.engine = graphed(other, Tape)
    for iterations, learns in ((4, True), (1, False), (2, True)):
        before = weights(other.policy)
        advance(plain, iterations), advance(other, iterations)
        assert torch.equal(weights(other.policy), weights(plain.policy))
        assert learns != torch.equal(weights(other.policy), before)
    assert other.engine.learn._work._graph.replays == 5 and other.progress == plain.progress


def test_a_tape_refuses_to_wait():
    tape = Tape(torch.device("cpu"))
    with pytest.raises(AssertionError, match="waits for the device"):
        tape.capture(lambda: torch.ones(()).item())


def test_what_cuda_refuses_to_capture_is_one_line(monkeypatch):
    def refuse(*arguments, **options):
        raise torch.AcceleratorError("CUDA error: operation not permitted when stream is capturing\nCompile with ..")

    for name in ("Stream", "CUDAGraph"):
        monkeypatch.setattr(torch.cuda, name, lambda *arguments: None)
    monkeypatch.setattr(torch.cuda, "graph", refuse)
    with pytest.raises(UserError, match=r"not permitted when stream is capturing\); use engine=eager$"):
        CudaGraph(torch.device("cuda:0")).capture(lambda: None)
