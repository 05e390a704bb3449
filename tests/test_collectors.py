"""`collectors: N`: Ray actors play, and nothing of the training differs from `shards: N`, whoever dies on the way."""

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from commands import refusal
from tiny_runs import ended

from stride.agents.base import Agent
from stride.agents.engines.ray_collectors import ActorSlice
from stride.agents.experience.nouns import leaves
from stride.commands import train
from stride.commands.plain_tree import fingerprint
from stride.config.diff import changes
from stride.config.loader import load_config
from stride.runstore.run_dir import RunDir, list_runs
from stride.runstore.run_files import read_json
from stride.utils.user_error import UserError

ITERATION = 128  # env steps
WORDS = [
    "n_envs=8", "n_steps=16", "batch_size=0.5", "n_epochs=2", "max_timesteps=768", "test_episodes=10", "threads=1",
    "eval_episodes=3", "eval_freq_epochs=3", "log_freq_epochs=1", "checkpoint_freq_epochs=3", "env_backend=gym",
    "workers=0",
]  # fmt: skip
NORMALIZED = ["normalize_obs=true", "normalize_reward=true", "target_kl=0.01"]
CASES = {
    "ppo": ["CartPole-v1:ppo", *WORDS, *NORMALIZED],
    "ppo, lstm": ["CartPole-v1:ppo", *WORDS, "policy=lstm"],
    "ppo, lag": ["CartPole-v1:ppo", *WORDS, *NORMALIZED, "lag=1", "policy_lr=0.01"],
    "ppo, lag, lstm": ["CartPole-v1:ppo", *WORDS, "lag=1", "policy=lstm"],
    "reinforce": ["CartPole-v1:reinforce", *WORDS, "normalize_obs=true"],
    "pqn": ["CartPole-v1:pqn", *WORDS],
}
RAY = ["collectors=2", "--on", "ray:local"]
HERE = ["shards=2", "engine=eager"]


@pytest.fixture(autouse=True)
def runs_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))


@pytest.fixture(scope="module")
def one_cluster():
    """Ray goes on between the commands of this module."""
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # as ray_pool does before its import: loopback only
    ray = pytest.importorskip("ray", reason="pip install 'stride-rl[cluster]'")
    shutdown, ray.shutdown = ray.shutdown, lambda: None
    yield ray
    ray.shutdown = shutdown
    shutdown()


@pytest.fixture
def ray_not_imported(monkeypatch):
    """Ray counts as installed, also where it is not; what is refused is refused before its import."""
    monkeypatch.setattr("stride.config.extras.find_spec", lambda package: object())
    monkeypatch.setitem(sys.modules, "ray", None)


def run(given: list[str], code: int = 0) -> RunDir:
    """The run of a command in this process that ends with this exit code."""
    before = {run.id for run in list_runs()}
    assert train.command(["-q", *given]) == code
    named = given[given.index("--resume") + 1] if "--resume" in given else ""
    (made,) = (run for run in list_runs() if run.id == named or (not named and run.id not in before))
    return made


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_bits_are_those_of_shards(case, one_cluster):
    assert ended(run([*CASES[case], *RAY])) == ended(run([*CASES[case], *HERE]))


def test_a_stopped_run_of_shards_in_one_process_goes_on_with_equal_bits(ray_not_imported, capsys):
    words = [*CASES["ppo"], *HERE]
    half = run([*words, "--pause-at", str(3 * ITERATION)])
    words_on = ["--resume", half.id, "--on", "ray:local"]
    assert "--on ray:local is for several runs" in refusal(capsys, train.command, *words_on)
    assert ended(run(["--resume", half.id])) == ended(run(words))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["ppo", "ppo, lag"])
def test_a_stopped_run_goes_on_with_shards_and_again_with_collectors(case, one_cluster):
    begun = run([*CASES[case], *RAY, "--pause-at", str(2 * ITERATION)])
    run(["--resume", begun.id, "shards=2", "collectors=0", "--pause-at", str(4 * ITERATION)])
    assert read_json(begun.checkpoints / "last.json")["iterations"] == 4
    again = run(["--resume", begun.id, "shards=1", *RAY])
    assert ended(again) == ended(run([*CASES[case], *HERE]))


def struck(monkeypatch, number: int, at: Mapping[tuple[int, int], float]) -> Counter[int]:
    """Send this signal to the processes of actors. `at`: by slice and the number of a request to it, how many seconds
    later. The requests to each slice are counted."""
    play, asked = ActorSlice.play, Counter()

    def play_and_strike(slice_: ActorSlice, request: object) -> None:
        asked[slice_.number] += 1
        seconds = at.get((slice_.number, asked[slice_.number]))
        if seconds is None:
            return play(slice_, request)
        pid = slice_._ray.get(slice_.actor.__ray_call__.remote(lambda actor: os.getpid()))
        assert b"ray::" in Path(f"/proc/{pid}/cmdline").read_bytes()
        play(slice_, request)
        threading.Timer(seconds, os.kill, (pid, number)).start()

    monkeypatch.setattr(ActorSlice, "play", play_and_strike)
    return asked


