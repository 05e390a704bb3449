"""The command a newcomer types: what it leaves behind, what its words mean, one clear line for whatever is wrong."""

import json
import os
import shlex
import subprocess
import sys
import types
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from commands import refusal
from gallery import gallery_copy
from snapshots import shown
from tiny_runs import TINY, tiny_run

from stride.agents.engines.fused_cpu.warm import warm
from stride.agents.networks.policies import POLICIES
from stride.agents.trained.loading import load_run
from stride.commands import train, train_arguments
from stride.commands.train_arguments import parse_arguments
from stride.envs_fast import registry
from stride.envs_gym.wrappers.registry import WRAPPERS
from stride.runstore import run_dir
from stride.runstore.metrics_table import read_csv
from stride.runstore.run_dir import RunDir, list_runs
from stride.trainer_callbacks import session
from stride.utils.durable_file import write_json
from stride.utils.places import program
from stride.utils.user_error import UserError

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
    assert facts["engine"] == facts["play"] == facts["learn"] == "fused_cpu"
    assert facts["status"] == "finished" and facts["outcome"]["env_steps"] == 64
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
    "--seed 1,2 seed=3", "seed=1,2", "polcy_lr=1e-3", "device=cuda engine=fused_cpu", "policy=mpl",
    "policy_kwargs.log_std_int=0", "env_id=CartPole-v7", "env_id=LunarLander-v2", "env_id=nowhere:Thing-v0",
    "env_kwargs.gravty=5", "'env_wrappers=[{id: FramSkip}]'", "normalize_obs=static", "--require-goal test_episodes=0",
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


def test_help_is_shown_whatever_budget_is_typed(capsys):
    for budget, reason in (("max_timesteps=3", "less than one rollout"), ("--max-timesteps=1e6", "")):
        assert train.command(["CartPole-v1:ppo", budget, "gamma=0.5", "--help"]) == 0
        out, err = capsys.readouterr()
        assert "\n  gamma=0.5 " in out and reason in err and err.count("\n") == bool(reason)
    assert train.command(["CartPole-v1:ppo", "max_timesteps=3", "n_steps=0", "--help"]) == 2
    assert "n_steps must be at least 1" in capsys.readouterr().err


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


# ---- what words and variables mean


def test_best_alone_is_of_the_environment_evaluated_last(monkeypatch):
    def scored(env_id, score):
        run = RunDir.create(env_id, "ppo", 1, {"env_id": env_id, "variant": "ppo"})
        write_json(run.checkpoints / "best.json", {"score": score} if score else {})
        return run

    with pytest.raises(UserError, match="no evaluated run yet"):
        RunDir.find("@best")
    times = iter(f"20260101-0000{n:02}" for n in range(9))
    monkeypatch.setattr(run_dir, "time", types.SimpleNamespace(strftime=lambda form: next(times)))
    high, *_, other, _, equal = (scored(*run) for run in zip("AABCA", (9.0, 8.0, -200.0, None, 9.0), strict=True))
    assert RunDir.find("@best") == RunDir.find("@best:A") == equal != high, "among equals the newest"
    equal.path.rename(equal.path.with_name(".gone"))
    assert RunDir.find("@best") == other and RunDir.find("@best:A:ppo") == high


def test_quiet_and_a_debugger_are_noticed_by_variable_trace_function_or_name(monkeypatch):
    for value, quiet in (("1", True), ("0", False), ("", False)):
        monkeypatch.setenv("STRIDE_QUIET", value)
        assert parse_arguments(["CartPole-v1:ppo"]).quiet is quiet
        assert parse_arguments(["CartPole-v1:ppo", "-q"]).quiet
    before = sys.gettrace()
    try:
        sys.settrace(None)
        assert not train_arguments.attached() and not parse_arguments(["CartPole-v1:ppo"]).debug
        sys.settrace(lambda frame, event, argument: None)
        attached = train_arguments.attached()
        sys.settrace(None)
        tools = {0: "debugpy"}
        monkeypatch.setattr(sys, "monitoring", types.SimpleNamespace(DEBUGGER_ID=0, get_tool=tools.get), raising=False)
        monkeypatch.setattr(sys, "version_info", (3, 12, 0))
        parsed = parse_arguments(["CartPole-v1:ppo"])
        assert attached and train_arguments.attached() and parsed.debug and not parsed.checks
        tools.clear()
        assert not train_arguments.attached()
    finally:
        sys.settrace(before)


