"""Which engine a config gets: one refuses by name what it does not know; `engine: auto` takes the next and says why."""

from dataclasses import replace

import pytest
import torch
from driven import agent_for
from fused_cases import SMALL
from same_as_eager import gpu_worlds, on_eager
from tape import TapedEnv

from stride.agents.engines.choice import choose_engine, choose_on_gpu, may_be_fused
from stride.agents.engines.fused_cpu import engine as cpu_engine
from stride.agents.engines.fused_cpu.play import AttachedPlay
from stride.agents.engines.fused_gpu import engine as gpu_engine
from stride.agents.engines.fused_gpu.ahead import Ahead
from stride.agents.engines.plan.on_policy import PPORecipe
from stride.agents.sockets import EagerPlay
from stride.config.loader import load_config
from stride.utils.user_error import UserError

NOT_16 = "batch_size 24 is not a multiple of 16, the sequences it takes side by side"
ON_CPU = {
    "CartPole-v1:ppo policy=lstm": "it does not know policy: lstm",
    "CartPole-v1:ppo optimizer=sgd": "it does not know optimizer: sgd",
    "CartPole-v1:ppo hidden_dims=[]": "hidden_dims",
    "CartPole-v1:ppo lag=1": "it does not know lag",
    "CartPole-v1:dqn prioritised=true": "prioritised",
    "CartPole-v1:dqn quantiles=5": "quantiles",
    "CartPole-v1:dqn optimizer=sgd": "optimizer: sgd",
    "Pendulum-v1:sac hidden_dims=[]": "hidden_dims",
    "Pendulum-v1:sac nan_guard=skip": "nan_guard",
    "CartPole-v1:dreamer batch_size=24": NOT_16,
    "CartPole-v1:dreamer size=1m": "it does not know cells of 8 blocks, as in size: 1m",
}


@pytest.mark.parametrize("words", ON_CPU)
def test_fused_cpu_refuses_by_name_and_auto_takes_eager(words):
    config, word = words.split()
    engine = agent_for(config, word).engine
    assert engine.name == "eager" and ON_CPU[words] in engine.reason
    with pytest.raises(UserError) as error:
        agent_for(config, word, "engine=fused_cpu")
    line = f"engine: fused_cpu cannot run this config: {engine.reason}; engine: auto takes eager"
    assert str(error.value) == line


@pytest.mark.parametrize("config", ["CartPole-v1:ppo", "CartPole-v1:dreamer"])
def test_auto_leaves_precision_to_eager(config):
    assert agent_for(config, "precision=bf16").engine[:2] == ("eager", "it does not know precision: bf16")


def test_fused_cpu_refuses_a_processor_that_nobody_has_tried(monkeypatch):
    monkeypatch.setattr(cpu_engine, "FEATURES", frozenset({"neon", "fp-armv8"}))
    agent = agent_for("CartPole-v1:ppo")
    assert agent.engine.name == "eager" and "AVX2" in agent.engine.reason
    assert not may_be_fused(load_config("CartPole-v1", "ppo"))  # so none of its kernels are compiled for nothing
    with pytest.raises(UserError, match="fused_cpu cannot run this config: its kernels need a processor with AVX2"):
        agent_for("CartPole-v1:ppo", "engine=fused_cpu")


def test_observations_of_other_types_are_refused_by_name():
    agent = agent_for("CartPole-v1:ppo", *SMALL)
    assert PPORecipe.why_not(agent.config, agent.policy, agent.collector.obs) is None
    images_laid_flat = agent.collector.obs.byte()
    assert "torch.uint8" in PPORecipe.why_not(agent.config, agent.policy, images_laid_flat)


@pytest.mark.parametrize(("config", "play"), [("CartPole-v1:ppo", EagerPlay), ("CartPole-v1:dqn", AttachedPlay)])
def test_from_gymnasiums_worlds_kernels_learn(config, play):
    engine = agent_for(config, "env_backend=gym").engine
    assert (engine.name, engine.learn.name) == ("fused_cpu", "fused_cpu") and type(engine.play) is play
    assert engine.reason.startswith("updates only: ")


def test_a_world_model_is_learnt_by_kernels_and_played_by_eager():
    for name, learn in (("auto", "fused_cpu"), ("eager", "eager")):
        engine = agent_for("CartPole-v1:dreamer", f"engine={name}", "threads=1").engine
        assert (engine.play.name, engine.learn.name, engine.threads.number) == ("eager", learn, 1)
    assert engine.reason == "as configured"