@pytest.mark.slow
@pytest.mark.parametrize(
    "case, number", [("ppo", signal.SIGKILL), ("ppo", signal.SIGSTOP), ("ppo, lag", signal.SIGKILL)]
)
def test_an_actor_that_dies_or_is_silent_is_replaced(case, number, one_cluster, monkeypatch, capsys):
    monkeypatch.setattr("stride.agents.engines.ray_collectors.SILENCE_SECONDS", 2.0)
    asked = struck(monkeypatch, number, {(1, 3): 0.0})
    struck_run = run([*CASES[case], *RAY])
    assert asked[1] == 6 + 1 + ("lag" in case)
    assert "collector 1 (environments 4 to 7) " in struck_run.run_log.read_text()
    assert ended(struck_run) == ended(run([*CASES[case], *HERE]))


@pytest.mark.slow
def test_with_lag_actors_play_while_the_shards_learn(one_cluster, monkeypatch):
    events = []
    for owner, method in ((ActorSlice, "play"), (Agent, "learn_from")):
        original = getattr(owner, method)
        noted = lambda self, what, original=original, method=method: events.append(method) or original(self, what)  # noqa: E731
        monkeypatch.setattr(owner, method, noted)
    run([*CASES["ppo, lag"], *RAY, "--pause-at", str(2 * ITERATION)])
    assert events == ["play"] * 2 + ["play", "play", "learn_from", "learn_from"] * 2


@pytest.mark.slow
def test_a_slice_whose_actors_die_again_and_again_ends_the_run_saved(one_cluster, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr("stride.agents.engines.ray_collectors.MAX_DEATHS", 2)
        struck(patch, signal.SIGKILL, {(1, 5): 0.0, (1, 6): 0.0})
        lost = run([*CASES["ppo"], *RAY], code=1)
    error = capsys.readouterr().err
    assert "collector 1 (environments 4 to 7) died" in error and "2 times in one rollout" in error
    assert read_json(lost.checkpoints / "last.json")["iterations"] == 4
    assert ended(run(["--resume", lost.id, "--on", "ray:local"])) == ended(run([*CASES["ppo"], *HERE]))


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("lag", [0, 1])
def test_20_actors_killed_cost_no_row(lag, one_cluster, monkeypatch, capsys):
    monkeypatch.setenv("STRIDE_PROJECT", str(Path(__file__).parent))
    rows, learn_from = [], Agent.learn_from

    def noted(agent: Agent, work: object) -> None:
        rows.append(fingerprint({"rows": leaves(agent.memory.table)}))
        learn_from(agent, work)

    monkeypatch.setattr(Agent, "learn_from", noted)
    slow = ["async_worlds:stride-test/Slow-v0:ppo", "env_kwargs.seconds=0.005", *WORDS, *NORMALIZED, f"lag={lag}"]
    expected = ended(run([*slow, *HERE])), rows.copy()
    rows.clear()
    requests = {0: (1, 2, 3, 5, 8, 9, 11, 12, 13, 14), 1: (1, 3, 4, 5, 6, 8, 11, 12, 14, 15)}
    moments = [(number, request) for number, of_slice in requests.items() for request in of_slice]
    # a rollout takes at least 0.32 s
    asked = struck(monkeypatch, signal.SIGKILL, {moment: 0.013 * index for index, moment in enumerate(moments)})
    killed = run([*slow, *RAY])
    assert killed.run_log.read_text().count("a new one plays its rollout again") == 20
    assert asked == {0: 6 + 10 + lag, 1: 6 + 10 + lag}
    assert (ended(killed), rows) == expected and len(rows) == 2 * 6


def test_what_cannot_be_is_one_line(ray_not_imported, capsys):
    for overrides, message in {
        "collectors=3": "collectors must be a power of two, not 3; 2 is one",
        "collectors=16": "collectors 16 does not divide n_envs 8; collectors=8 does",
        "collectors=8 batch_size=4": "collectors 8 does not divide batch_size 4 rows; collectors=4 does",
        "collectors=2 shards=2": "leave out shards=2",
        "collectors=2 engine=fused_cpu": "use engine=auto",
        "collectors=2 engine=graphed": "graphed needs device: cuda",
        "collectors=2 device=cuda": "use device=cpu",
        "collectors=2": "add --on ray, or --on ray:local",
        "collectors=2 --on ray:local": "compiled environments: nothing to gain; use shards=2, or env_backend=gym",
        "collectors=2 --seed 1,2 --on ray:local": "one run at a time",
        "collectors=2 --processes 2 --on ray:local": "leave out the other flag",
    }.items():
        typed = ["CartPole-v1:ppo", "n_envs=8", "n_steps=16", *overrides.split()]
        assert message in refusal(capsys, train.command, *typed), overrides
    typed = ["CartPole-v1:dqn", "collectors=2", "--on", "ray:local"]
    assert "collectors: dqn cannot be trained in shards" in refusal(capsys, train.command, *typed)


def test_who_plays_the_slices_may_change_and_their_number_may_not():
    two, four, none = (load_config("CartPole-v1", "ppo", words) for words in (["collectors=2"], ["shards=4"], []))
    assert changes(two, load_config("CartPole-v1", "ppo", ["shards=2"])) == []
    for other in (four, none):
        with pytest.raises(UserError, match="collectors"):
            changes(two, other)
