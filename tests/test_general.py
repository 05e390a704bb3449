"""ENV:ALGORITHM without a variant: the general settings of its class of task, and refusals that name what fits."""

import re
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from exotic_worlds import Exotic
from gymnasium import spaces
from snapshots import shown

from stride.agents.engines.choice import build_agent
from stride.commands import train
from stride.commands.train_opening import answer_early
from stride.config.general import (
    ACTIONS_OF,
    GENERAL,
    KIND_NAMES,
    Task,
    gymnasium_ids,
    is_general,
    load_general,
    split,
    to_keep,
)
from stride.config.listing import print_variants
from stride.config.loader import load_file, to_plain
from stride.config.plugins import TooEarlyError
from stride.config.raw import EnvironmentFile
from stride.config.schema import ALGORITHMS, ReplayConfig
from stride.envs_gym.make import make_envs
from stride.envs_gym.task import described, task_of
from stride.runstore.run_dir import RunDir
from stride.utils.user_error import UserError

SEEN = {
    "numbers": spaces.Box(-1, 1, (3,), np.float32),
    "states": spaces.Discrete(5),
    "image": spaces.Box(0, 255, (3, 84, 84), np.uint8),
    "small image": spaces.Box(0, 255, (3, 32, 32), np.uint8),
    "grid": spaces.Box(0, 255, (3, 12, 12), np.uint8),
}
DONE = {
    "choice": spaces.Discrete(3),
    "choices": spaces.MultiDiscrete([2, 3]),
    "bounded": spaces.Box(-1, 1, (2,), np.float32),
    "unbounded": spaces.Box(-np.inf, np.inf, (2,), np.float32),
}


def anything(seen: str = "numbers", done: str = "choice") -> gymnasium.Env:
    """A world of any two spaces."""
    return Exotic(SEEN[seen], DONE[done])


gymnasium.register("Anything-v0", anything, max_episode_steps=8)
QUICK = (("numbers", "choice"), ("states", "bounded"))
WORLDS = [(seen, done) for seen in SEEN for done in DONE]
WORLDS = [pytest.param(*pair, marks=() if pair in QUICK else pytest.mark.slow) for pair in WORLDS]


def general(algo_id, seen, done, *more):
    kwargs = [f"env_kwargs.seen={seen!r}", f"env_kwargs.done={done}", *more]
    return load_general(f"Anything-v0:{algo_id}", kwargs, task_of)


@pytest.mark.parametrize(("seen", "done"), WORLDS)
def test_who_is_said_to_fit_can_be_built_and_nobody_else(seen, done):
    """The table of who takes which actions against the networks themselves; images are made small, memories short."""
    task = described(SEEN[seen], DONE[done])
    for algo_id in ACTIONS_OF:
        small = ["threads=1", "engine=eager", "n_envs=1"]
        small += ["buffer_size=500", "learning_starts=10"] if issubclass(ALGORITHMS[algo_id], ReplayConfig) else []
        try:
            config = general(algo_id, seen, done, *small)
        except UserError as error:
            line = str(error)
            assert not task.fits(algo_id) or "has no general settings" in line, line
            named = re.search(r"; (?:only )?([\w, ]+) (?:has|have) ", line)
            assert named and algo_id not in named[1].split(", ") and "ppo" in named[1].split(", ")
            continue
        assert task.fits(algo_id) and config.algo_id == config.variant == algo_id
        envs = make_envs(config, 1)
        assert build_agent(config, envs).config is config
        envs.close()


@pytest.mark.parametrize(
    "words", ["dqn bounded", "pqn choices", "sac choice", "td3 choices", "q_learning bounded", "planet unbounded"]
)
def test_who_is_said_not_to_fit_cannot_be_built(words):
    algo_id, done = words.split()
    own = {"env_id": "Anything-v0", "env_kwargs": {"done": done}, "max_timesteps": 1 << 20, "n_envs": 1}
    config = ALGORITHMS[algo_id](algo_id=algo_id, **own)
    with pytest.raises(UserError):
        build_agent(config, make_envs(config, 1))


def test_the_class_of_a_task():
    def kind(seen, done="choice"):
        return described(SEEN[seen] if isinstance(seen, str) else seen, DONE[done]).kind

    assert [kind(seen) for seen in SEEN] == ["discrete", "tabular", "images", "small_images", "grids"]
    assert kind("numbers", "bounded") == kind("states", "unbounded") == "continuous"
    assert (kind("image", "bounded"), kind("small image", "unbounded")) == (
        "continuous_images",
        "continuous_small_images",
    )
    assert kind(spaces.Dict({"a": SEEN["image"], "b": SEEN["small image"], "c": SEEN["numbers"]})) == "small_images"
    counts = {"a": spaces.Discrete(7), "b": spaces.MultiDiscrete([2, 3]), "action_mask": spaces.MultiBinary(3)}
    assert described(spaces.Dict(counts), DONE["choice"]).states == 42
    many = Task("choice", "", 1 << 30, None)
    assert many.fits("dqn") and not many.fits("q_learning")


def test_every_block_says_for_what_and_on_what_it_was_chosen():
    for path in GENERAL.glob("*.yaml"):
        file = EnvironmentFile.read(path)
        assert path.stem in ACTIONS_OF
        assert {*file.variants} <= {*KIND_NAMES}
        for name in file.variants:
            values = file.raw(name).values
            assert re.match(r"general settings for [\w ]+, (chosen|published|as|similar) ", values["description"])
            assert values["max_timesteps"] and file.algorithm(name) == path.stem


