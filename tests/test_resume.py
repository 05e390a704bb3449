"""A resumed run is the uninterrupted run, bit for bit: weights, optimizer, worlds, metrics.csv.

The first half is stopped by a real signal, the second half is a new process with the command a person would type.
"""

import os
import shutil
import signal
from itertools import product
from typing import get_args

import pytest
import torch
from commands import refusal, run_command

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

SMALL = dict(
    n_envs=4, n_steps=16, batch_size=0.5, n_epochs=2, max_timesteps=1280, log_freq_epochs=2, checkpoint_freq_epochs=5,
    eval_freq_epochs=5, eval_warmup_epochs=0, eval_episodes=3, test_episodes=10, early_stop_on_eval_threshold="false",
)  # fmt: skip
ITERATION = 64  # env steps
REPLAY = (
    "train_freq=16", "gradient_steps=4", "batch_size=8", "buffer_size=1000", "learning_starts=100",
    "epoch_iterations=1", "eval_freq_epochs=5", "hidden_dims=32",
)  # fmt: skip
MODEL = (
    *(word for word in REPLAY if not word.startswith(("gradient_steps", "hidden_dims"))),
    "batch_length=6", "train_ratio=1", "deter=16", "stoch=3", "width=16", "horizon=4",
)  # fmt: skip
OWN = {"dreamer": (*MODEL, "imagined_starts=8"), "planet": (*MODEL, "candidates=8", "elites=3")}
NORMALISED = ("normalize_obs=true", "normalize_reward=true")
MEMORIES = {"": [], "memmap": ["replay_storage=memmap"], "prioritised": ["prioritised=true", "n_step=3"]}
MEMORIES["prioritised, memmap"] = [*MEMORIES["prioritised"], *MEMORIES["memmap"]]
BETA = [f"priority_beta_schedule{part}" for part in ("=linear", "_start_value=0.4", "_end_value=1")]
PPO, REINFORCE, DQN = "CartPole-v1:ppo", "CartPole-v1:reinforce", "CartPole-v1:dqn"
CASES = {
    "ppo": [PPO, *NORMALISED],
    "ppo in mid-epoch": [PPO, "epoch_iterations=4", "eval_freq_epochs=2", "log_freq_epochs=1"],
    "ppo, gaussian, rmsprop": ["Pendulum-v1:ppo", "optimizer=rmsprop", "target_kl=0.01"],
    "ppo, lstm": [PPO, "policy=lstm", "normalize_obs=true"],
    "ppo, mingru": [PPO, "policy=mingru", "share_trunk=true"],
    "ppo, transformer": [PPO, "policy=transformer", "policy_kwargs.window=20", "normalize_obs=true"],
    "ppo, bf16": [PPO, "precision=bf16", "n_epochs=1"],
    "ppo, accumulating": [PPO, "accumulate=2", "n_epochs=2"],
    "ppo, a rate that follows": [PPO, "policy_lr=kl_0.5"],
    "ppo, lag": [PPO, "lag=1", *NORMALISED],
    "ppo, lag, lstm": [PPO, "lag=1", "policy=lstm", "normalize_obs=true"],
    "reinforce": [REINFORCE],
    "reinforce with a critic in mid-epoch": [REINFORCE, "policy_targets=advantages", "epoch_iterations=3"],
    "reinforce, gru": [REINFORCE, "policy=gru", "policy_targets=advantages", "share_trunk=true"],
    "dqn": [DQN, *REPLAY, "normalize_obs=true", "gradient_steps=3", "epoch_iterations=2"],
    "dqn, prioritised, memmap": [DQN, *REPLAY, *MEMORIES["prioritised, memmap"], "quantiles=5", "buffer_size=400",
                                 "double_q=true", *BETA],
    "sac": ["Pendulum-v1:sac", *REPLAY, "noise_correlation=0.5"],
    "td3": ["Pendulum-v1:td3", *REPLAY, *MEMORIES["prioritised"], "actor_every=3", "noise_correlation=0.5"],
    "tqc": ["Pendulum-v1:tqc", *REPLAY, "normalize_obs=true", "n_step=2"],
    "q_learning": ["FrozenLake-v1:q_learning", "n_envs=8", "n_steps=8"],
    "pqn": ["CartPole-v1:pqn", "normalize_obs=true"],
    "ppo, exploring, lstm": [PPO, "exploration.kind=icm", "policy=lstm"],
    "pqn, exploring": ["CartPole-v1:pqn", "exploration.kind=counts"],
    "dreamer by kernels": ["CartPole-v1:dreamer", *OWN["dreamer"], "batch_size=16", "engine=fused_cpu"],
    "planet by kernels": ["CartPole-v1:planet", *OWN["planet"], "batch_size=16", "engine=fused_cpu"],
}  # fmt: skip
LONG = ("planet by kernels", "dreamer by kernels", "ppo, lag, lstm", "ppo, exploring, lstm")


