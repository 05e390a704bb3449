"""`shards: S` is one training: statistics are those of all worlds, bits do not depend on who carries the parts."""

import math
import os
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from commands import refusal, start_command

from stride.agents.engines.crew import lead
from stride.agents.experience.finite_guard import NonFiniteNumber
from stride.agents.experience.shards import Shard, Table, tree_sum
from stride.agents.returns import standardize
from stride.commands import train
from stride.commands.plain_tree import fingerprint
from stride.commands.rank import OURS, Rank, rank_of
from stride.commands.train_ranks import check_processes
from stride.config.loader import load_config
from stride.envs_fast.vec_env import Step
from stride.runstore.metrics_table import read_csv
from stride.runstore.run_dir import RunDir, list_runs
from stride.runstore.run_files import read_json
from stride.trainer_callbacks.session import build_trainer
from stride.trainer_callbacks.stop import Stop
from stride.utils.user_error import NumbersError, UserError

ROOT = Path(__file__).parent.parent
ITERATION = 128  # env steps
SMALL = dict(
    n_envs=8, n_steps=16, batch_size=0.5, n_epochs=2, max_timesteps=10 * ITERATION, test_episodes=10, eval_episodes=3,
    eval_freq_epochs=5, log_freq_epochs=1, checkpoint_freq_epochs=5, early_stop_on_eval_threshold="false",
)  # fmt: skip
NORMALIZED = dict(normalize_obs="true", normalize_reward="true", target_kl=0.01)


def words(variant: str = "", **overrides: object) -> list[str]:
    """A short training, with these overrides in place of its own."""
    return [*[variant] * bool(variant), *(f"{key}={value}" for key, value in {**SMALL, **overrides}.items())]


def ppo(**overrides: object) -> list[str]:
    return words("CartPole-v1:ppo", **{**NORMALIZED, "shards": 4, **overrides})


@pytest.fixture(autouse=True)
def runs_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def together(count: int, work) -> list:
    """What `work(shard)` answers in each of `count` shards."""
    table, answers = Table(count), [None] * count

    def attend(number: int) -> None:
        answers[number] = work(Shard(number, count, table, number))

    table.run([lambda number=number: attend(number) for number in range(count)])
    return answers


def test_statistics_are_those_of_all_shards():
    x = torch.randn(16, 8) * 3 + 50
    parts = x.chunk(4, 1)
    for standardized in together(4, lambda shard: shard.standardize(parts[shard.number])):
        assert len(standardized) == 16
    whole = together(4, lambda shard: shard.worlds(shard.standardize(parts[shard.number]))[0])
    assert all(torch.allclose(each, standardize(x), atol=1e-5) for each in whole)
    for shard_says in together(4, lambda shard: [of(parts[shard.number]) for of in (shard.variance, shard.deviation)]):
        variance, deviation = shard_says
        assert torch.allclose(variance, x.var()) and torch.allclose(deviation, x.std())


def test_sums_of_aligned_blocks_are_the_sum_of_all():
    parts = [torch.randn(1000) * 10.0 ** (number - 4) for number in range(8)]
    halves = tree_sum([tree_sum(parts[:4]), tree_sum(parts[4:])])
    assert torch.equal(tree_sum(parts), halves)
    assert not torch.equal(tree_sum(parts), sum(parts)), "numbers for which the order counts"


def test_the_first_error_ends_all_and_the_earliest_bad_row_is_reported():
    def work(shard: Shard) -> None:
        shard.mean(torch.ones(3))
        if shard.number == 2:
            raise UserError("of shard 2")
        shard.mean(torch.ones(3))

    with pytest.raises(UserError, match="of shard 2"):
        together(4, work)
    bad = {1: NonFiniteNumber("reward: NaN", 1, 96), 3: NonFiniteNumber("reward: inf", 0, 98)}
    nothing = NonFiniteNumber("the loss became not a number", None, None)
    reports = together(4, lambda shard: shard.first_of(bad.get(shard.number, nothing), 2, 100))
    assert set(reports) == {NonFiniteNumber("reward: NaN", 3, 100 - 2 * 2 * 4)}


def after(iterations: int, **overrides: object):
    """An agent in this process, led through so many iterations."""
    agent = lead(load_config("CartPole-v1", "ppo", ppo(max_timesteps=iterations * ITERATION, **overrides)[1:]))
    torch.set_num_threads(1)
    build_trainer([Stop(agent.config, None, lambda agent: {})], enable_checkpointing=False).fit(agent)
    return agent


