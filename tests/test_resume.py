"""A resumed run is the uninterrupted run, bit for bit: weights, optimizer, worlds, metrics.csv.

The first half is stopped by a real signal, the second half is a new process with the command a person would type.
"""

import hashlib
import os
import shutil
import signal
from itertools import product
from typing import get_args

import pytest
import torch
from commands import run_command

from stride.agents.algorithms import ALGORITHMS
from stride.agents.base import Agent
from stride.agents.engines.choice import build_agent
from stride.agents.trained.loading import read_checkpoint
from stride.commands import train
from stride.commands.plain_tree import fingerprint
from stride.commands.train_arguments import parse_arguments
from stride.config.fields import hints, known_keys
from stride.config.loader import environment_files, from_plain, load_config
from stride.config.raw import EnvironmentFile
from stride.config.schema import ReplayConfig, RolloutConfig
from stride.envs_gym.make import make_envs
from stride.runstore import checkpoint_set
from stride.runstore.metrics_table import read_csv
from stride.runstore.run_dir import RunDir, list_runs
from stride.runstore.run_files import read_json
from stride.runstore.run_lock import locked
from stride.utils.durable_file import write_json
from stride.utils.user_error import UserError

SMALL = {
    "n_envs": "4",
    "n_steps": "16",
    "batch_size": "0.5",
    "max_timesteps": "1280",  # 20 iterations
    "log_freq_epochs": "2",
    "eval_episodes": "3",
    "test_episodes": "10",
    "n_epochs": "2",
    "eval_freq_epochs": "5",
    "checkpoint_freq_epochs": "5",
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
MODEL = (
    *(word for word in REPLAY if not word.startswith(("gradient_steps", "hidden_dims"))),
    "batch_length=6",
    "train_ratio=1",
    "deter=16",
    "stoch=3",
    "width=16",
    "horizon=4",
)
OWN = {
    "dreamer": (*MODEL, "imagined_starts=8"),
    "planet": (*MODEL, "candidates=8", "elites=3"),
}
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
    "ppo, lstm": ["CartPole-v1:ppo", "policy=lstm", "normalize_obs=true"],
    "ppo, bf16": ["CartPole-v1:ppo", "precision=bf16", "n_epochs=1"],
    "ppo, on Gymnasium's worlds": ["CartPole-v1:ppo", "env_backend=gym", "normalize_obs=true"],
    "ppo, accumulating": ["CartPole-v1:ppo", "accumulate=2", "n_epochs=2"],
    "ppo, lag": ["CartPole-v1:ppo", "lag=1", "normalize_obs=true", "normalize_reward=true"],
    "ppo, lag, lstm": ["CartPole-v1:ppo", "lag=1", "policy=lstm", "normalize_obs=true"],
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
    "dreamer by kernels": ["CartPole-v1:dreamer", *OWN["dreamer"], "batch_size=16", "engine=fused_cpu"],
    "planet by kernels": ["CartPole-v1:planet", *OWN["planet"], "batch_size=16", "engine=fused_cpu"],
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
    assert min(memory.written, memory.rows) > 50
    return memory.columns_written()


def rows(run: RunDir) -> list[dict[str, float]]:
    """metrics.csv without the columns that tell of wall time."""
    return [{k: repr(v) for k, v in row.items() if "/time/" not in k} for row in read_csv(run.metrics_csv)]


LONG = ("planet by kernels", "dreamer by kernels", "ppo, lag, lstm")


@pytest.mark.parametrize("case", [pytest.param(CASES[x], marks=[pytest.mark.slow] * (x in LONG), id=x) for x in CASES])
def test_2n_equals_n_and_a_new_process_and_n(case):
    resumes_to_the_bit(*case)


def resumes_to_the_bit(*case: str) -> None:
    straight, halved = run(*case), run(*case, stop_at=9)
    assert read_json(halved.checkpoints / "last.json")["iterations"] == 9
    assert state_hash(halved) != state_hash(straight)
    collector = read_checkpoint((halved.checkpoints / "last.ckpt").resolve())["stride"]["parts"]["collector"]
    assert not collector["is_first"].all(), "in the middle of an episode"
    done = run_command("train.py", "--resume", halved.id, "-q")
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


ENGINES = [name for name in get_args(hints(RolloutConfig)["engine"]) if name != "auto"]


def variant_of(algo_id: str) -> str:
    """A shipped variant of the algorithm, in a world whose episodes a checkpoint continues to the bit."""
    files = [EnvironmentFile.read(path) for path in environment_files().values()]
    for file in sorted(files, key=lambda file: file.env_id not in ("CartPole-v1", "Pendulum-v1", "FrozenLake-v1")):
        for variant in file.variants:
            if file.algorithm(variant) == algo_id:
                return f"{file.env_id}:{variant}"
    raise AssertionError(f"no shipped variant trains {algo_id}")


MEMORIES = {"": [], "memmap": ["replay_storage=memmap"], "prioritised": ["prioritised=true", "n_step=3"]}
MEMORIES["prioritised, memmap"] = [*MEMORIES["prioritised"], *MEMORIES["memmap"]]


def kinds() -> list[tuple[str, str]]:
    """Each algorithm, with each memory its keys allow."""
    keys = {memory: {word.partition("=")[0] for word in given} for memory, given in MEMORIES.items()}
    return [(algo_id, memory) for algo_id in ALGORITHMS for memory in keys if keys[memory] <= {*known_keys(algo_id)}]


def combinations():
    """All; what a memory holds has little to do with whose worlds they are, so another of both at once is soak."""
    for (algo_id, memory), engine, backend in product(kinds(), ENGINES, ("fast", "gym")):
        marks = [pytest.mark.slow] + [pytest.mark.soak] * (memory != "" and backend == "gym")
        yield pytest.param(algo_id, memory, engine, backend, marks=marks)


@pytest.mark.parametrize(("algo_id", "memory", "engine", "backend"), [*combinations()])
def test_every_algorithm_on_every_engine_resumes_to_the_bit(algo_id, memory, engine, backend):
    """Whatever the registries hold is asked for here, normalised; a combination that is refused says by whom."""
    name = variant_of(algo_id)
    given = [name, f"engine={engine}", f"env_backend={backend}", *MEMORIES[memory]]
    replayed = isinstance(load_config(*name.split(":")), ReplayConfig)
    given += OWN.get(algo_id, REPLAY if replayed else ["epoch_iterations=1"])
    given += ["normalize_obs=true"] if algo_id not in ("q_learning", *OWN) else []
    given += ["normalize_reward=true"] if algo_id in ("ppo", "reinforce") else []
    try:
        config = load_config(*name.split(":"), words(*given)[1:-1])
        build_agent(config, make_envs(config, config.n_envs))
    except UserError as error:
        pytest.skip(f"{' '.join(given)}: {error}")
    resumes_to_the_bit(*given)


ATARI = ["CartPole-v1:ppo", "env_kwargs.obs_type=ram", "spec={}"]
SCREEN = ["env_id=ALE/Breakout-v5", "spec={}", "grayscale_obs=true", "resize_obs=36", "frame_stack=2", "policy=cnn",
          "policy_kwargs.features=16", "hidden_dims=16", "env_wrappers=[{id: LifeLoss}, {id: ClipReward}]",
          "eval_max_steps=30"]  # fmt: skip
MORE = ("HalfCheetah, sac", "Pong, ppo, cut", "Breakout's screen, ppo", "cartpole, sac", "DoorKey, ppo")  # of the same
SHORT = ("eval_max_steps=60",)  # where whole episodes are hundreds of steps, or 1,000 of physics
OPTIONAL = {
    "mujoco": {
        "HalfCheetah, sac": ["HalfCheetah-v5:sac", *REPLAY, *SHORT],
        "Hopper, sac, eager, normalised": ["Hopper-v5:sac", *REPLAY, *SHORT, "engine=eager", "normalize_obs=true"],
        "Ant, ppo, normalised": ["Pendulum-v1:ppo", *SHORT, "env_id=Ant-v5", "spec={}", "normalize_obs=true"],
    },
    "ale_py": {
        "Pong, ppo": [*ATARI, "env_id=ALE/Pong-v5", "eval_max_steps=60"],
        "Pong, ppo, cut": [*ATARI, "env_id=ALE/Pong-v5", "max_episode_steps=40"],
        "Breakout's screen, ppo": ["CartPole-v1:ppo", *SCREEN],
        "Breakout's screen, dqn": ["CartPole-v1:dqn", *REPLAY, *SCREEN],
    },
    "dm_control": {
        "cartpole, sac": ["Pendulum-v1:sac", *REPLAY, *SHORT, "env_id=dm_control/cartpole-swingup", "spec={}"],
        "walker, ppo": ["Pendulum-v1:ppo", *SHORT, "env_id=dm_control/walker-walk", "spec={}", "frame_skip=2"],
    },
    "minigrid": {
        "DoorKey, ppo": ["MiniGrid-DoorKey-5x5-v0:ppo", *SHORT],
        "DoorKey, lstm": ["MiniGrid-DoorKey-5x5-v0:lstm", *SHORT],
    },
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extra", "case"),
    [
        pytest.param(extra, case, marks=[pytest.mark.soak] * (case in MORE))
        for extra in OPTIONAL
        for case in OPTIONAL[extra]
    ],
)
def test_worlds_of_optional_packages_resume_to_the_bit(extra, case):
    pytest.importorskip(extra)
    resumes_to_the_bit(*OPTIONAL[extra][case])


def test_a_run_that_died_before_its_first_checkpoint_begins_anew():
    straight, dead = run("CartPole-v1:ppo"), run("CartPole-v1:ppo")
    for path in [*dead.checkpoints.iterdir()]:
        path.unlink()
    write_json(dead.config_json, {**read_json(dead.config_json), "status": "running"})
    assert train.command(["--resume", dead.id, "-q"]) == 0
    assert state_hash(dead) == state_hash(straight) and rows(dead) == rows(straight)


@pytest.mark.parametrize("extra", [(), ("early_stop_on_eval_threshold=1", "spec.goal=5")], ids=["budget", "goal"])
def test_a_run_interrupted_in_its_last_iteration_only_closes(extra):
    straight = run("CartPole-v1:ppo", *extra)
    ended = read_json(straight.config_json)["outcome"]
    stopped = run("CartPole-v1:ppo", *extra, stop_at=ended["env_steps"] // 64)
    assert read_json(stopped.config_json)["status"] == "interrupted"
    assert train.command(["--resume", stopped.id, "-q"]) == 0
    assert state_hash(stopped) == state_hash(straight) and rows(stopped) == rows(straight)
    again = read_json(stopped.config_json)["outcome"]
    assert all(again[key] == ended[key] for key in ("env_steps", "reason", "test_mean", "solved"))


@pytest.mark.parametrize("extra", [(), ("early_stop_on_eval_threshold=1", "spec.goal=5")], ids=["budget", "goal"])
def test_a_run_that_died_in_its_closing_test_only_closes(extra):
    straight, dead = run("CartPole-v1:ppo", *extra), run("CartPole-v1:ppo", *extra)
    write_json(dead.config_json, {**read_json(dead.config_json), "status": "running"})
    assert train.command(["--resume", dead.id, "-q"]) == 0
    assert state_hash(dead) == state_hash(straight) and rows(dead) == rows(straight)
    assert read_json(dead.config_json)["outcome"]["reason"] == read_json(straight.config_json)["outcome"]["reason"]


def test_a_fork_begins_with_its_parents_checkpoint_and_rows():
    parent = run("CartPole-v1:ppo", "policy_lr=1e-3", "clip_range=0.2")
    before = {path.name: path.read_bytes() for path in parent.checkpoints.iterdir()}
    assert train.command(["--resume", parent.id, "--checkpoint", "epoch=10", "-q"]) == 0
    fork = RunDir.find("@last")
    assert fork.id != parent.id and state_hash(fork) == state_hash(parent) and rows(fork) == rows(parent)
    facts = read_json(fork.config_json)
    assert facts["parent"] == {"run": parent.id, "checkpoint": "epoch=10", "env_steps": 640}
    assert {path.name: path.read_bytes() for path in parent.checkpoints.iterdir()} == before
    assert train.command(["--resume", parent.id, "--checkpoint", "epoch=10", "-q", "ent_coef=0.1"]) == 0
    changed = RunDir.find("@last")
    assert read_json(changed.config_json)["changed"] == [["ent_coef", 0.0, 0.1]]
    assert rows(changed)[:5] == rows(parent)[:5] and rows(changed)[-1] != rows(parent)[-1]


BREAKING = ["hidden_dims=8", "n_envs=8", "seed=2", "optimizer=sgd", "normalize_obs=true", "env_id=Acrobot-v1"]
BREAKING += ["algo_id=reinforce", "env_backend=gym", "policy=lstm", "n_steps=32", "epoch_iterations=2", "lag=1"]


def test_what_breaks_the_state_is_refused_by_name(capsys):
    spent = run("CartPole-v1:ppo")
    capsys.readouterr()
    for word in BREAKING:
        assert train.command(["--resume", spent.id, "max_timesteps=2560", word]) == 2
        line = capsys.readouterr().err
        assert line.startswith(f"error: {word.partition('=')[0]} ") and len(line.splitlines()) == 1, line
    assert read_json(spent.config_json)["status"] == "finished"
    assert train.command(["--resume", spent.id, "max_timesteps=1300"]) == 2, "not enough for another iteration"
    said = capsys.readouterr().err
    assert "has done 1,280 env steps, a budget of 1,300 is no room for 64 more" in said and "from 1344 on" in said
    assert train.command(["--resume", spent.id, "max_timesteps=1408", "ent_coef=0.01", "clip_range=0.1"]) == 0
    told = capsys.readouterr().out
    assert "at 1,280 env steps (epoch=20), not to the bit; max_timesteps, ent_coef" in told
    assert "changed: max_timesteps 1280 -> 1408, ent_coef 0.0 -> 0.01" in told


def test_a_run_in_training_is_not_resumed_but_forked(capsys):
    spent = run("CartPole-v1:ppo")
    with locked(spent.path):
        assert train.command(["--resume", spent.id, "max_timesteps=2560"]) == 2
        assert f"is being trained by process {os.getpid()}" in capsys.readouterr().err
        assert train.command(["--resume", spent.id, "--checkpoint", "best", "max_timesteps=1408", "-q"]) == 0


def test_a_damaged_last_checkpoint_gives_way_to_the_one_before(capsys):
    straight, damaged = run("CartPole-v1:ppo"), run("CartPole-v1:ppo")
    path = damaged.checkpoints / "epoch=20.ckpt"
    path.write_bytes(path.read_bytes()[:-1])
    assert train.command(["--resume", damaged.id]) == 0
    told = capsys.readouterr().out
    assert "epoch=20 is damaged" in told and "taking epoch=15" in told and "at 960 env steps (epoch=15)" in told
    assert state_hash(damaged) == state_hash(straight) and rows(damaged) == rows(straight)
    assert not checkpoint_set.fault(path)


def test_checkpoints_by_the_clock_on_the_wall():
    timed = run("CartPole-v1:ppo", "checkpoint_minutes=1e-9", "eval_freq_epochs=null", "epoch_iterations=3")
    kept = checkpoint_set.names(timed.checkpoints)
    assert kept == ["epoch=01", "epoch=02", "epoch=03", "epoch=04", "epoch=05", "epoch=06", "step=1280"]


def test_what_was_told_last_matters_to_the_closing_row():
    straight, dead = run("CartPole-v1:ppo"), run("CartPole-v1:ppo")
    path = dead.checkpoints / "epoch=20.ckpt"
    torch.save(replaced(read_checkpoint(path), ("stride", "progress", "exported"), 0), path)
    write_json(path.with_suffix(".json"), {**checkpoint_set.facts_of(path), **checkpoint_set.digest(path)})
    write_json(dead.config_json, {**read_json(dead.config_json), "status": "running"})
    assert train.command(["--resume", dead.id, "-q"]) == 0 and rows(dead) != rows(straight)


def inner(tree, path=()):
    """Every key of ours, down to tensors, numbers and lists."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from inner(value, (*path, key))
        else:
            yield (*path, key), value


def replaced(tree, path, value=None, drop=False):
    key, *rest = path
    if rest:
        return {**tree, key: replaced(tree[key], rest, value, drop)}
    return {k: v for k, v in tree.items() if k != key} if drop else {**tree, key: value}


KEYED = {
    "ppo": ["CartPole-v1:ppo", "normalize_obs=true", "normalize_reward=true", "early_stop_patience=2",
            "early_stop_on_eval_threshold=30", "env_backend=gym", "n_epochs=2"],
    "dqn": ["CartPole-v1:dqn", *REPLAY, *MEMORIES["prioritised, memmap"], "normalize_obs=true", "buffer_size=400",
            "target_freq=400"],
    "sac": ["Pendulum-v1:sac", *REPLAY, "noise_correlation=0.5", "normalize_obs=true", "max_episode_steps=30"],
    "q_learning": ["FrozenLake-v1:q_learning", "n_envs=8", "n_steps=8", "visits_power=0.6"],
}  # fmt: skip


COLLECTOR = "fresh stride.parts.collector"
SPARE = {  # what these agents do not look at again: the worlds write it anew, and no episode's begin is asked for
    "dqn": [f"{COLLECTOR}.envs.obs"],
    "sac": [f"{COLLECTOR}.envs.obs"],
    "q_learning": [f"{COLLECTOR}.is_first", f"{COLLECTOR}.envs.obs"],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KEYED)
def test_every_key_of_a_checkpoint_matters(kind, tmp_path, monkeypatch, capsys):
    """Left out, a key is missed, or the rest of the run is another; with the value of a fresh run it is another."""
    straight, halved = run(*KEYED[kind]), run(*KEYED[kind], stop_at=9)
    fresh = run(*KEYED[kind], stop_at=1)
    wanted = state_hash(straight), fingerprint(rows(straight))
    name = f"{checkpoint_set.target(halved.checkpoints / 'last.ckpt')}.ckpt"
    state = read_checkpoint(halved.checkpoints / name)
    first = read_checkpoint(fresh.checkpoints / f"{checkpoint_set.target(fresh.checkpoints / 'last.ckpt')}.ckpt")
    ours = {key: state[key] for key in ("state_dict", "stride", "callbacks")}
    begun = dict(inner({key: first[key] for key in ours}))
    # returns rise, so a lower best so far is soon the same again; one that was never reached is not
    begun["stride", "parts", "collector", "window", "best"] = 1e9
    if begun["callbacks", "Evaluate", "best"] != state["callbacks"]["Evaluate"]["best"]:
        begun["callbacks", "Evaluate", "best"] = 1e9
    # one tensor under two names is loaded twice, and the second name wins
    twice = [path for path in begun if path[0] == "state_dict" and path[1].startswith("policy.head.linear.")]
    elsewhere = {*twice, ("stride", "progress", "exported")}  # of which the sidecar speaks, until the closing test
    harmless, total = [], 0
    for path, value in inner(ours):
        if path in elsewhere:
            continue
        # a missing weight is refused by the strict loading of all of them; once is enough
        weight = path[0] == "state_dict" and path[1] != next(iter(state["state_dict"]))
        trials = [] if weight else [("without", replaced(state, path, drop=True))]
        if path in begun and fingerprint(begun[path]) != fingerprint(value):
            trials.append(("fresh", replaced(state, path, begun[path])))
        if path[-1] == "segments":  # each by itself
            trials += [
                (f"without {n} of", replaced(state, path, value[:n] + value[n + 1 :])) for n in range(len(value))
            ]
        for manner, changed in trials:
            total += 1
            root = tmp_path / f"omitted-{total}"
            again = RunDir(shutil.copytree(halved.path, root / halved.id, symlinks=True))
            torch.save(changed, again.checkpoints / name)
            sidecar = again.checkpoints / name
            facts = {**checkpoint_set.facts_of(sidecar), **checkpoint_set.digest(sidecar)}
            write_json(sidecar.with_suffix(".json"), facts)
            try:
                code = train.command(["--resume", str(again.path), "-q"])
            except ValueError:  # a clock that runs backwards is noticed at the latest when the curve is drawn
                code = 1
            if code == 0 and (state_hash(again), fingerprint(rows(again))) == wanted:
                harmless.append(f"{manner} {'.'.join(path)}")
            shutil.rmtree(root)
    assert total > (60 if kind == "ppo" else 25) and harmless == SPARE.get(kind, []), (total, harmless)