@pytest.fixture(autouse=True)
def runs_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> RunDir:
    """PPO that nothing happened to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRIDE_RUNS", str(tmp_path_factory.mktemp("straight")))
        return run(PPO)


@pytest.fixture
def copy(straight, tmp_path) -> RunDir:
    """The straight run again, for a test to damage or to go on with."""
    return RunDir(shutil.copytree(straight.path, tmp_path / straight.id, symlinks=True))


def words(*given: str) -> list[str]:
    """A short run, with the given overrides in place of the short run's own, as far as its algorithm knows them."""
    keys = known_keys(load_config(*given[0].split(":")).algo_id)
    last = {word.partition("=")[0]: word for word in given[1:]}
    small = (f"{key}={value}" for key, value in SMALL.items() if key in keys and key not in last)
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
    state = {"weights": checkpoint["state_dict"], "optimizer": checkpoint["optimizer_states"]}
    state |= checkpoint["stride"]["parts"]
    if state["memory"].get("segments"):
        state["memory"]["segments"] = remembered(run, state["memory"])
    return fingerprint({name: state[name] for name in parts or state})


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


def ended(run: RunDir) -> tuple[str, list[dict[str, float]]]:
    return state_hash(run), rows(run)


def killed(run: RunDir) -> None:
    """Its folder says what it said when its process was killed."""
    write_json(run.config_json, {**read_json(run.config_json), "status": "running"})


def resumed(run: RunDir) -> tuple[str, list[dict[str, float]]]:
    """How it ends, gone on with in this process."""
    assert train.command(["--resume", run.id, "-q"]) == 0
    return ended(run)


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
    assert ended(halved) == ended(straight)


@pytest.mark.parametrize("variant", [PPO, REINFORCE])
def test_being_watched_changes_nothing(variant):
    watched, often = run(variant), run(variant, "eval_freq_epochs=1", "eval_deterministic=false")
    alone = run(variant, "eval_freq_epochs=null")
    # not the collector whole: the best mean that it has reported depends on when it was asked
    assert len({state_hash(r, "weights", "optimizer", "memory", "reward_scale") for r in (watched, often, alone)}) == 1


def test_a_spent_run_goes_on_with_a_larger_budget_and_drops_its_test_row(copy):
    tested = "test/roll/ep_rew/mean"
    assert tested in read_csv(copy.metrics_csv)[-1]
    assert train.main(["--resume", copy.id, "-q", "--max-timesteps", "2560"]) == 0
    written = read_csv(copy.metrics_csv)
    steps = [row["train/clock/env_steps"] for row in written]
    assert steps[-1] == 2560 and steps == sorted(steps)
    facts = read_json(copy.config_json)
    assert facts["config"]["max_timesteps"] == 2560 and facts["outcome"]["env_steps"] == 2560
    assert [again["env_steps"] for again in facts["resumed"]] == [1280]
    assert [tested in row for row in written] == [False] * (len(written) - 1) + [True]