@pytest.mark.parametrize("engine", ["eager", pytest.param("fused_cpu", marks=pytest.mark.slow)])
def test_one_update_from_a_whole_rollout_is_that_of_one_shard_within_rounding(engine):
    """The order of rows is all that differs, and does not count there."""
    whole, led = (after(2, batch_size=1.0, n_epochs=1, shards=count, engine=engine) for count in (1, 4))
    agents = led.crew.agents
    assert led.engine.name == engine
    obs = torch.cat([agent.memory.table.obs for agent in agents], 1)
    assert torch.equal(obs, whole.memory.table.obs)
    assert torch.equal(torch.cat([agent.memory.table.action for agent in agents], 1), whole.memory.table.action)
    for name, tensor in whole.state_dict().items():
        assert torch.allclose(led.state_dict()[name], tensor, rtol=1e-4, atol=1e-5), name
    assert torch.allclose(led.reward_scale.moments, whole.reward_scale.moments)
    assert led.collector.window.summary() == pytest.approx(whole.collector.window.summary())
    means = [agent.metrics.flush() for agent in (whole, led)]
    assert means[0].keys() == means[1].keys()
    assert all(means[1][name] == pytest.approx(value, rel=1e-3, abs=1e-5) for name, value in means[0].items())
    for agent in agents[1:]:
        assert fingerprint(dict(agent.state_dict())) == fingerprint(dict(led.state_dict()))
        assert agent.progress == led.progress
    assert not torch.equal(agents[0].memory.table.obs, agents[1].memory.table.obs)


@pytest.mark.parametrize("guard", ["stop", "skip"])
def test_a_number_that_is_none_in_one_shard_is_reported_and_skipped_by_all(guard):
    config = load_config("CartPole-v1", "ppo", ppo(max_timesteps=4 * ITERATION, nan_guard=guard, engine="eager")[1:])
    leader = lead(config)
    agents, steps = leader.crew.agents, count()
    worlds = agents[2].collector.envs
    step = worlds.step

    def spoiled(action: torch.Tensor) -> Step:
        answer = step(action)
        answer.reward[1] = math.nan if next(steps) == 20 else answer.reward[1]
        return answer

    worlds.step = spoiled
    trainer = build_trainer([Stop(leader.config, None, lambda agent: {})], enable_checkpointing=False)
    if guard == "stop":
        with pytest.raises(
            NumbersError, match=r"reward: NaN of environment 5 at env step 168 in iteration 2 \(256 env"
        ):
            trainer.fit(leader)
    else:
        trainer.fit(leader)
        assert leader.progress["iterations"] == 4 and not leader.skipped
    assert len({fingerprint(dict(agent.state_dict())) for agent in agents}) == 1
    assert all(value.isfinite().all() for value in leader.state_dict().values())


def run(given: list[str], processes: int = 1) -> RunDir:
    """A training by that many processes, as `--processes` starts them."""
    before = {run.id for run in list_runs()}
    with TemporaryDirectory() as folder:
        children = []
        for number in range(processes):
            place = (str(number), str(processes), f"{folder}/meeting")
            variables = dict(zip(OURS, place, strict=True)) if processes > 1 else {}
            files = Path(folder, f"out{number}"), Path(folder, f"err{number}")
            child = start_command([str(ROOT / "train.py"), "-q", *given], *files, env={**os.environ, **variables})
            children.append(child)
        for number, child in enumerate(children):
            child.join(120)
            assert child.exitcode == 0, Path(folder, f"err{number}").read_text()
        printed = [Path(folder, f"{name}{number}") for number in range(1, processes) for name in ("out", "err")]
        assert not any(path.read_text() for path in printed), "rank 0 alone has a console"
    named = given[given.index("--resume") + 1] if "--resume" in given else ""
    runs = [run for run in list_runs() if run.id == named or (not named and run.id not in before)]
    assert len(runs) == 1, "one run folder, whoever carries the shards"
    return runs[0]


def ended(run: RunDir) -> tuple[str, list[dict[str, str]]]:
    """Everything in the last checkpoint that the future depends on, and metrics.csv without wall time."""
    state = torch.load(run.checkpoints / "last.ckpt", weights_only=True)
    kept = {name: state[name] for name in ("state_dict", "optimizer_states", "stride")}
    rows = [{k: repr(v) for k, v in row.items() if "/time/" not in k} for row in read_csv(run.metrics_csv)]
    return fingerprint(kept), rows