def test_ids_and_algorithms_are_told_apart():
    assert split("Ant-v5:sac") == ("Ant-v5", "sac") and split("ALE/Pong-v5:ppo") == ("ALE/Pong-v5", "ppo")
    assert split("mypkg:MyEnv-v0:dqn") == ("mypkg:MyEnv-v0", "dqn")
    assert split("CartPole-v1:my.pkg:Agent") == ("CartPole-v1", "my.pkg:Agent")
    assert split("mypkg:MyEnv-v0:mypkg:Agent") == ("mypkg:MyEnv-v0", "mypkg:Agent")
    shipped = "CartPole-v1:ppo CartPole-v1:ppo_lstm CartPole-v1:pp CartPole-v1 mypkg:MyEnv-v0 ppo :ppo"
    assert not any(map(is_general, shipped.split()))
    assert all(map(is_general, ("HalfCheetah-v5:ppo", "Nowhere-v0:dqn", "a:B:ppo", "CartPole-v1:sac")))


def test_a_shipped_environment_keeps_its_goal_and_another_is_looked_at():
    with pytest.raises(TooEarlyError):  # before torch is there
        load_general("InvertedPendulum-v5:ppo", [], None)
    config = load_general("Pendulum-v1:reinforce", ["spec.returns=[-4000,0]", "seed=7"], task_of)
    assert (config.env_id, config.variant, config.seed, config.spec.goal) == ("Pendulum-v1", "reinforce", 7, -180)
    assert config.spec.returns == (-4000, 0) and config.n_steps == 256 and config.policy_lr.start_value == 0.002


def test_what_is_printed_to_keep_is_the_same_config(tmp_path):
    for words, overrides in (
        ("Pendulum-v1:reinforce", ["n_envs=4"]),
        ("Anything-v0:ppo", ["env_kwargs.seen=image", "obs=native", "frame_stack=2"]),
        ("Taxi-v4:dqn", ["hidden_dims=[32]"]),
    ):
        config = load_general(words, overrides, task_of)
        lines = to_keep(config)
        path = tmp_path / "my.yaml"
        path.write_text("\n".join(lines))
        assert len(lines) == 3
        labels = dict.fromkeys(("description", "project_id", "spec"))
        assert {**to_plain(load_file(path)), **labels} == {**to_plain(config), **labels}
        assert load_file(path).spec.goal == config.spec.goal


def test_the_header_says_so_and_the_file_trains(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    words = ["max_timesteps=4096", "n_steps=64", "test_episodes=2", "eval_freq_epochs=null"]
    assert answer_early(["Anything-v0:ppo", *words]) is None
    assert train.command(["Anything-v0:ppo", *words]) == 0
    out = capsys.readouterr().out
    assert "general settings for small discrete tasks, chosen on CartPole-v1" in out
    assert "env_id: Anything-v0\nppo: {" in out
    path = tmp_path / "my.yaml"
    path.write_text("".join(out[out.index("env_id: Anything") :].splitlines(keepends=True)[:2]))
    assert train.command(["--config", str(path), "-q"]) == 0
    facts = [run.facts() for run in map(RunDir, sorted((tmp_path / "runs").glob("2*")))]
    assert facts[0]["config"]["n_steps"] == facts[1]["config"]["n_steps"] == 64


REFUSED = ("Pendulum-v1:dqn", "CartPole-v1:sac", "Anything-v0:ppp", "no_such_module:Env-v0:ppo",
           "Anything-v0", "mypkg:Env-v0")  # fmt: skip


def test_refusals_name_what_fits(capsys, snapshot):
    lines = []
    for words in REFUSED:
        try:
            assert answer_early([words]) is None
        except UserError as error:
            line = f"error: {error}"
        else:
            assert train.command([words]) == 2
            line = capsys.readouterr().err.strip()
        assert len(line) <= 300 and "\n" not in line
        lines += [words, f"    {line}"]
    assert shown("\n".join(lines)) == snapshot
    with pytest.raises(UserError, match="unknown environment 'CartPol-v1'; did you mean CartPole-v1"):
        load_general("CartPol-v1:ppo", [], task_of)


def test_gymnasiums_own_ids_are_read_off_its_source():
    own = "[name for name, spec in gymnasium.registry.items() if str(spec.entry_point).startswith('gymnasium.')]"
    fresh = f"import gymnasium; print(*{own})"  # in this process other tests have registered theirs
    names = subprocess.run([sys.executable, "-c", fresh], capture_output=True, text=True, check=True).stdout.split()
    assert {*names} <= {*gymnasium_ids()} and len(names) > 40


def test_what_no_network_reads_is_named_with_the_cure(monkeypatch):
    texts = spaces.Dict({"mission": spaces.Text(8), "x": SEEN["numbers"], "y": SEEN["states"]})
    monkeypatch.setitem(SEEN, "texts", texts)
    with pytest.raises(UserError, match="observation 'mission' is Text, which a network cannot read") as error:
        general("ppo", "texts", "choice")
    cure = re.search(r"env_wrappers=\S+", str(error.value))
    assert cure and general("ppo", "texts", "choice", cure[0]).env_wrappers


def test_the_listing_mentions_it(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_variants("")
    assert "ENV:ALGORITHM, such as dm_control/walker-walk:sac" in capsys.readouterr().out
