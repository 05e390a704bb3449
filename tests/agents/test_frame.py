"""The frame of the fused engine: an address that a kernel reads and nobody bound is an error that names it."""

import ast
import re
from pathlib import Path

import pytest
from driven import advance, agent_for

from stride.agents.engines.fused_cpu.kernels import minibatches, nets, replay, rollout
from stride.utils import kernel_folder

ROLLOUT = ("n_steps=16", "n_envs=4", "batch_size=32", "n_epochs=1", "engine=fused_cpu")
REPLAY = ("n_envs=2", "train_freq=16", "gradient_steps=2", "buffer_size=300", "learning_starts=20", "engine=fused_cpu")
AGENTS = {
    "CartPole-v1:ppo": (ROLLOUT, (rollout.play, minibatches.learn, nets.fetch_parameters)),
    "Taxi-v4:ppo": (ROLLOUT, (minibatches.learn,)),
    "CartPole-v1:reinforce": (ROLLOUT, (rollout.play, minibatches.learn)),
    "CartPole-v1:dqn": (REPLAY, (rollout.play, replay.learn, replay.draw, nets.turn)),
    "Pendulum-v1:sac": (REPLAY, (rollout.play, replay.learn, replay.draw)),
}


@pytest.mark.parametrize("config", AGENTS)
def test_each_entry_that_is_not_bound_is_named(config):
    words, kernels = AGENTS[config]
    agent = advance(agent_for(config, *words), 3)
    bound = agent.engine.learn.bound
    frame = bound.frame
    for kernel in kernels:
        read = frame.read_by(kernel) - {*bound.unread}
        assert "parameters" in read or kernel is replay.draw
        frame.check(kernel, bound.unread)
        for entry in read:
            frame._complete.clear()
            address = getattr(frame.fields, entry)
            setattr(frame.fields, entry, 0)
            with pytest.raises(RuntimeError, match=rf"the frame of the fused engine has no {entry}, which"):
                frame.check(kernel, bound.unread)
            setattr(frame.fields, entry, address)
        frame.check(kernel, bound.unread)


@pytest.mark.parametrize(("config", "entry"), [("CartPole-v1:ppo", "final_obs"), ("CartPole-v1:dqn", "turned")])
def test_an_iteration_says_so_before_any_kernel_runs(config, entry):
    agent = advance(agent_for(config, *AGENTS[config][0]), 3)
    frame = agent.engine.learn.bound.frame
    frame._complete.clear()
    setattr(frame.fields, entry, 0)
    with pytest.raises(RuntimeError, match=f"has no {entry}, which"):
        advance(agent, 1)


def test_what_a_kernel_reads_is_found_through_names_and_addresses():
    frame = advance(agent_for("CartPole-v1:ppo", *ROLLOUT), 1).engine.learn.bound.frame
    play, learn = frame.read_by(rollout.play), frame.read_by(minibatches.learn)
    assert {"scratch", "forward", "forward_layer", "log_softmax", "centre", "turned", "draws"} <= play
    assert {"judge", "final_value", "moments", "second_moment", "backward_layer", "key", "mask"} <= learn
    assert "gradient" not in play and "draws" not in learn and "noise" not in learn


def test_an_edit_of_whatever_a_kernel_takes_from_another_file_is_noticed():
    """Numba itself looks at a kernel's own file only."""
    root = kernel_folder.PROJECT
    hashed = {path for folder in kernel_folder.SOURCES for path in (root / folder).glob("*.py")}
    hashed |= {root / file for file in kernel_folder.ALONE}
    assert {path for path in (root / "agents").rglob("*.py") if "@njit" in path.read_text()} <= hashed
    files = [path for path in (root / "agents" / "engines").rglob("*.py") if "@njit" in path.read_text()]
    files += [path for path in (root / "utils").glob("*.py") if re.search("^@(njit|intrinsic)", path.read_text(), re.M)]
    assert len(files) > 14
    for path in files:
        assert path in hashed
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("agents."):
                assert root / Path(*node.module.split(".")).with_suffix(".py") in hashed, (path.name, node.module)