ENGINES = [name for name in get_args(hints(RolloutConfig)["engine"]) if name != "auto"]


def variant_of(algo_id: str) -> str:
    """A shipped variant of the algorithm, in a world whose episodes a checkpoint continues to the bit."""
    files = [EnvironmentFile.read(path) for path in environment_files().values()]
    for file in sorted(files, key=lambda file: file.env_id not in ("CartPole-v1", "Pendulum-v1", "FrozenLake-v1")):
        for variant in file.variants:
            if file.algorithm(variant) == algo_id:
                return f"{file.env_id}:{variant}"
    raise AssertionError(f"no shipped variant trains {algo_id}")


def combinations():
    """Each algorithm, with each memory that its keys allow, on every engine.

    What memories and engines hold has little to do with whose worlds they are, so all of them at once is soak.
    """
    for algo_id, memory, engine, backend in product(ALGORITHMS, MEMORIES, ENGINES, ("fast", "gym")):
        if {word.partition("=")[0] for word in MEMORIES[memory]} <= {*known_keys(algo_id)}:
            usual = "gym" if engine == "eager" and memory == "" else "fast"
            marks = [pytest.mark.slow] + [pytest.mark.soak] * (backend != usual)
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


PENDULUM = "Pendulum-v1:ppo"
SCREEN = ["env_id=ALE/Breakout-v5", "spec={}", "grayscale_obs=true", "resize_obs=36", "frame_stack=2", "policy=cnn",
          "policy_kwargs.features=16", "hidden_dims=16", "env_wrappers=[{id: LifeLoss}, {id: ClipReward}]",
          "eval_max_steps=30"]  # fmt: skip
PONG = [PPO, "env_id=ALE/Pong-v5", "env_kwargs.obs_type=ram", "spec={}"]
SHORT = ("eval_max_steps=60",)  # where whole episodes are hundreds of steps, or 1,000 of physics
OPTIONAL = {  # its first word is the package
    "mujoco, HalfCheetah, sac": ["HalfCheetah-v5:sac", *REPLAY, *SHORT],
    "mujoco, Hopper, sac": ["Hopper-v5:sac", *REPLAY, *SHORT, "engine=eager", "normalize_obs=true"],
    "mujoco, Ant, ppo": [PENDULUM, *SHORT, "env_id=Ant-v5", "spec={}", "normalize_obs=true"],
    "ale_py, Pong, ppo": [*PONG, *SHORT],
    "ale_py, Pong, ppo, cut": [*PONG, "max_episode_steps=40"],
    "ale_py, Breakout's screen, ppo": [PPO, *SCREEN],
    "ale_py, Breakout's screen, dqn": [DQN, *REPLAY, *SCREEN],
    "dm_control, cartpole, sac": ["Pendulum-v1:sac", *REPLAY, *SHORT, "env_id=dm_control/cartpole-swingup", "spec={}"],
    "dm_control, walker, ppo": [PENDULUM, *SHORT, "env_id=dm_control/walker-walk", "spec={}", "frame_skip=2"],
    "minigrid, DoorKey, vector": ["MiniGrid-DoorKey-5x5-v0:vector", *SHORT],
    "minigrid, DoorKey, lstm": ["MiniGrid-DoorKey-5x5-v0:lstm", *SHORT],
}
# these show the same again
MORE = ("HalfCheetah, sac", "Pong, ppo", "Pong, ppo, cut", "screen, ppo", "cartpole, sac", "DoorKey, vector")


@pytest.mark.slow
@pytest.mark.parametrize("case", [pytest.param(x, marks=[pytest.mark.soak] * x.endswith(MORE)) for x in OPTIONAL])
def test_worlds_of_optional_packages_resume_to_the_bit(case):
    pytest.importorskip(case.partition(",")[0])
    resumes_to_the_bit(*OPTIONAL[case])


