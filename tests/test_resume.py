"""A resumed run is the uninterrupted run, bit for bit: weights, optimizer, worlds, metrics.csv.

The first half is stopped by a real signal, the second half is a new process with the command a person would type.
"""

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import train
from agents.algorithms import build_agent
from agents.base import Agent
from agents.experience.nouns import leaves
from config.arguments import parse_arguments
from config.keys import known_keys
from config.loader import from_plain, load_config
from envs_gym.make import make_envs
from trainer_callbacks.csv_log import read_csv
from utils.run_dir import RunDir, list_runs, read_json

ROOT = Path(train.__file__).parent
SMALL = {
    "n_envs": "4",
    "n_steps": "16",
    "batch_size": "0.5",
    "max_timesteps": "1280",  # 20 iterations
    "log_freq_epochs": "2",
    "eval_episodes": "3",
    "eval_freq_epochs": "5",
    "eval_warmup_epochs": "0",
    "early_stop_on_eval_threshold": "false",
}
REPLAY = (
    "train_freq=16",
    "gradient_steps=4",
    "batch_size=8",
    "buffer_size=1000",
    "learning_starts=100",
    "epoch_iterations=1",
    "eval_freq_epochs=5",
    "hidden_dims=32",
)
CASES = {
    "ppo": ["CartPole-v1:ppo", "normalize_obs=true", "normalize_reward=true"],
    "ppo in mid-epoch": ["CartPole-v1:ppo", "epoch_iterations=4", "eval_freq_epochs=2", "log_freq_epochs=1"],
    "ppo, gaussian, rmsprop": ["Pendulum-v1:ppo", "optimizer=rmsprop", "target_kl=0.01"],
    "reinforce": ["CartPole-v1:reinforce"],
    "reinforce with a critic in mid-epoch": [
        "CartPole-v1:reinforce",
        "policy_targets=advantages",
        "epoch_iterations=3",
    ],
    "ppo, lstm": ["CartPole-v1:ppo", "policy=lstm", "normalize_obs=true", "n_epochs=4"],
    "dqn": ["CartPole-v1:dqn", *REPLAY, "normalize_obs=true", "gradient_steps=3", "epoch_iterations=2"],
    "dqn, prioritised, memmap": [
        "CartPole-v1:dqn",
        *REPLAY,
        "prioritised=true",
        "replay_storage=memmap",
        "n_step=3",
        "quantiles=5",
        "buffer_size=400",
        "double_q=true",
        "priority_beta_schedule=linear",
        "priority_beta_schedule_start_value=0.4",
        "priority_beta_schedule_end_value=1",
    ],
    "sac": ["Pendulum-v1:sac", *REPLAY, "hidden_dims=32", "noise_correlation=0.5"],
    "sac, memmap": ["Pendulum-v1:sac", *REPLAY, "hidden_dims=32", "replay_storage=memmap", "buffer_size=400"],
    "q_learning": ["FrozenLake-v1:q_learning", "n_envs=8", "n_steps=8"],
    "pqn": ["CartPole-v1:pqn", "normalize_obs=true"],
    "reinforce, gru": ["CartPole-v1:reinforce", "policy=gru", "policy_targets=advantages", "share_trunk=true"],
}


@pytest.fixture(autouse=True)
def runs_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))


def words(*given: str) -> list[str]:
    """A short run, with the given overrides in place of the short run's own, as far as its algorithm knows them."""
    known = known_keys(load_config(*given[0].split(":")).algo_id)
    last = {word.partition("=")[0]: word for word in given[1:]}
    small = (f"{key}={value}" for key, value in SMALL.items() if key in known and key not in last)
    return [given[0], *last.values(), *small, "-q"]


def run(*given: str, stop_at: int = 0) -> RunDir:
    """Train in this process; with `stop_at` a SIGINT arrives in the middle of that iteration."""
    before = {r.id for r in list_runs()}
    with pytest.MonkeyPatch.context() as patch:
        if stop_at:
            patch.setattr(Agent, "training_step", signalled(Agent.training_step, stop_at))
        code = train.train(parse_arguments(words(*given)))
    assert code == (128 + signal.SIGINT if stop_at else 0)
    return next(r for r in list_runs() if r.id not in before)