BITS = {
    "ppo": ppo(engine="eager"),
    "ppo, lstm": ppo(policy="lstm", policy_lr="kl_0.005", accumulate=2),
    "pqn, gym": words("CartPole-v1:pqn", shards=4, env_backend="gym", engine="eager"),
    "reinforce": words("CartPole-v1:reinforce", shards=4, normalize_obs="true", policy_targets="advantages"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", BITS)
def test_bits_do_not_depend_on_the_number_of_processes(case):
    runs = [run(BITS[case], processes) for processes in (1, 2, 4)]
    assert ended(runs[0]) == ended(runs[1]) == ended(runs[2])
    facts = read_json(runs[2].config_json)
    assert facts["engine"] == ("eager" if "engine=eager" in BITS[case] or "lstm" in case else "fused_cpu")


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_processes():
    straight = run(ppo())
    for first, second in ((1, 2), (2, 1)):
        half = run([*ppo(), "--pause-at", str(4 * ITERATION)], first)
        assert read_json(half.checkpoints / "last.json")["iterations"] == 4
        assert ended(half) != ended(straight)
        assert ended(run(["--resume", half.id], second)) == ended(straight)


@pytest.mark.slow
def test_who_ends_takes_the_others_along_and_the_run_goes_on():
    typed = ppo(shards=2, checkpoint_minutes=0.001, max_timesteps=20480)
    straight = ended(run(typed))
    for victim, number, code in (("other", signal.SIGKILL, 1), ("0", signal.SIGKILL, -9), ("0", signal.SIGTERM, 143)):
        before = {run.id for run in list_runs()}
        command = [sys.executable, str(ROOT / "train.py"), "-q", "--processes", "2", *typed]
        variables = {**os.environ, "STRIDE_CORES": "2"}
        training = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=variables)
        while not (
            halved := [run for run in list_runs() if run.id not in before and any(run.checkpoints.glob("*.json"))]
        ):
            assert training.poll() is None, training.communicate()
            time.sleep(0.05)
        (other,) = children_of(training.pid)
        os.kill(other if victim == "other" else training.pid, number)
        _, errors = training.communicate(timeout=30)
        assert training.returncode == code, errors
        assert victim == "0" or "another process of this training has ended" in errors
        deadline = time.monotonic() + 30
        while Path(f"/proc/{other}").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not Path(f"/proc/{other}").exists()
        assert ended(run(["--resume", halved[0].id], 2)) == straight


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_wrong_number_of_shards_is_one_line(capsys):
    for overrides, message in {
        "shards=3": "power of two, not 3; 2 is one",
        "shards=16": "shards 16 does not divide n_envs 8; shards=8 does",
        "shards=8 batch_size=4": "shards 8 does not divide batch_size 4 rows; shards=4 does",
        "shards=8 policy=lstm batch_size=64": "shards 8 does not divide batch_size 4 worlds; shards=4 does",
        "shards=4 device=cuda": "use device=cpu",
        "shards=4 lag=1": "use lag=0",
        "shards=4 exploration.kind=icm": "use exploration=null",
        "shards=4 --processes 3": "--processes must be a power of two, not 3; 2 is one",
        "shards=2 --processes 4": "4 processes cannot carry shards=2; use shards=4 or --processes 2",
        "--processes x": "--processes takes a number of processes",
    }.items():
        typed = ["CartPole-v1:ppo", "n_envs=8", "n_steps=16", *overrides.split()]
        assert message in refusal(capsys, train.command, *typed)
    assert "dqn cannot be trained in parts" in refusal(capsys, train.command, "CartPole-v1:dqn", "shards=2")
    config = load_config("CartPole-v1", "ppo", ["shards=4"])
    with pytest.raises(UserError, match="torchrun has already started 4"):
        check_processes(config, 2, Rank(0, 4))
    check_processes(config, 1, Rank(0, 4))
    assert rank_of({"TORCHELASTIC_RUN_ID": "x", "RANK": "2", "WORLD_SIZE": "4"}) == Rank(2, 4)
    assert rank_of({"RANK": "2", "WORLD_SIZE": "4"}) is None
