"""The command a newcomer types: what it leaves behind, and one clear line for whatever is wrong with it."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from snapshots import shown
from tiny_runs import TINY

from stride.agents.engines.fused_cpu.warm import warm
from stride.agents.ppo import PPO
from stride.commands import train
from stride.envs_fast import registry
from stride.runstore.metrics_table import read_csv
from stride.runstore.run_dir import RunDir, list_runs
from stride.utils.places import program

ROOT = Path(__file__).resolve().parent.parent
WORDS = [f"{key}={value}" for key, value in TINY.items()]


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def facts_of(*words):
    """What a training's config.json says."""
    assert train.command([*words]) == 0
    return json.loads(RunDir.find("@last").config_json.read_text())


def test_a_run_leaves_everything_that_was_promised(capsys):
    for algo_id in ("ppo", None):  # else a line says that kernels are compiled
        warm(registry.make("CartPole-v1", 1, seed=0), algo_id, "tanh", quiet=True)
    facts, run = facts_of("CartPole-v1:reinforce", *WORDS), RunDir.find("@last")
    printed = capsys.readouterr().out
    assert facts["config"]["n_envs"] == 2 and facts["config"]["schema_version"] == 1
    assert facts["command"].startswith(("python ", "stride ")) and facts["versions"]["torch"] == torch.__version__
    assert facts["engine"] == "fused_cpu" and facts["status"] == "finished" and facts["outcome"]["env_steps"] == 64
    names = {path.name for path in run.checkpoints.iterdir()}
    assert names == {f"{name}.{kind}" for name in ("epoch=02", "epoch=04", "best", "last") for kind in ("ckpt", "json")}
    assert os.readlink(run.checkpoints / "last.ckpt") == "epoch=04.ckpt"
    assert all(path.exists() for path in (run.run_log, run.report, run.metrics_csv, run.videos, run.logs))
    assert "not solved" in run.report.read_text().lower()
    assert "FutureWarning" not in printed and "GPU available" not in printed
    assert "fused_cpu" in printed and "not solved" in printed and run.id in printed
    last = read_csv(run.metrics_csv)[-1]
    assert last["train/clock/env_steps"] == 64 and last["test/roll/episodes"] == 100
    checkpoint = torch.load(run.checkpoints / "best.ckpt", weights_only=True)
    assert "policy.actor.0.0.weight" in checkpoint["state_dict"]
    assert checkpoint["stride"]["progress"]["env_steps"] in (32, 64)


def test_quiet_is_one_line_and_there_is_a_checkpoint_even_without_evaluation(capsys):
    facts = facts_of("CartPole-v1:ppo", *WORDS[:4], "eval_freq_epochs=null", "--quiet")
    assert len(capsys.readouterr().out.splitlines()) == 1 and facts["outcome"]["test_episodes"] == 100
    assert {"last.ckpt", "best.ckpt"} <= {path.name for path in RunDir.find("@last").checkpoints.iterdir()}


@pytest.mark.slow
def test_a_group_of_seeds_is_one_run_each_and_a_summary(capsys):
    assert train.command(["CartPole-v1:ppo", *WORDS, "--seed", "3,5"]) == 0
    printed = capsys.readouterr().out
    facts = [run.facts() for run in list_runs()]
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
    facts = facts_of("CartPole-v1:ppo", *WORDS, *words, "-q")
    assert (facts["engine"], facts["play"], facts["learn"]) == (words[0].partition("=")[2], play, learn)


