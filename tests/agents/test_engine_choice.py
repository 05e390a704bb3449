"""Which engine a config gets: one refuses by name what it does not know; `engine: auto` takes the next and says why."""

from dataclasses import replace

import pytest
import torch
from driven import agent_for
from same_as_eager import gpu_worlds, on_eager
from tape import TapedEnv

from stride.agents.engines.choice import choose_engine, choose_on_cpu, choose_on_gpu, may_be_fused
from stride.agents.engines.fused_cpu import engine as cpu_engine
from stride.agents.engines.fused_cpu.play import AttachedPlay
from stride.agents.engines.fused_gpu import engine as gpu_engine
from stride.agents.engines.fused_gpu.ahead import Ahead
from stride.agents.engines.plan.on_policy import PPORecipe
from stride.agents.sockets import EagerPlay
from stride.config.loader import load_config
from stride.utils.user_error import UserError

ON_HOST = "Gymnasium's worlds step on the host"
NOT_16 = "batch_size 24 is not a multiple of 16, the sequences it takes side by side"
SHARED = "hidden_dims [512, 512] need 1,311 KB of shared memory, a block has 227 KB"
ONE_LAYER = "precision: bf16 is of what hidden layers multiply with one another, and there is one"
# for each engine that is asked: configs that it refuses, what `engine: auto` takes, and why
REFUSED = {
    "fused_cpu": {
        "CartPole-v1:ppo policy=lstm": ("eager", "it does not know policy: lstm"),
        "CartPole-v1:ppo optimizer=sgd": ("eager", "it does not know optimizer: sgd"),
        "CartPole-v1:ppo hidden_dims=[]": ("eager", "hidden_dims"),
        "CartPole-v1:ppo lag=1": ("eager", "it does not know lag"),
        "CartPole-v1:dqn prioritised=true": ("eager", "prioritised"),
        "CartPole-v1:dqn quantiles=5": ("eager", "quantiles"),
        "CartPole-v1:dqn optimizer=sgd": ("eager", "optimizer: sgd"),
        "Pendulum-v1:sac hidden_dims=[]": ("eager", "hidden_dims"),
        "Pendulum-v1:sac nan_guard=skip": ("eager", "nan_guard"),
        "CartPole-v1:dreamer batch_size=24": ("eager", NOT_16),
        "CartPole-v1:dreamer size=1m": ("eager", "it does not know cells of 8 blocks, as in size: 1m"),
    },
    "fused_gpu": {
        "CartPole-v1:ppo hidden_dims=[512,512]": ("graphed", SHARED),
        "CartPole-v1:ppo policy=gru": ("graphed", "it does not know policy: gru"),
        "CartPole-v1:ppo precision=bf16 hidden_dims=[64]": ("graphed", ONE_LAYER),
        "Blackjack-v1:ppo": ("graphed", "the observation has more than one part"),
        "CartPole-v1:dqn": ("eager", "fused_gpu does not know dqn"),
    },
    "graphed": {
        "CartPole-v1:ppo_lstm": ("eager", ON_HOST),
        "CartPole-v1:dqn": ("eager", "the host counts what a replay memory holds"),
        "FrozenLake-v1:q_learning": ("eager", "it does not know q_learning"),
    },
}


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


@pytest.mark.parametrize(("asked", "words"), [(asked, words) for asked in REFUSED for words in REFUSED[asked]])
def test_an_engine_refuses_by_name_and_auto_takes_the_next(asked, words):
    agent, (name, why) = agent_of(words, asked), REFUSED[asked][words]
    choose = choose_on_cpu if asked == "fused_cpu" else choose_on_gpu
    taken = choose(replace(agent.config, engine="auto"), agent)
    assert taken.name == name and (why in taken.reason or words == "CartPole-v1:dqn")
    with pytest.raises(UserError) as error:
        choose(replace(agent.config, engine=asked), agent)
    assert str(error.value).startswith(f"engine: {asked} cannot run this config: ") and why in str(error.value)
    assert str(error.value).endswith(f"; engine: auto takes {name}")


@pytest.mark.parametrize("config", ["CartPole-v1:ppo", "CartPole-v1:dreamer"])
def test_auto_leaves_precision_to_eager(config):
    assert agent_for(config, "precision=bf16").engine[:2] == ("eager", "it does not know precision: bf16")


def test_eager_is_taken_as_configured():
    for asked in ("fused_cpu", "graphed"):
        agent = agent_of("CartPole-v1:ppo", asked)
        assert choose_engine(replace(agent.config, engine="eager"), agent)[:2] == ("eager", "as configured")


def test_fused_cpu_refuses_a_processor_that_nobody_has_tried(monkeypatch):
    monkeypatch.setattr(cpu_engine, "FEATURES", frozenset({"neon", "fp-armv8"}))
    agent = agent_for("CartPole-v1:ppo")
    assert agent.engine.name == "eager" and "AVX2" in agent.engine.reason
    assert not may_be_fused(load_config("CartPole-v1", "ppo"))  # so none of its kernels are compiled for nothing
    with pytest.raises(UserError, match="fused_cpu cannot run this config: its kernels need a processor with AVX2"):
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
        assert engine[:2] == ("fused_gpu", "knows all the config asks for")
        assert isinstance(engine.play, Ahead) == ("lag=1" in words), "played beside the updates"
    assert on_gpu(agent, engine="graphed").name == "graphed"


def test_tensor_cores_that_a_gpu_does_not_have_are_refused(monkeypatch):
    agent = agent_of("CartPole-v1:ppo hidden_dims=[16,32]", "fused_gpu")
    monkeypatch.setattr(gpu_engine, "capability", lambda device: (7, 5))
    with pytest.raises(UserError, match="precision: tf32 needs a GPU from sm_80 on, this one is sm_75; engine: auto"):
        on_gpu(agent, engine="fused_gpu", precision="tf32")


def test_of_gymnasiums_worlds_fused_gpu_says_who_steps_them():
    engine = on_gpu(on_eager("CartPole-v1:ppo", "env_backend=gym"), engine="auto")
    assert (engine.name, engine.reason) == ("fused_gpu", f"updates only: {ON_HOST}")
    assert (engine.play.name, engine.learn.name) == ("eager", "fused_gpu")