def test_a_run_that_died_before_its_first_checkpoint_begins_anew(straight, copy):
    for path in [*copy.checkpoints.iterdir()]:
        path.unlink()
    killed(copy)
    assert resumed(copy) == ended(straight)


@pytest.mark.parametrize("extra", [(), ("early_stop_on_eval_threshold=1", "spec.goal=5")], ids=["budget", "goal"])
def test_a_run_stopped_in_its_last_iteration_or_in_its_closing_test_only_closes(extra):
    whole = run(PPO, *extra)
    end, outcome = ended(whole), read_json(whole.config_json)["outcome"]
    stopped = run(PPO, *extra, stop_at=outcome["env_steps"] // ITERATION)
    assert read_json(stopped.config_json)["status"] == "interrupted"
    killed(whole)
    for again in (stopped, whole):
        assert resumed(again) == end
        outcome_again = read_json(again.config_json)["outcome"]
        assert all(outcome_again[key] == outcome[key] for key in ("env_steps", "reason", "test_mean", "solved"))


def test_a_fork_begins_with_its_parents_checkpoint_and_rows_also_while_its_parent_trains(copy, capsys):
    before = {path.name: path.read_bytes() for path in copy.checkpoints.iterdir()}
    assert train.command(["--resume", copy.id, "--checkpoint", "epoch=10", "-q"]) == 0
    fork = RunDir.find("@last")
    assert fork.id != copy.id and ended(fork) == ended(copy)
    assert read_json(fork.config_json)["parent"] == {"run": copy.id, "checkpoint": "epoch=10", "env_steps": 640}
    assert train.command(["--resume", copy.id, "--checkpoint", "epoch=10", "-q", "ent_coef=0.1"]) == 0
    changed = RunDir.find("@last")
    assert read_json(changed.config_json)["changed"] == [["ent_coef", 0.0, 0.1]]
    assert rows(changed)[:5] == rows(copy)[:5] and state_hash(changed) != state_hash(copy)
    assert {path.name: path.read_bytes() for path in copy.checkpoints.iterdir()} == before
    with locked(copy.path):
        line = refusal(capsys, train.command, "--resume", copy.id, "max_timesteps=2560")
        assert f"is being trained by process {os.getpid()}" in line
        assert train.command(["--resume", copy.id, "--checkpoint", "best", "max_timesteps=1408", "-q"]) == 0


BREAKING = ["hidden_dims=8", "n_envs=8", "seed=2", "optimizer=sgd", "normalize_obs=true", "env_id=Acrobot-v1"]
BREAKING += ["algo_id=reinforce", "env_backend=gym", "policy=lstm", "n_steps=32", "epoch_iterations=2", "lag=1"]


def test_what_breaks_the_state_is_refused_by_name(copy, capsys):
    for word in BREAKING:
        line = refusal(capsys, train.command, "--resume", copy.id, "max_timesteps=2560", word)
        assert line.startswith(f"error: {word.partition('=')[0]} ")
    assert read_json(copy.config_json)["status"] == "finished"
    line = refusal(capsys, train.command, "--resume", copy.id, "max_timesteps=1300")
    assert "64 more would exceed the budget of 1,300" in line
    assert train.command(["--resume", copy.id, "max_timesteps=1408", "ent_coef=0.01", "clip_range=0.1"]) == 0
    header = capsys.readouterr().out
    assert "at 1,280 env steps (epoch=20), not bit-exact; max_timesteps, ent_coef" in header
    assert "changed: max_timesteps 1280 -> 1408, ent_coef 0.0 -> 0.01" in header


def test_checkpoints_by_the_clock_on_the_wall():
    timed = run(PPO, "checkpoint_minutes=1e-9", "eval_freq_epochs=null", "epoch_iterations=3")
    assert checkpoint_set.names(timed.checkpoints) == [*(f"epoch=0{n}" for n in range(1, 7)), "step=1280"]


def test_what_was_reported_last_matters_to_the_closing_row(straight, copy):
    path = copy.checkpoints / "epoch=20.ckpt"
    save(replaced(read_checkpoint(path), ("stride", "progress", "exported"), 0), path)
    killed(copy)
    assert resumed(copy) != ended(straight)


def save(state, path) -> None:
    """A checkpoint as it might have been written, with a sidecar that vouches for it."""
    torch.save(state, path)
    write_json(path.with_suffix(".json"), {**checkpoint_set.facts_of(path), **checkpoint_set.digest(path)})


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
    "ppo": [PPO, *NORMALISED, "early_stop_patience=2", "early_stop_on_eval_threshold=30", "env_backend=gym"],
    "dqn": [DQN, *REPLAY, *MEMORIES["prioritised, memmap"], "normalize_obs=true", "buffer_size=400", "target_freq=400"],
    "sac": ["Pendulum-v1:sac", *REPLAY, "noise_correlation=0.5", "normalize_obs=true", "max_episode_steps=30"],
    "q_learning": ["FrozenLake-v1:q_learning", "n_envs=8", "n_steps=8", "visits_power=0.6"],
}
OBS, FIRST = (f"fresh stride.parts.collector.{key}" for key in ("envs.obs", "is_first"))
# what these agents do not look at again: the worlds write it anew, and no episode's begin is asked for
SPARE = {"ppo": [], "dqn": [OBS], "sac": [OBS], "q_learning": [FIRST, OBS]}


