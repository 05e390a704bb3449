"""Two processes, two sets of worlds, one set of weights: gradients are averaged, nothing else is shared."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from commands import run_command

ROOT = Path(__file__).parent.parent
PROGRAM = """
import hashlib, json, os, sys, torch
torch.set_num_threads(1)
from stride.agents.engines.choice import build_agent
from stride.config.loader import load_config
from stride.envs_gym.make import make_envs
from stride.trainer_callbacks.session import build_trainer
from stride.trainer_callbacks.stop import Stop

config = load_config("CartPole-v1", "ppo", ["n_envs=4", "n_steps=16", "n_epochs=2", "max_timesteps=384", *sys.argv[1:]])
rank = int(os.environ.get("LOCAL_RANK", 0))
agent = build_agent(config, make_envs(config, config.n_envs), rank)
trainer = build_trainer(
    [Stop(config, None, lambda agent: {})], devices=2, strategy="ddp", enable_checkpointing=False
)
trainer.fit(agent)
digest = lambda tensors: hashlib.sha256(b"".join(t.detach().numpy().tobytes() for t in tensors)).hexdigest()
line = "RANK " + json.dumps({"rank": rank, "weights": digest(agent.policy.parameters()),
      "acted": digest(agent.collector.policy.parameters()),
      "memory": digest([agent.memory.table.obs]), **agent.progress}) + "\\n"
sys.stdout.write(line)  # one write: two processes share the pipe
"""


@pytest.mark.parametrize("lag", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_ranks_hold_equal_weights_and_different_memories(lag, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PL_TORCH_DISTRIBUTED_BACKEND": "gloo"}
    done = run_command(tmp_path / "program.py", f"lag={lag}", env=environment, cwd=tmp_path)
    ranks = [json.loads(line.removeprefix("RANK ")) for line in done.stdout.splitlines() if line.startswith("RANK ")]
    assert {rank["rank"] for rank in ranks} == {0, 1}, done.stderr
    first, second = ranks
    assert first["weights"] == second["weights"] and first["acted"] == second["acted"]
    assert (first["acted"] == first["weights"]) == (lag == 0)
    assert first["weights"] != hashlib.sha256(b"").hexdigest()
    assert first["memory"] != second["memory"]
    assert first["env_steps"] == second["env_steps"] == 384 and first["iterations"] == 3
