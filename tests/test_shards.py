"""`shards: S` is one training: statistics are those of all worlds, bits do not depend on who carries the parts."""

import math
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from commands import refusal, start_command
from tiny_runs import ended

from stride.agents.engines import process_group
from stride.agents.engines.local_shards import agent_to_train
from stride.agents.experience.finite_guard import NonFiniteNumber
from stride.agents.experience.shards import Shard, ShardThreads, tree_sum
from stride.agents.returns import standardize
from stride.commands import train, train_ranks
from stride.commands.plain_tree import fingerprint
from stride.commands.rank import VARIABLES, Rank, rank_of
from stride.commands.train_ranks import check_processes, compare, processes_for
from stride.config.loader import load_config
from stride.envs_fast.vec_env import Step
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
    threads, answers = ShardThreads(count), [None] * count

    def work_of(number: int) -> None:
        answers[number] = work(Shard(number, count, threads, number))

    threads.run([lambda number=number: work_of(number) for number in range(count)])
    return answers


def test_statistics_are_those_of_all_shards():
    x = torch.randn(16, 8) * 3 + 50
    parts = x.chunk(4, 1)
    for standardized in together(4, lambda shard: shard.standardize(parts[shard.number])):
        assert len(standardized) == 16
    whole = together(4, lambda shard: shard.gather_worlds(shard.standardize(parts[shard.number]))[0])
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
    reports = together(4, lambda shard: shard.earliest(bad.get(shard.number, nothing), 2, 100))
    assert set(reports) == {NonFiniteNumber("reward: NaN", 3, 100 - 2 * 2 * 4)}


def after(iterations: int, **overrides: object):
    """The agent of the first shard after so many iterations, all shards in this process."""
    agent = agent_to_train(
        load_config("CartPole-v1", "ppo", ppo(max_timesteps=iterations * ITERATION, **overrides)[1:])
    )
    torch.set_num_threads(1)
    build_trainer([Stop(agent.config, None, lambda agent: {})], enable_checkpointing=False).fit(agent)
    return agent


@pytest.mark.parametrize(
    "engine, lag", [("eager", 0), ("eager", 1), pytest.param("fused_cpu", 0, marks=pytest.mark.slow)]
)
def test_one_update_from_a_whole_rollout_is_that_of_one_shard_within_rounding(engine, lag):
    """The order of rows is all that differs, and does not count there."""
    same = dict(batch_size=1.0, n_epochs=1, engine=engine, lag=lag, value_scale="popart")
    whole, first = (after(2, shards=count, **same) for count in (1, 4))
    agents = first.shard_group.agents
    assert first.engine.name == engine
    obs = torch.cat([agent.memory.table.obs for agent in agents], 1)
    assert torch.equal(obs, whole.memory.table.obs)
    assert torch.equal(torch.cat([agent.memory.table.action for agent in agents], 1), whole.memory.table.action)
    for name, tensor in whole.state_dict().items():
        assert torch.allclose(first.state_dict()[name], tensor, rtol=1e-4, atol=1e-5), name
    assert torch.allclose(first.reward_scale.moments, whole.reward_scale.moments)
    assert first.collector.window.summary() == pytest.approx(whole.collector.window.summary())
    means = [agent.metrics.flush() for agent in (whole, first)]
    assert means[0].keys() == means[1].keys()
    assert all(means[1][name] == pytest.approx(value, rel=1e-3, abs=1e-5) for name, value in means[0].items())
    for agent in agents[1:]:
        assert fingerprint(dict(agent.state_dict())) == fingerprint(dict(first.state_dict()))
        assert agent.progress == first.progress
    assert not torch.equal(agents[0].memory.table.obs, agents[1].memory.table.obs)


@pytest.mark.parametrize("guard", ["stop", "skip"])
def test_a_number_that_is_none_in_one_shard_is_reported_and_skipped_by_all(guard):
    config = load_config("CartPole-v1", "ppo", ppo(max_timesteps=4 * ITERATION, nan_guard=guard, engine="eager")[1:])
    first = agent_to_train(config)
    agents, steps = first.shard_group.agents, count()
    worlds = agents[2].collector.envs
    step = worlds.step

    def spoiled(action: torch.Tensor) -> Step:
        answer = step(action)
        answer.reward[1] = math.nan if next(steps) == 20 else answer.reward[1]
        return answer

    worlds.step = spoiled
    trainer = build_trainer([Stop(first.config, None, lambda agent: {})], enable_checkpointing=False)
    if guard == "stop":
        with pytest.raises(
            NumbersError, match=r"reward: NaN of environment 5 at env step 168 in iteration 2 \(256 env"
        ):
            trainer.fit(first)
    else:
        trainer.fit(first)
        assert first.progress["iterations"] == 4 and not first.skipped
    assert len({fingerprint(dict(agent.state_dict())) for agent in agents}) == 1
    assert all(value.isfinite().all() for value in first.state_dict().values())


