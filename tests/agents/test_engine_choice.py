"""Which engine a config gets: one refuses by name what it does not know; `engine: auto` takes the next and says why.

Then `engine: graphed` with a tape in the place of CUDA's graphs; that it trains as eager does is in
test_same_as_eager.py, that CUDA captures the same operations is for lab/gpu_check.py to show.
"""

from dataclasses import replace

import pytest
import torch
from driven import advance, agent_for
from same_as_eager import as_on_a_device, gpu_worlds, on_eager
from snapshots import shown
from tape import Tape, TapedEnv
from worlds import NAN, Scripted, driven, random_tables, weights

from stride.agents.engines.choice import choose_engine, choose_on_cpu, choose_on_gpu, may_be_fused
from stride.agents.engines.fused_cpu import engine as cpu_engine
from stride.agents.engines.fused_cpu.play import AttachedPlay
from stride.agents.engines.fused_gpu import engine as gpu_engine
from stride.agents.engines.fused_gpu.ahead import Ahead
from stride.agents.engines.graphed import CudaGraph, graphed
from stride.agents.engines.plan.on_policy import PPORecipe
from stride.agents.ppo import PPO
from stride.agents.sockets import EagerPlay
from stride.config.loader import load_config
from stride.config.schema import PPOConfig
from stride.utils.user_error import UserError

ON_HOST = "Gymnasium's environments step on the host"
REFUSED = {
    "fused_cpu": (
        "CartPole-v1:ppo policy=lstm", "CartPole-v1:ppo optimizer=sgd", "CartPole-v1:ppo hidden_dims=[]",
        "CartPole-v1:ppo lag=1", "CartPole-v1:dqn prioritised=true", "CartPole-v1:dqn quantiles=5",
        "CartPole-v1:dqn optimizer=sgd", "Pendulum-v1:sac hidden_dims=[]", "Pendulum-v1:sac nan_guard=skip",
        "CartPole-v1:dreamer batch_size=24", "CartPole-v1:dreamer size=1m",
    ),
    "fused_gpu": (
        "CartPole-v1:ppo hidden_dims=[512,512]", "CartPole-v1:ppo policy=gru", "Blackjack-v1:ppo", "CartPole-v1:dqn",
        "CartPole-v1:ppo precision=bf16 hidden_dims=[64]",
    ),
    "graphed": (
        "CartPole-v1:ppo_lstm", "CartPole-v1:dqn", "CartPole-v1:ppo policy=gru gamma=lin_0.99",
        "FrozenLake-v1:q_learning",
    ),
}  # fmt: skip


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


@pytest.mark.parametrize("config", ["CartPole-v1:ppo", "CartPole-v1:dreamer"])
def test_auto_leaves_precision_to_eager(config):
    assert agent_for(config, "precision=bf16").engine[:2] == ("eager", "it does not support precision: bf16")


def test_eager_is_taken_as_configured():
    for asked in ("fused_cpu", "graphed"):
        agent = agent_of("CartPole-v1:ppo", asked)
        assert choose_engine(replace(agent.config, engine="eager"), agent)[:2] == ("eager", "as configured")


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


@pytest.mark.parametrize(
    ("words", "play"),
    [
        ("CartPole-v1:ppo env_backend=gym", EagerPlay),
        ("CartPole-v1:dqn env_backend=gym", AttachedPlay),
        ("CartPole-v1:dreamer", EagerPlay),
    ],
)
def test_kernels_learn_alone_where_they_cannot_play(words, play):
    engine = agent_for(*words.split(), "threads=1").engine
    assert (engine.name, engine.learn.name) == ("fused_cpu", "fused_cpu") and type(engine.play) is play
    assert engine.threads.number == 1 and ("gym" in words) == engine.reason.startswith("updates only: Gymnasium's")


@pytest.mark.parametrize("words", ["CartPole-v1:ppo", "CartPole-v1:ppo lag=1", "CartPole-v1:ppo hidden_dims=[16,32]"])
def test_auto_takes_fused_gpu_where_it_knows_everything(words):
    agent = agent_of(words, "fused_gpu")
    precision = "tf32" if "16,32" in words else 32
    for asked in ("auto", "fused_gpu"):
        engine = on_gpu(agent, engine=asked, precision=precision)
        assert engine[:2] == ("fused_gpu", "supports everything this config uses")
        assert isinstance(engine.play, Ahead) == ("lag=1" in words), "played beside the updates"
    assert on_gpu(agent, engine="graphed").name == "graphed"


def test_tensor_cores_that_a_gpu_does_not_have_are_refused(monkeypatch):
    agent = agent_of("CartPole-v1:ppo hidden_dims=[16,32]", "fused_gpu")
    monkeypatch.setattr(gpu_engine, "capability", lambda device: (7, 5))
    with pytest.raises(UserError, match="tf32 needs a GPU with sm_80 or newer, this one is sm_75; engine=auto"):
        on_gpu(agent, engine="fused_gpu", precision="tf32")


def test_of_gymnasiums_worlds_fused_gpu_says_who_steps_them():
    engine = on_gpu(on_eager("CartPole-v1:ppo", "env_backend=gym"), engine="auto")
    assert (engine.name, engine.reason) == ("fused_gpu", f"updates only: {ON_HOST}")
    assert (engine.play.name, engine.learn.name) == ("eager", "fused_gpu")


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
    assert other.engine.learn._repeated._graph.replays == 5 and other.progress == plain.progress


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