# --- GPUs


def on_gpu(words):
    config, *overrides = words.split()
    return agent_for(config, *overrides, "engine=eager", worlds=gpu_worlds)


def chosen(agent, **changes):
    return choose_on_gpu(replace(agent.config, **changes), agent)


REFUSED = {
    "CartPole-v1:ppo hidden_dims=[512,512]": (
        "hidden_dims [512, 512] need 1,311 KB of shared memory, a block has 227 KB; engine: auto takes graphed"
    ),
    "CartPole-v1:ppo policy=gru": "it does not know policy: gru; engine: auto takes graphed",
    "CartPole-v1:ppo precision=bf16 hidden_dims=[64]": (
        "precision: bf16 is of what hidden layers multiply with one another, and there is one; "
        "engine: auto takes graphed"
    ),
    "Blackjack-v1:ppo": "the observation has more than one part; engine: auto takes graphed",
    "CartPole-v1:dqn": "fused_gpu does not know dqn; engine: auto takes eager",
}


@pytest.mark.parametrize("words", REFUSED)
def test_fused_gpu_refuses_in_one_line_and_auto_takes_the_next(words):
    agent = on_gpu(words)
    with pytest.raises(UserError) as refused:
        chosen(agent, engine="fused_gpu")
    assert str(refused.value) == f"engine: fused_gpu cannot run this config: {REFUSED[words]}"
    taken = chosen(agent, engine="auto")
    assert REFUSED[words].endswith(taken.name)
    assert taken.name == "eager" or taken.reason == f"fused_gpu: {REFUSED[words].partition(';')[0]}"


@pytest.mark.parametrize("words", ["CartPole-v1:ppo", "CartPole-v1:ppo lag=1", "CartPole-v1:ppo hidden_dims=[16,32]"])
def test_auto_takes_fused_gpu_where_it_knows_everything(words):
    agent = on_gpu(words)
    precision = "tf32" if "16,32" in words else 32
    for asked in ("auto", "fused_gpu"):
        engine = chosen(agent, engine=asked, precision=precision)
        assert engine[:2] == ("fused_gpu", "knows all the config asks for")
        assert isinstance(engine.play, Ahead) == ("lag=1" in words), "played beside the updates"
    assert chosen(agent, engine="graphed").name == "graphed"


def test_tensor_cores_that_a_gpu_does_not_have_are_refused(monkeypatch):
    agent = on_gpu("CartPole-v1:ppo hidden_dims=[16,32]")
    monkeypatch.setattr(gpu_engine, "capability", lambda device: (7, 5))
    with pytest.raises(UserError, match="precision: tf32 needs a GPU from sm_80 on, this one is sm_75; engine: auto"):
        chosen(agent, engine="fused_gpu", precision="tf32")


def test_of_gymnasiums_worlds_fused_gpu_says_who_steps_them():
    engine = chosen(on_eager("CartPole-v1:ppo", "env_backend=gym"), engine="auto")
    assert (engine.name, engine.reason) == ("fused_gpu", "updates only: Gymnasium's worlds step on the host")
    assert (engine.play.name, engine.learn.name) == ("eager", "fused_gpu")


class Elsewhere(TapedEnv):
    """Worlds that say they are on a GPU."""

    device = torch.device("cuda:0")


@pytest.mark.parametrize(
    ("config", "engine", "why"),
    [
        ("CartPole-v1:ppo_lstm", "auto", "Gymnasium's worlds step on the host"),
        ("CartPole-v1:ppo", "eager", "as configured"),
        ("CartPole-v1:dqn", "auto", "the host counts what a replay memory holds"),
        ("FrozenLake-v1:q_learning", "auto", "it does not know q_learning"),
    ],
)
def test_what_cannot_be_captured_is_eager_and_says_why(config, engine, why):
    agent = agent_for(config)
    agent.collector.envs = Elsewhere(agent.collector.envs)
    taken = choose_engine(replace(agent.config, device="cuda", engine=engine), agent)
    assert (taken.name, taken.reason, taken.threads.number) == ("eager", why, 1)
    if engine == "auto":
        with pytest.raises(UserError, match=f"engine: graphed cannot run this config: {why}"):
            choose_engine(replace(agent.config, engine="graphed"), agent)