def run(given: list[str], processes: int = 1, srun: bool = False) -> RunDir:
    """A training by that many processes, started as `--processes` or srun start them."""
    before = {run.id for run in list_runs()}
    with TemporaryDirectory() as folder:
        children, port = [], str(free_port())
        for rank in range(processes):
            variables = dict(zip(VARIABLES, (str(rank), str(processes), f"{folder}/ranks"), strict=True))
            if srun:
                variables = {"SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": str(processes)}
                variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            files = Path(folder, f"out{rank}"), Path(folder, f"err{rank}")
            environment = {**os.environ, **(variables if processes > 1 else {})}
            children.append(start_command([str(ROOT / "train.py"), "-q", *given], *files, env=environment))
        for rank, child in enumerate(children):
            child.join(120)
            assert child.exitcode == 0, Path(folder, f"err{rank}").read_text()
        printed = [Path(folder, f"{name}{rank}") for rank in range(1, processes) for name in ("out", "err")]
        assert not any(path.read_text() for path in printed), "rank 0 alone has a console"
    named = given[given.index("--resume") + 1] if "--resume" in given else ""
    runs = [run for run in list_runs() if run.id == named or (not named and run.id not in before)]
    assert len(runs) == 1, "one run folder, whoever carries the shards"
    return runs[0]


BITS = {
    "ppo": ppo(engine="eager"),
    "ppo, lstm": ppo(policy="lstm", policy_lr="kl_0.005", accumulate=2),
    "ppo, lag": ppo(engine="eager", lag=1),
    "ppo, mingru": ppo(policy="mingru", value_scale="popart"),
    "pqn, gym": words("CartPole-v1:pqn", shards=4, env_backend="gym", engine="eager"),
    "reinforce": words("CartPole-v1:reinforce", shards=4, normalize_obs="true", policy_targets="advantages"),
    "ppo, masks": words("Taxi-v4:ppo", shards=4, action_mask="true", target_kl=0.01),
    "ppo, mujoco": words("InvertedPendulum-v5:ppo", shards=4, **NORMALIZED),
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
def test_torchrun_and_srun_start_ranks_which_end_where_nothing_is_left_to_train():
    typed = ppo(shards=2)
    expected = ended(run(typed))
    assert ended(run(typed, 2, srun=True)) == expected
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for again in (False, True):
        command = [*torchrun, str(ROOT / "train.py"), "-q", "--group", "night", *typed]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        runs = [run for run in list_runs() if run.facts().get("group")]
        assert len(runs) == 1 and ended(runs[0]) == expected, again


@pytest.mark.slow
def test_other_arguments_of_a_rank_are_reported_by_rank_0(tmp_path):
    errors = []
    for rank, seed in enumerate((1, 2)):
        place = dict(zip(VARIABLES, (str(rank), "2", str(tmp_path / "ranks")), strict=True))
        files = tmp_path / f"out{rank}", tmp_path / f"err{rank}"
        words = [str(ROOT / "train.py"), "-q", *ppo(shards=2), f"seed={seed}"]
        errors.append((start_command(words, *files, env={**os.environ, **place}), files[1]))
    for child, _ in errors:
        child.join(60)
    assert errors[0][0].exitcode == 2 and not errors[1][1].read_text()
    assert errors[0][1].read_text().startswith("error: rank 1: it was started with other arguments (-q")


def ended_by(number: int, rank: int, typed: list[str], seconds: float) -> tuple[RunDir, int, str]:
    """A run of two processes whose rank gets that signal so long after its first checkpoint; exit code, stderr."""
    before = {run.id for run in list_runs()}
    command = [sys.executable, str(ROOT / "train.py"), "-q", "--processes", "auto", *typed]
    training = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "STRIDE_CORES": "2"})
    while not (halved := [run for run in list_runs() if run.id not in before and any(run.checkpoints.glob("*.json"))]):
        assert training.poll() is None, training.communicate()
        time.sleep(0.05)
    (other,) = children_of(training.pid)
    assert {address_of(line) for pid in (training.pid, other) for line in listening(pid)} == {"0100007F"}
    time.sleep(seconds)
    with suppress(ProcessLookupError):  # ended meanwhile
        os.kill((training.pid, other)[rank], number)
    _, errors = training.communicate(timeout=30)
    deadline = time.monotonic() + 30
    while Path(f"/proc/{other}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{other}").exists()
    return halved[0], training.returncode, errors


@pytest.mark.slow
@pytest.mark.parametrize(
    "rank, number, code", [(1, signal.SIGKILL, 1), (0, signal.SIGKILL, -9), (0, signal.SIGTERM, 143)]
)
def test_a_rank_that_ends_takes_the_others_along_and_the_run_goes_on(rank, number, code):
    typed = ppo(shards=2, checkpoint_minutes=0.001, max_timesteps=20480)
    straight = ended(run(typed))
    halved, returned, errors = ended_by(number, rank, typed, 0.0)
    assert returned == code, errors
    assert rank == 0 or "another process of this training has ended" in errors
    assert ended(run(["--resume", halved.id], 2)) == straight