def signalled(training_step, iteration: int):
    def step(agent: Agent, dataloader_iter) -> None:
        if agent.progress["iterations"] == iteration - 1:
            os.kill(os.getpid(), signal.SIGINT)
        training_step(agent, dataloader_iter)

    return step


def state_hash(run: RunDir, *parts: str) -> str:
    """SHA-256 of everything in the last checkpoint that the future depends on, or of the named parts of it."""
    checkpoint = torch.load(run.checkpoints / "last.ckpt", weights_only=True)
    ours = checkpoint["stride"]
    state = {"weights": checkpoint["state_dict"], "optimizer": checkpoint["optimizer_states"], **ours["parts"]}
    digest = hashlib.sha256()

    def walk(value) -> None:
        if isinstance(value, torch.Tensor):
            digest.update(value.numpy().tobytes())
        elif isinstance(value, dict):
            for key in value:
                digest.update(str(key).encode())
                walk(value[key])
        elif isinstance(value, list | tuple):
            for item in value:
                walk(item)
        else:
            digest.update(repr(value).encode())

    if state["memory"].get("segments"):
        state["memory"]["segments"] = remembered(run, state["memory"])
    walk({name: state[name] for name in parts or state})
    return digest.hexdigest()


def remembered(run: RunDir, state: dict) -> list[torch.Tensor]:
    """The rows themselves: which checkpoint wrote which of them differs from run to run."""
    config = from_plain(read_json(run.config_json)["config"])
    memory = build_agent(config, make_envs(config, config.n_envs)).memory
    memory.save_in(run.checkpoints / "segments")
    memory.load_state_dict(state)
    row, final = memory.table, memory.final
    cut = row.truncated[:, :, None] if not memory.keep_terminal else None
    assert cut is not None and min(memory.written, memory.rows) > 50
    world = torch.arange(memory.num_envs).expand(memory.rows, -1)
    return [*leaves(row), *(torch.where(cut, x[row.slot, world], 0) for x in leaves(final))]


def rows(run: RunDir) -> list[dict[str, float]]:
    """metrics.csv without the columns that tell of wall time."""
    return [{k: repr(v) for k, v in row.items() if "/time/" not in k} for row in read_csv(run.metrics_csv)]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_2n_equals_n_and_a_new_process_and_n(case):
    straight, halved = run(*case), run(*case, stop_at=9)
    assert read_json(halved.checkpoints / "last.json")["iterations"] == 9
    assert state_hash(halved) != state_hash(straight)
    done = subprocess.run(
        [sys.executable, "train.py", "--resume", halved.id, "-q"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert state_hash(halved) == state_hash(straight)
    assert rows(halved) == rows(straight)


def test_two_runs_of_one_seed_are_equal_and_of_two_seeds_are_not():
    first, second, other = run("CartPole-v1:ppo"), run("CartPole-v1:ppo"), run("CartPole-v1:ppo", "seed=2")
    assert state_hash(first) == state_hash(second) != state_hash(other)
    assert rows(first) == rows(second) != rows(other)


@pytest.mark.parametrize("variant", ["CartPole-v1:ppo", "CartPole-v1:reinforce"])
def test_being_watched_changes_nothing(variant):
    watched, often = run(variant), run(variant, "eval_freq_epochs=1", "eval_deterministic=false")
    alone = run(variant, "eval_freq_epochs=null")
    # not the collector whole: the best mean it has told of depends on when it was asked
    assert len({state_hash(r, "weights", "optimizer", "memory", "reward_scale") for r in (watched, often, alone)}) == 1


def test_a_spent_run_goes_on_with_a_larger_budget_and_drops_its_test_row():
    spent = run("CartPole-v1:ppo", "policy_lr=1e-3", "clip_range=0.2")
    assert any("test/roll/ep_rew/mean" in row for row in read_csv(spent.metrics_csv))
    assert train.main(["--resume", spent.id, "-q", "--max-timesteps", "2560"]) == 0
    told = read_csv(spent.metrics_csv)
    steps = [row["train/clock/env_steps"] for row in told]
    assert steps[-1] == 2560 and steps == sorted(steps)
    facts = read_json(spent.config_json)
    assert facts["config"]["max_timesteps"] == 2560 and facts["outcome"]["env_steps"] == 2560
    assert [again["env_steps"] for again in facts["resumed"]] == [1280]
    assert sum("test/roll/ep_rew/mean" in row for row in told) == 1 and "test/roll/ep_rew/mean" in told[-1]
