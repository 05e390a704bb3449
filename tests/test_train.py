"""The command a newcomer types: what it leaves behind, and one clear line for whatever is wrong with it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from commands import run_command

from stride.agents.engines.fused_cpu.warm import warm
from stride.agents.ppo import PPO
from stride.commands import train
from stride.envs_fast import registry
from stride.runstore.metrics_table import read_csv
from stride.runstore.run_dir import RunDir, list_runs
from stride.utils.places import program

ROOT = Path(__file__).resolve().parent.parent
TINY = ["n_envs=2", "n_steps=8", "batch_size=1.0", "max_timesteps=64", "eval_freq_epochs=2", "eval_warmup_epochs=0"]
TINY += ["eval_episodes=2"]


@pytest.fixture(scope="module", autouse=True)
def kernels():
    """Compiled before the first test, for the line that says so is not what they look for."""
    for algo_id in ("ppo", None):
        warm(registry.make("CartPole-v1", 1, seed=0), algo_id, "tanh", quiet=True)


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def test_a_run_leaves_everything_that_was_promised(capsys):
    assert train.command(["CartPole-v1:reinforce", *TINY]) == 0
    printed = capsys.readouterr().out
    run = RunDir.find("@last")
    facts = json.loads(run.config_json.read_text())
    assert facts["config"]["n_envs"] == 2 and facts["config"]["schema_version"] == 1
    assert facts["command"].startswith(("python ", "stride ")) and facts["versions"]["torch"] == torch.__version__
    assert facts["engine"] == "fused_cpu" and facts["status"] == "finished" and facts["outcome"]["env_steps"] == 64
    names = {path.name for path in run.checkpoints.iterdir()}
    assert names == {"epoch=02.ckpt", "epoch=02.json", "epoch=04.ckpt", "epoch=04.json",
                     "best.ckpt", "best.json", "last.ckpt", "last.json"}  # fmt: skip
    assert os.readlink(run.checkpoints / "last.ckpt") == "epoch=04.ckpt"
    assert all(path.exists() for path in (run.run_log, run.report, run.metrics_csv, run.videos, run.logs))
    assert "not solved" in run.report.read_text().lower()
    assert "FutureWarning" not in printed and "GPU available" not in printed
    assert "fused_cpu" in printed and "not solved" in printed and run.id in printed
    last = read_csv(run.metrics_csv)[-1]
    assert last["train/clock/env_steps"] == 64 and last["test/roll/episodes"] == 100


def test_checkpoints_are_plain_data_with_weights_under_state_dict():
    train.command(["CartPole-v1:ppo", *TINY, "-q"])
    checkpoint = torch.load(RunDir.find("@last").checkpoints / "best.ckpt", weights_only=True)
    assert "policy.actor.0.0.weight" in checkpoint["state_dict"]
    assert checkpoint["stride"]["progress"]["env_steps"] == 64 or checkpoint["stride"]["progress"]["env_steps"] == 32


def test_there_is_a_checkpoint_even_without_evaluation():
    overrides = [word for word in TINY if not word.startswith("eval_")]
    assert train.command(["CartPole-v1:ppo", *overrides, "eval_freq_epochs=null", "-q"]) == 0
    run = RunDir.find("@last")
    assert (run.checkpoints / "last.ckpt").exists() and (run.checkpoints / "best.ckpt").exists()
    assert json.loads(run.config_json.read_text())["outcome"]["test_episodes"] == 100


def test_quiet_is_one_line(capsys):
    train.command(["CartPole-v1:ppo", *TINY, "--quiet"])
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.slow
def test_a_group_of_seeds_is_one_run_each_and_a_summary(capsys):
    assert train.command(["CartPole-v1:ppo", *TINY, "--seed", "3,5"]) == 0
    printed = capsys.readouterr().out
    facts = [json.loads(run.config_json.read_text()) for run in list_runs()]
    assert sorted(fact["seed"] for fact in facts) == [3, 5]
    assert len({fact["group"] for fact in facts}) == 1 and facts[0]["group"] in printed
    assert "seed   3" in printed and "IQM" in printed and "95 %" not in printed and "no interval: 2 seeds" in printed


@pytest.mark.parametrize(
    ("words", "play", "learn"),
    [
        (["engine=eager"], "eager", "eager"),
        (["engine=fused_cpu", "env_backend=gym"], "eager", "fused_cpu"),
        (["engine=fused_cpu"], "fused_cpu", "fused_cpu"),
    ],
)
def test_config_json_says_who_plays_and_who_learns(words, play, learn):
    assert train.command(["CartPole-v1:ppo", *TINY, *words, "-q"]) == 0
    run = RunDir.find("@last")
    facts = json.loads(run.config_json.read_text())
    assert (facts["engine"], facts["play"], facts["learn"]) == (words[0].partition("=")[2], play, learn)


def test_listing_tells_the_last_result(capsys):
    train.command(["--list-envs", "CartPole-v1:ppo"])
    before = row_of("CartPole-v1:ppo", capsys.readouterr().out)
    train.command(["CartPole-v1:ppo", *TINY, "-q"])
    capsys.readouterr()
    train.command(["--list-envs", "CartPole-v1:ppo"])
    after = row_of("CartPole-v1:ppo", capsys.readouterr().out)
    assert "20/20   -" in before and re.search(r"20/20   [\d.]+ not solved ", after)


def row_of(name, listing):
    return next(line for line in listing.splitlines() if line.split()[:1] == [name])


def test_help_teaches(capsys):
    assert train.command(["--help"]) == 0
    assert "--resume" in capsys.readouterr().out
    assert train.command(["CartPole-v1:ppo", "--help"]) == 0
    assert "clip_range=" in capsys.readouterr().out


WRONG = [  # (arguments, fragment of the line)
    ([], "which environment? ENV:VARIANT"),
    (["CartPole-v1"], "ppo"),
    (["CartPole-v1:"], "ppo"),
    (["CartPole-v1:pppo"], "did you mean ppo"),
    (["CartPol-v1:ppo"], "did you mean CartPole-v1"),
    (["cartpole:ppo"], "CartPole-v1"),
    (["CartPole-v9:ppo"], "CartPole-v1"),
    (["CartPole-v1:ppo:x"], "ENV:VARIANT"),
    (["../../etc/passwd:ppo"], "environment '../../etc/passwd'"),
    (["CartPole-v1:ppo", "Acrobot-v1"], "each named ENV:VARIANT, not 'Acrobot-v1'"),
    (["CartPole-v1:ppo", "CartPole-v1:ppo"], "given twice"),
    (["CartPole-v1:ppo", "Acrobot-v1:pppo"], "did you mean"),
    (["CartPole-v1:ppo", "-m", "policy_lr=1e-3,1e-3"], "a value is given twice"),
    (["CartPole-v1:ppo", "-m", "policy_lr=1,,2"], "-m policy_lr=1,,2: "),
    (["CartPole-v1:ppo", "-m", "policy_lr=interval(0,1)"], "takes values, such as policy_lr=1e-3,3e-4"),
    (["CartPole-v1:ppo", "-m", "seed=1,2"], "--seed 1,2,3 says several seeds"),
    (["CartPole-v1:ppo", "-m", "policy_rl=1e-3,1e-4"], "policy_lr"),
    (["CartPole-v1:ppo", "-m", "n_envs=range(1,500)", "--seed", "1-5"], "one command has at most 1,000"),
    (["CartPole-v1:ppo", "--qiet"], "did you mean --quiet"),
    (["CartPole-v1:ppo", "--max-timestep", "5"], "did you mean --max-timesteps"),
    (["CartPole-v1:ppo", "--max-timesteps"], "expected one argument"),
    (["CartPole-v1:ppo", "--max-timesteps", "many"], "max_timesteps"),
    (["CartPole-v1:ppo", "--max-timesteps", "10"], "max_timesteps"),
    (["CartPole-v1:ppo", "--max-timesteps", "-1e5"], "--max-timesteps"),
    (["CartPole-v1:ppo", "--max-timesteps", "1e5", "max_timesteps=1e4"], "already given"),
    (["CartPole-v1:ppo", "--seed", "one"], "whole numbers"),
    (["CartPole-v1:ppo", "--seed", "-1"], "--seed"),
    (["CartPole-v1:ppo", "--seed", "1,1"], "twice"),
    (["CartPole-v1:ppo", "--seed", "5-1"], "backwards"),
    (["CartPole-v1:ppo", "--seed", "1,2", "seed=3"], "seed"),
    (["CartPole-v1:ppo", "seed=1,2"], "--seed 1,2"),
    (["CartPole-v1:ppo", "polcy_lr=1e-3"], "did you mean policy_lr"),
    (["CartPole-v1:ppo", "--polcy_lr=1e-3"], "did you mean policy_lr"),
    (["CartPole-v1:ppo", "+policy_lr=1e-3"], "write key=value"),
    (["CartPole-v1:ppo", "policy_lr=fast"], "policy_lr"),
    (["CartPole-v1:ppo", "policy_lr=lin_fast"], "not a schedule"),
    (["CartPole-v1:ppo", "n_envs=lin_8"], "n_envs cannot"),
    (["CartPole-v1:ppo", "n_envs=0"], "n_envs"),
    (["CartPole-v1:ppo", "n_envs=3", "batch_size=64"], "64"),
    (["CartPole-v1:ppo", "batch_size=0.3"], "batch_size"),
    (["CartPole-v1:reinforce", "clip_range=0.1"], "belongs to ppo"),
    (["CartPole-v1:ppo", "engine=fused"], "engine"),
    (["CartPole-v1:ppo", "engine=fused_gpu"], "engine: fused_gpu needs device: cuda"),
    (["CartPole-v1:ppo", "engine=graphed"], "engine: graphed needs device: cuda"),
    (["CartPole-v1:ppo", "device=cuda", "engine=fused_cpu"], "engine: fused_cpu needs device: cpu"),
    (["CartPole-v1:dqn", "device=cuda", "replay_storage=memmap"], "replay_storage: memmap needs device: cpu"),
    (["FrozenLake-v1:q_learning", "precision=bf16"], "precision: bf16 is of networks, and q_learning has none"),
    (["CartPole-v1:ppo", "device=gpu"], "device"),
    (["CartPole-v1:ppo", "optimizer=adamax"], "adam"),
    (["CartPole-v1:ppo", "policy=mpl"], "did you mean mlp"),
    (["CartPole-v1:ppo", "policy_kwargs.log_std_int=0"], "did you mean log_std_init"),
    (["CartPole-v1:ppo", "env_id=CartPole-v7"], "CartPole-v1"),
    (["CartPole-v1:ppo", "env_id=Cartpole-v1"], "did you mean CartPole-v1"),
    (["CartPole-v1:ppo", "env_id=LunarLander-v2"], "LunarLander-v3"),
    (["CartPole-v1:ppo", "env_id=nowhere:Thing-v0"], "no Python module 'nowhere'"),
    (["CartPole-v1:ppo", "env_kwargs.gravty=5"], "gravty"),
    (["CartPole-v1:ppo", "env_wrappers=[{id: FramSkip}]"], "did you mean FrameSkip"),
    (["CartPole-v1:ppo", "normalize_obs=static"], "static needs bounds"),
    (["--config", "nowhere.yaml"], "nowhere.yaml"),
    (["--config", "."], "."),
    (["--resume", "@last"], "no run"),
    (["--resume", "20990101"], "no run"),
    (["--resume", "../x"], "not"),
    (["--resume", "@best:CartPole-v1"], "no evaluated run"),
    (["--resume", "@last", "CartPole-v1:ppo"], "--resume takes everything"),
    (["--list-envs", "pacman"], "matches"),
]


@pytest.mark.parametrize(("arguments", "fragment"), WRONG, ids=[" ".join(arguments) for arguments, _ in WRONG])
def test_wrong_input_is_one_line_and_leaves_no_run(arguments, fragment, capsys, runs):
    assert train.command(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: "), captured.err
    assert fragment in lines[0]
    assert not runs.exists() or not any(runs.iterdir())


@pytest.mark.parametrize(
    ("env_id", "package", "extra"),
    [("LunarLander-v3", "Box2D", "box2d"), ("HalfCheetah-v5", "mujoco", "mujoco"), ("ALE/Pong-v5", "ale_py", "atari")],
)
def test_a_missing_extra_names_its_install(env_id, package, extra, monkeypatch, capsys, runs):
    for name in [name for name in sys.modules if name.startswith((package, f"gymnasium.envs.{extra}"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    assert train.command(["CartPole-v1:ppo", f"env_id={env_id}"]) == 2
    assert f"pip install 'stride-rl[{extra}]'" in capsys.readouterr().err
    assert not runs.exists()


def test_the_process_exits_with_2_and_one_line(runs):
    done = run_command("train.py", "CartPole-v1:ppo", "polcy_lr=1")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: ") and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", [["CartPole-v1:ppo"], ["--resume", "@last"]], ids=["new", "resumed"])
def test_a_folder_that_cannot_be_written_to_is_refused_before_torch_is_loaded(words):
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *program("train")[1:], *words], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "STRIDE_RUNS": "/proc"},
    )  # fmt: skip
    *imports, said = done.stderr.splitlines()
    assert done.returncode == 2 and said.startswith("error: ") and "/proc" in said
    loaded = {line.rpartition("|")[2].strip() for line in imports}
    assert "stride.commands.train_opening" in loaded and not loaded & {"torch", "lightning", "numba", "gymnasium"}


def test_it_runs_from_another_folder(tmp_path, runs):
    done = run_command(ROOT / "train.py", "CartPole-v1:ppo", *TINY, "-q", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert RunDir.find("@last").metrics_csv.exists()


def test_a_numbers_fault_is_one_line_and_the_last_checkpoint_is_whole(capsys, monkeypatch):
    judge = PPO.judge

    def poisoned(agent, rollout):
        batch = judge(agent, rollout)
        return batch._replace(target=batch.target * float("nan")) if agent.progress["iterations"] == 3 else batch

    monkeypatch.setattr(PPO, "judge", poisoned)
    assert train.command(["CartPole-v1:ppo", *TINY, "engine=eager", "-q"]) == 1
    assert "iteration 4" in capsys.readouterr().err
    weights = torch.load(RunDir.find("@last").checkpoints / "last.ckpt", weights_only=True)["state_dict"]
    assert all(value.isfinite().all() for value in weights.values())
    assert not (RunDir.find("@last").checkpoints / "epoch=04.ckpt").exists()
