"""What the README promises of words and variables: @best, STRIDE_QUIET, debuggers, policies of one's own, budgets."""

import sys
import types

import pytest
from commands import refusal
from gallery import gallery_copy
from tiny_runs import TINY, tiny_run

from stride.agents.networks.policies import POLICIES
from stride.agents.trained.loading import load_run
from stride.commands import run_play, train, train_arguments
from stride.commands.train_arguments import parse_arguments
from stride.config.loader import load_config
from stride.envs_gym.wrappers.registry import WRAPPERS
from stride.runstore import run_dir
from stride.runstore.run_dir import RunDir, list_runs
from stride.trainer_callbacks import session
from stride.trainer_callbacks.evaluate import Evaluate
from stride.utils.durable_file import write_json
from stride.utils.user_error import UserError

OWN = """
import gymnasium
from stride.agents.networks.actor_critic import ActorCritic
from stride.agents.networks.policies import POLICIES
from stride.envs_gym.wrappers.registry import WRAPPERS
POLICIES["net_of_mine"], WRAPPERS["SameOfMine"] = ActorCritic, gymnasium.Wrapper
gymnasium.register("Own-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=100)
"""


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    return tmp_path


def test_best_alone_is_of_the_environment_evaluated_last(monkeypatch):
    def scored(env_id, score):
        run = RunDir.create(env_id, "ppo", 1, {"env_id": env_id, "variant": "ppo"})
        if score is not None:
            write_json(run.checkpoints / "best.json", {"score": score})
        return run

    with pytest.raises(UserError, match="no evaluated run yet"):
        RunDir.find("@best")
    times = iter(f"20260101-0000{n:02}" for n in range(9))
    monkeypatch.setattr(run_dir, "time", types.SimpleNamespace(strftime=lambda form: next(times)))
    high, low = scored("A-v0", 9.0), scored("A-v0", 8.0)
    assert RunDir.find("@best") == RunDir.find("@best:A-v0") == high
    other = scored("B-v0", -200.0)
    scored("C-v0", None)
    assert RunDir.find("@best") == other and RunDir.find("@best:A-v0:ppo") == high
    equal = scored("A-v0", 9.0)
    assert RunDir.find("@best") == equal != low, "among equals the newest"


def test_every_command_takes_best(root, capsys):
    run = gallery_copy("ppo", root / "runs")
    assert load_run("@best").run == run
    assert run_play.command(["--run-id", "@best", "--headless", "--episodes", "1"]) == 0
    assert run.id in capsys.readouterr().out
    assert train.command(["--resume", "@best", "--max-timesteps", "1e2", "-q"]) == 0
    assert run.facts()["outcome"]["env_steps"] == 96 and list_runs() == [run]


def test_stride_quiet_is_quiet(monkeypatch):
    assert not parse_arguments(["CartPole-v1:ppo"]).quiet
    for value, quiet in (("1", True), ("0", False), ("", False)):
        monkeypatch.setenv("STRIDE_QUIET", value)
        assert parse_arguments(["CartPole-v1:ppo"]).quiet is quiet
        assert parse_arguments(["CartPole-v1:ppo", "-q"]).quiet


def test_a_debugger_is_noticed_by_its_trace_function_or_its_name(monkeypatch):
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
        assert attached and train_arguments.attached() and parse_arguments(["CartPole-v1:ppo"]).debug
        tools.clear()
        assert not train_arguments.attached()
    finally:
        sys.settrace(before)


@pytest.mark.slow
def test_under_a_debugger_evaluation_is_one_world_too(monkeypatch):
    made, real = [], session.make_envs

    def make_envs(config, number, device):
        made.append(number)
        return real(config, number)

    monkeypatch.setattr(session, "make_envs", make_envs)
    tiny_run("CartPole-v1:ppo", "--debug", n_envs=1, batch_size=8)
    assert {*made} == {1}, "of evaluation and of the closing test"
    made.clear()
    tiny_run()
    assert 1 not in made
    assert Evaluate(load_config("CartPole-v1", "ppo"), lambda n: None)._most == 32


def test_what_the_module_of_env_id_registers_is_found_wherever_a_run_is_named(root, monkeypatch, capsys):
    (root / "own_module.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(root))
    for registry, name in ((POLICIES, "net_of_mine"), (WRAPPERS, "SameOfMine")):
        monkeypatch.setitem(registry, name, None)  # taken out again after this test
    words = ["env_id=own_module:Own-v0", "policy=net_of_mine", "env_wrappers=[{id: SameOfMine}]", "spec={}"]
    words += [f"{key}={value}" for key, value in TINY.items()]
    assert train.command(["CartPole-v1:ppo", "-q", *words]) == 0, capsys.readouterr().err
    assert load_run("@last").agent.policy.draws == 1
    assert train.command(["--resume", "@last", "--max-timesteps", "96", "-q"]) == 0
    line = refusal(capsys, train.command, "CartPole-v1:ppo", "-q", *words[:1], "policy=net_of_mime")
    assert "did you mean net_of_mine?" in line


@pytest.mark.parametrize(("words", "fragment"), [
    (["FrozenLake-v1:q_learning", "env_backend=gym", "env_kwargs={map_name: 4x5}"], "KeyError: '4x5'"),
    (["FrozenLake-v1:q_learning", "env_backend=gym", "env_kwargs={desc: 3}"], "ValueError: not enough values"),
    pytest.param(["CartPole-v1:ppo", "env_id=ALE/Pong-v5", "spec={}", "env_kwargs={obs_type: rgbb}"],
                 "; did you mean rgb?", marks=pytest.mark.slow),
])  # fmt: skip
def test_arguments_the_environment_refuses_are_one_line_and_no_run(words, fragment, capsys):
    assert fragment in refusal(capsys, train.command, *words, "-q") and list_runs() == []


def test_a_finished_run_says_so_and_keeps_its_verdict(root, capsys):
    run = gallery_copy("ppo", root / "runs")
    before = {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file()}
    line = refusal(capsys, train.command, "--resume", "@last")
    tested = f"{run.facts()['outcome']['test_mean']:.1f} over 100 fresh episodes, goal 475"
    assert f"{run.id} is finished: not solved (budget spent), {tested}" in line
    assert "--max-timesteps 128, or any number from 80 on" in line
    line = refusal(capsys, train.command, "--resume", "@last", "--max-timesteps", "70")
    assert "has done 64 env steps, a budget of 70 is no room for 16 more" in line
    assert {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file()} == before


def test_a_finished_run_whose_worlds_cannot_be_made_again_keeps_its_verdict(root, capsys, monkeypatch):
    run = tiny_run("CartPole-v1:ppo", env_backend="gym")
    facts, report = run.facts(), run.report.read_bytes()
    monkeypatch.setattr("gymnasium.envs.classic_control.CartPoleEnv.__init__", broken)
    assert train.command(["--resume", run.id, "--max-timesteps", "96", "-q"]) == 1
    assert f"test_promises.py:{broken.__code__.co_firstlineno + 1}); traceback in " in capsys.readouterr().err
    assert run.facts() == facts and run.report.read_bytes() == report
    assert "no licence" in run.run_log.read_text()


def broken(*given, **named):
    raise RuntimeError("no licence")


def test_a_sweep_that_is_not_followed_is_named(monkeypatch):
    monkeypatch.setenv("WANDB_SWEEP_ID", "me/sweeps/1")
    assert "WANDB_SWEEP_ID=me/sweeps/1 is ignored" in tiny_run().run_log.read_text()
