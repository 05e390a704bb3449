"""The frame of the fused engine: an address that a kernel reads and nobody bound is an error that names it."""

import ast
import re
from pathlib import Path

import pytest
from driven import advance
from same_as_eager import on_fused_cpu

from stride.agents.engines.fused_cpu.episodes import FusedEpisodes
from stride.agents.engines.fused_cpu.kernels import minibatches, nets, replay, rollout
from stride.agents.engines.fused_cpu.kernels.episodes import play_episodes
from stride.agents.experience.collector import Collector
from stride.envs_gym.make import make_envs
from stride.utils import kernel_folder
from stride.utils.counter_rng import EVALUATE

ROLLOUT = ("n_steps=16", "n_envs=4", "batch_size=32", "n_epochs=1")
REPLAY = ("n_envs=2", "train_freq=16", "gradient_steps=2", "buffer_size=300", "learning_starts=20")
AGENTS = {
    "CartPole-v1:ppo": (ROLLOUT, (rollout.play, minibatches.learn, nets.fetch_parameters)),
    "Taxi-v4:ppo": (ROLLOUT, (minibatches.learn,)),
    "CartPole-v1:reinforce": (ROLLOUT, (rollout.play, minibatches.learn)),
    "CartPole-v1:dqn": (REPLAY, (rollout.play, replay.learn, replay.draw, nets.turn)),
    "Pendulum-v1:sac": (REPLAY, (rollout.play, replay.learn, replay.draw)),
}


def assert_names_what_is_missing(frame, kernel, unread):
    frame.check(kernel, unread)
    for entry in frame.read_by(kernel) - {*unread}:
        frame._complete.clear()
        address = getattr(frame.fields, entry)
        setattr(frame.fields, entry, 0)
        with pytest.raises(
            RuntimeError, match=rf"the frame of the fused engine has no {entry}, which {kernel.__name__}"
        ):
            frame.check(kernel, unread)
        setattr(frame.fields, entry, address)
    frame.check(kernel, unread)


@pytest.mark.parametrize("config", AGENTS)
def test_each_entry_that_is_not_bound_is_named(config):
    words, kernels = AGENTS[config]
    agent = advance(on_fused_cpu(config, *words), 3)
    bound = agent.engine.learn.bound
    for kernel in kernels:
        assert "parameters" in bound.frame.read_by(kernel) or kernel is replay.draw
        assert_names_what_is_missing(bound.frame, kernel, bound.unread)
    if not isinstance(agent.engine.episodes, FusedEpisodes):
        return
    collector = Collector(make_envs(agent.config, 7), agent.policy, 11, EVALUATE, greedy=True)
    agent.engine.episodes.play(agent, collector, 3, 5)
    assert_names_what_is_missing(agent.engine.episodes._actors[True].frame, play_episodes, ("final_obs", "draws"))


@pytest.mark.parametrize(("config", "entry"), [("CartPole-v1:ppo", "final_obs"), ("CartPole-v1:dqn", "turned")])
def test_an_iteration_says_so_before_any_kernel_runs(config, entry):
    agent = advance(on_fused_cpu(config, *AGENTS[config][0]), 3)
    frame = agent.engine.learn.bound.frame
    frame._complete.clear()
    setattr(frame.fields, entry, 0)
    with pytest.raises(RuntimeError, match=f"has no {entry}, which"):
        advance(agent, 1)


def test_what_a_kernel_reads_is_found_through_names_and_addresses():
    frame = advance(on_fused_cpu("CartPole-v1:ppo", *ROLLOUT), 1).engine.learn.bound.frame
    play, learn = frame.read_by(rollout.play), frame.read_by(minibatches.learn)
    assert {"scratch", "forward", "forward_layer", "log_softmax", "centre", "turned", "draws"} <= play
    assert {"judge", "final_value", "moments", "second_moment", "backward_layer", "key", "mask"} <= learn
    assert "gradient" not in play and "draws" not in learn and "noise" not in learn


def test_an_edit_of_whatever_a_kernel_takes_from_another_file_is_noticed():
    """Numba itself looks at a kernel's own file only."""
    root = kernel_folder.PROJECT
    hashed = {path for folder in kernel_folder.SOURCES for path in (root / folder).glob("*.py")}
    hashed |= {root / file for file in kernel_folder.ALONE}
    kernels = re.compile("^ *@(njit|intrinsic)", re.MULTILINE)
    files = [*(root / "agents").rglob("*.py"), *(root / "utils").glob("*.py")]
    files = [path for path in files if kernels.search(path.read_text())]
    assert len(files) > 14 and hashed.issuperset(files)
    for path in (path for path in files if "experience" not in path.parts):  # which have more in them than kernels
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("stride.agents."):
                file = Path(*node.module.split(".")[1:]).with_suffix(".py")
                assert root / file in hashed, (path.name, node.module)