@pytest.mark.slow
@pytest.mark.soak
def test_a_rank_killed_at_50_instants_leaves_a_run_that_goes_on():
    typed = ppo(shards=2, checkpoint_minutes=0.001, max_timesteps=20480)
    straight, begun = ended(run(typed)), time.monotonic()
    run(typed, 2)
    length, killed = time.monotonic() - begun, 0
    for instant in range(50):
        halved, returned, errors = ended_by(signal.SIGKILL, instant % 2, typed, instant / 50 * length)
        assert returned in (0, 1, -9), errors
        killed += returned != 0
        if returned:
            assert ended(run(["--resume", halved.id], 2)) == straight, instant
    print(f"{killed} of 50 killed before their end")
    assert killed > 25


def listening(pid: int) -> list[str]:
    """The sockets on which a process listens, as lines of /proc/net/tcp and tcp6."""
    names = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            names.append(os.readlink(link))
    inodes = {name[len("socket:[") : -1] for name in names if name.startswith("socket:")}
    lines = [line for kind in ("tcp", "tcp6") for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]]
    return [line for line in lines if line.split()[3] == "0A" and line.split()[9] in inodes]


def address_of(line: str) -> str:
    """ "0100007F" is 127.0.0.1."""
    return line.split()[1].partition(":")[0]


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_wrong_number_of_shards_is_one_line(capsys):
    for overrides, message in {
        "shards=3": "power of two, not 3; 2 is one",
        "shards=16": "shards 16 does not divide n_envs 8; shards=8 does",
        "shards=8 batch_size=4": "shards 8 does not divide batch_size 4 rows; shards=4 does",
        "shards=8 policy=lstm batch_size=64": "shards 8 does not divide batch_size 4 worlds; shards=4 does",
        "shards=4 device=cuda": "use device=cpu",
        "shards=4 env_backend=gym workers=2": "use env_backend=gym workers=0",
        "shards=4 exploration.kind=icm": "use exploration=null",
        "shards=4 --processes 3": "processes must be a power of two, not 3; 2 is one",
        "shards=2 --processes 4": "4 processes cannot carry shards=2; use shards=4, or 2 processes",
        "--processes x": "--processes takes auto or a number of processes",
        "--processes 2 --seed 1,2": "leave out the other flag",
    }.items():
        typed = ["CartPole-v1:ppo", "n_envs=8", "n_steps=16", *overrides.split()]
        assert message in refusal(capsys, train.command, *typed)
    assert "dqn cannot be trained in shards" in refusal(capsys, train.command, "CartPole-v1:dqn", "shards=2")
    with pytest.raises(UserError, match="4 ranks were started from outside"):
        check_processes(4, 2, Rank(0, 4))
    check_processes(4, 1, Rank(0, 4))


def test_auto_is_a_process_for_each_core(monkeypatch):
    monkeypatch.setattr(train_ranks, "cores", lambda: 6)
    assert [processes_for(shards) for shards in (1, 2, 8)] == [1, 2, 4]


def test_ranks_are_those_of_torchrun_and_of_srun_with_a_named_address():
    assert rank_of({"TORCHELASTIC_RUN_ID": "x", "RANK": "2", "WORLD_SIZE": "4"}) == Rank(2, 4)
    assert rank_of({"RANK": "2", "WORLD_SIZE": "4"}) is None
    tasks = {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4"}
    assert rank_of({**tasks, "MASTER_ADDR": "node1"}) == Rank(2, 4) and rank_of(tasks) is None


def test_a_rank_that_differs_or_does_not_answer_is_named(tmp_path, monkeypatch):
    facts = {"code": "1", "cpu": "AVX2"}
    start = {"words": ["seed=1"], "facts": facts, "mixed": False}
    assert compare(start, ["seed=1"], facts) == ""
    with pytest.raises(UserError, match=r"other arguments \(seed=2\) than rank 0 \(seed=1\)"):
        compare(start, ["seed=2"], facts)
    with pytest.raises(UserError, match="it has other code than rank 0"):
        compare(start, ["seed=1"], {**facts, "code": "2"})
    with pytest.raises(UserError, match=r"AVX512.*--mixed goes on"):
        compare(start, ["seed=1"], {**facts, "cpu": "AVX512"})
    assert "bits may differ" in compare({**start, "mixed": True}, ["seed=1"], {**facts, "cpu": "AVX512"})
    monkeypatch.setattr(process_group, "JOIN_SECONDS", 0.2)
    with pytest.raises(UserError, match=r"rank 1 of 2 did not start within 0\.2 s"):
        process_group.init_process_group(0, 2, str(tmp_path / "ranks"))
    with pytest.raises(UserError, match="MASTER_ADDR and MASTER_PORT must say"):
        process_group.init_process_group(1, 2)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    with pytest.raises(UserError, match=r"did not answer rank 1 within 0\.2 s"):
        process_group.init_process_group(1, 2)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