@pytest.mark.slow
def test_under_a_debugger_evaluation_is_one_world_too(monkeypatch):
    """Checks, which slow a training down, come with --debug alone."""
    monkeypatch.setattr(train_arguments, "attached", lambda: True)
    make_envs = Mock(wraps=session.make_envs)
    monkeypatch.setattr(session, "make_envs", make_envs)
    run = tiny_run(n_envs=1, batch_size=8)
    assert {call.args[1] for call in make_envs.call_args_list} == {1}, "of evaluation and of the closing test"
    assert not (run.path / "logs" / "debug.csv").exists()


OWN = """
import gymnasium
from stride.agents.networks.actor_critic import ActorCritic
from stride.agents.networks.policies import POLICIES
from stride.envs_gym.wrappers.registry import WRAPPERS
POLICIES["net_of_mine"], WRAPPERS["SameOfMine"] = ActorCritic, gymnasium.Wrapper
gymnasium.register("Own-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=100)
"""


def test_what_the_module_of_env_id_registers_is_found_wherever_a_run_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "own_module.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    for names, name in ((POLICIES, "net_of_mine"), (WRAPPERS, "SameOfMine")):
        monkeypatch.setitem(names, name, None)  # taken out again after this test
    mine = {"env_id": "own_module:Own-v0", "policy": "net_of_mine", "env_wrappers": "[{id: SameOfMine}]", "spec": "{}"}
    tiny_run(**mine)
    assert load_run("@last").agent.policy.draws == 1
    assert train.command(["--resume", "@last", "--max-timesteps", "96", "-q"]) == 0
    line = refusal(capsys, train.command, "CartPole-v1:ppo", "env_id=own_module:Own-v0", "policy=net_of_mime")
    assert "did you mean net_of_mine?" in line


@pytest.mark.parametrize(("words", "fragment"), [
    (["FrozenLake-v1:q_learning", "env_backend=gym", "env_kwargs={map_name: 4x5}"], "KeyError: '4x5'"),
    pytest.param(["CartPole-v1:ppo", "env_id=ALE/Pong-v5", "spec={}", "env_kwargs={obs_type: rgbb}"],
                 "; did you mean rgb?", marks=pytest.mark.slow),
])  # fmt: skip
def test_arguments_the_environment_refuses_are_one_line_and_no_run(words, fragment, capsys):
    assert fragment in refusal(capsys, train.command, *words, "-q") and list_runs() == []


def test_a_finished_run_says_so_and_keeps_its_verdict(runs, capsys):
    run = gallery_copy("ppo", runs)
    before = {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file()}
    line = refusal(capsys, train.command, "--resume", "@last")
    tested = f"{run.facts()['outcome']['test_mean']:.1f} over 100 fresh episodes, goal 475"
    assert f"{run.id} is finished: not solved (budget spent), {tested}" in line
    assert "--max-timesteps 128, or any number from 80" in line
    line = refusal(capsys, train.command, "--resume", "@last", "--max-timesteps", "70")
    assert "has done 64 env steps; 16 more would exceed the budget of 70" in line
    assert {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file()} == before


def test_a_finished_run_whose_worlds_cannot_be_made_again_keeps_its_verdict(capsys, monkeypatch):
    def broken(*given, **named):
        raise RuntimeError("no licence")

    run = tiny_run("CartPole-v1:ppo", env_backend="gym")
    facts, report = run.facts(), run.report.read_bytes()
    monkeypatch.setattr("gymnasium.envs.classic_control.CartPoleEnv.__init__", broken)
    assert train.command(["--resume", run.id, "--max-timesteps", "96", "-q"]) == 1
    assert f"test_train.py:{broken.__code__.co_firstlineno + 1}); traceback in " in capsys.readouterr().err
    assert run.facts() == facts and run.report.read_bytes() == report
    assert "no licence" in run.run_log.read_text()


def test_a_sweep_that_is_not_followed_is_named(monkeypatch):
    monkeypatch.setenv("WANDB_SWEEP_ID", "me/sweeps/1")
    assert "WANDB_SWEEP_ID=me/sweeps/1 is ignored" in tiny_run().run_log.read_text()