def changed(state, fresh):
    """(its name, a checkpoint) for each key: without it, and with the value that a fresh run has."""
    ours = ("state_dict", "stride", "callbacks")
    others = dict(inner({key: fresh[key] for key in ours}))
    # returns rise, so a lower best so far is soon the same again; one that was never reached is not
    others["stride", "parts", "collector", "window", "best"] = 1e9
    if others["callbacks", "Evaluate", "best"] != state["callbacks"]["Evaluate"]["best"]:
        others["callbacks", "Evaluate", "best"] = 1e9
    first_weight = next(iter(state["state_dict"]))
    for path, value in inner({key: state[key] for key in ours}):
        # the sidecar says it, until the closing test; one tensor under two names is loaded twice, the second name wins
        if path == ("stride", "progress", "exported") or path[1].startswith("policy.head.linear."):
            continue
        # a missing weight is refused by the strict loading of all of them; once is enough
        if path[0] != "state_dict" or path[1] == first_weight:
            yield f"without {'.'.join(path)}", replaced(state, path, drop=True)
        if path in others and fingerprint(others[path]) != fingerprint(value):
            yield f"fresh {'.'.join(path)}", replaced(state, path, others[path])
        for n in range(len(value) if path[-1] == "segments" else 0):
            yield f"without segment {n}", replaced(state, path, value[:n] + value[n + 1 :])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KEYED)
def test_every_key_of_a_checkpoint_matters(kind, tmp_path):
    """Left out, a key is missed, or the rest of the run is another; with the value of a fresh run it is another."""
    whole, halved, fresh = (run(*KEYED[kind], stop_at=stop) for stop in (0, 9, 1))
    wanted = ended(whole)
    path, first = ((part.checkpoints / "last.ckpt").resolve() for part in (halved, fresh))
    harmless, total = [], 0
    for name, state in changed(read_checkpoint(path), read_checkpoint(first)):
        total += 1
        again = RunDir(shutil.copytree(halved.path, tmp_path / f"changed-{total}" / halved.id, symlinks=True))
        save(state, again.checkpoints / path.name)
        try:
            code = train.command(["--resume", str(again.path), "-q"])
        except ValueError:  # a clock that runs backwards is noticed at the latest when the curve is drawn
            code = 1
        if code == 0 and ended(again) == wanted:
            harmless.append(name)
        shutil.rmtree(again.path.parent)
    assert total > (60 if kind == "ppo" else 25) and harmless == SPARE[kind], (total, harmless)