WRONG = [
    "", "CartPole-v1", "CartPole-v1:", "CartPole-v1:pppo", "CartPol-v1:ppo", "cartpole:ppo", "CartPole-v9:ppo",
    "CartPole-v1:ppo:x", "../../etc/passwd:ppo", "CartPole-v1:ppo Acrobot-v1", "CartPole-v1:ppo CartPole-v1:ppo",
    "CartPole-v1:ppo Acrobot-v1:pppo", "CartPole-v1:reinforce clip_range=0.1",
    "CartPole-v1:dqn device=cuda replay_storage=memmap", "FrozenLake-v1:q_learning precision=bf16",
    "--config nowhere.yaml", "--config .", "--list-envs pacman", "--resume @last", "--resume 20990101",
    "--resume ../x", "--resume @best:CartPole-v1", "--resume @last CartPole-v1:ppo",
]  # fmt: skip
WRONG_OF_PPO = [
    "-m policy_lr=1e-3,1e-3", "-m policy_lr=1,,2", "-m policy_lr=interval(0,1)", "-m policy_lr=glob(*)", "-m seed=1,2",
    "-m policy_rl=1e-3,1e-4", "-m n_envs=range(1,500) --seed 1-5", "--qiet", "--polcy_lr=1e-3", "--max-timestep 5",
    "--max-timesteps", "--max-timesteps many", "--max-timesteps 10", "--max-timesteps -1e5",
    "--max-timesteps 1e5 max_timesteps=1e4", "--seed one", "--seed -1", "--seed 1,1", "--seed 5-1",
    "--seed 1,2 seed=3", "seed=1,2", "polcy_lr=1e-3", "+policy_lr=1e-3", "policy_lr=fast", "policy_lr=lin_fast",
    "n_envs=lin_8", "n_envs=0", "n_envs=3 batch_size=64", "batch_size=0.3", "engine=fused", "engine=fused_gpu",
    "engine=graphed", "device=cuda engine=fused_cpu", "device=gpu", "optimizer=adamax", "policy=mpl",
    "policy_kwargs.log_std_int=0", "env_id=CartPole-v7", "env_id=Cartpole-v1", "env_id=LunarLander-v2",
    "env_id=nowhere:Thing-v0", "env_kwargs.gravty=5", "'env_wrappers=[{id: FramSkip}]'", "normalize_obs=static",
    "--require-goal test_episodes=0",
]  # fmt: skip
OTHERS = [  # names that more variants, worlds or registrations would add, and a sentence of Hydra's
    (r" \((?:known: |CartPole-v1:).*\)", ""),
    (r"((?:needs a variant:|did you mean) [\w/:-]+)(?:, [\w/:-]+)*", r"\1"),
    ("extraneous input .*", "<why>"),
]


def test_wrong_input_is_one_line_and_leaves_no_run(capsys, runs, tmp_path, monkeypatch, snapshot):
    monkeypatch.chdir(tmp_path)
    lines = []
    for words in [*WRONG, *(f"CartPole-v1:ppo {words}" for words in WRONG_OF_PPO)]:
        code = train.command(shlex.split(words))
        out, line = capsys.readouterr()
        assert (code, out, line.count("\n")) == (2, "", 1) and line.startswith("error: "), (words, code, out, line)
        lines += [words, f"    {line.strip()}"]
    assert not runs.exists() or not any(runs.iterdir())
    assert shown("\n".join(lines), *OTHERS) == snapshot


@pytest.mark.parametrize(
    ("env_id", "package", "extra"),
    [("LunarLander-v3", "Box2D", "box2d"), ("HalfCheetah-v5", "mujoco", "mujoco"), ("ALE/Pong-v5", "ale_py", "atari")],
)
def test_a_missing_extra_names_its_install(env_id, package, extra, monkeypatch, capsys, runs):
    for name in [name for name in sys.modules if name.startswith((package, f"gymnasium.envs.{extra}"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    assert train.command(["CartPole-v1:ppo", f"env_id={env_id}"]) == 2
    assert f"pip install 'stride-rl[{extra}]'" in capsys.readouterr().err and not runs.exists()


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


def test_a_numbers_fault_is_one_line_and_the_last_checkpoint_is_whole(capsys, monkeypatch):
    judge = PPO.judge

    def poisoned(agent, rollout):
        batch = judge(agent, rollout)
        return batch._replace(target=batch.target * float("nan")) if agent.progress["iterations"] == 3 else batch

    monkeypatch.setattr(PPO, "judge", poisoned)
    assert train.command(["CartPole-v1:ppo", *WORDS, "engine=eager", "-q"]) == 1
    assert "iteration 4" in capsys.readouterr().err
    weights = torch.load(RunDir.find("@last").checkpoints / "last.ckpt", weights_only=True)["state_dict"]
    assert all(value.isfinite().all() for value in weights.values())
    assert not (RunDir.find("@last").checkpoints / "epoch=04.ckpt").exists()
