"""A run on disk becomes a player, or one clear line; nothing but plain tensors is ever loaded.

A network takes the memory of the weights that came for it, as every agent's own does; more is refused.
"""

import json
import os
import shutil
from itertools import product

import gymnasium
import numpy as np
import pytest
import torch
from tiny_runs import tiny_run

from stride.agents.experience.collector import Policy
from stride.agents.experience.nouns import Act
from stride.agents.trained.allowance import Allowance
from stride.agents.trained.episode import play_episodes
from stride.agents.trained.loading import list_checkpoints, load_run, read_checkpoint
from stride.agents.trained.player import EpisodeStart, Player
from stride.commands import run_play, train
from stride.envs_gym.spaces import observation_space
from stride.runstore import checkpoint_set
from stride.runstore.run_dir import RunDir
from stride.utils.durable_file import write_json
from stride.utils.user_error import UserError


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("runs")
        patch.setenv("STRIDE_RUNS", str(folder))
        tiny_run()
        yield folder


@pytest.fixture
def copied(root, tmp_path):
    """A copy of the run to damage."""
    run = RunDir.find("@last")
    shutil.copytree(run.path, tmp_path / run.id, symlinks=True)
    return RunDir(tmp_path / run.id)


def save(run, name, state):
    """A checkpoint of that content whose sidecar vouches for it, as one who can write files would make it."""
    torch.save(state, run.checkpoints / f"{name}.ckpt")
    seal_again(run, name)


def seal_again(run, name):
    path = run.checkpoints / f"{name}.ckpt"
    write_json(path.with_suffix(".json"), {**checkpoint_set.facts_of(path), **checkpoint_set.digest(path)})


def test_the_weights_are_those_of_the_checkpoint(root):
    loaded = load_run("@last", "epoch=02")
    stored = torch.load(loaded.run.checkpoints / "epoch=02.ckpt", weights_only=True)
    for name, value in loaded.agent.policy.state_dict().items():
        assert torch.equal(value, stored["state_dict"][f"policy.{name}"])
    assert loaded.progress["env_steps"] == 32 and loaded.checkpoint == "epoch=02" and loaded.notes == ()
    assert loaded.goal == 475 and loaded.config.n_envs == 2 and loaded.facts["status"] == "finished"


def test_selectors_and_checkpoints(root):
    run = RunDir.find("@last")
    for selector in ("@last", "@best:CartPole-v1", run.id, run.id[:20], str(run.path)):
        assert load_run(selector).run.id == run.id
    assert load_run("@last", "last").checkpoint == "epoch=04"
    assert load_run("@last").checkpoint == os.readlink(run.checkpoints / "best.ckpt").removesuffix(".ckpt")
    assert load_run("@last", "epoch=4").checkpoint == "epoch=04" and list_checkpoints(run) == ["epoch=02", "epoch=04"]


def test_a_loaded_agent_acts_in_the_raw_environment(root):
    agent, env = load_run("@last").agent, gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=1)
    for _ in range(5):
        action = agent.act(obs)
        assert env.action_space.contains(action) and action == agent.act(obs)  # greedy does not draw
        obs, *_ = env.step(action)
    with pytest.raises(ValueError, match="does not fit"):
        agent.act(np.zeros(3, np.float32))


def test_without_a_best_the_last_is_taken_and_said(copied):
    (copied.checkpoints / "best.ckpt").unlink()
    loaded = load_run(str(copied.path))
    assert loaded.checkpoint == "epoch=04" and "using last" in loaded.notes[0]


def test_a_run_in_training_is_loaded_while_it_writes(root, copied):
    facts = json.loads(copied.config_json.read_text())
    copied.config_json.write_text(json.dumps({**facts, "status": "running"}))
    (copied.checkpoints / ".half.tmp").write_bytes(b"half")
    (copied.checkpoints / "epoch=06.ckpt.1.tmp").write_bytes(b"half")
    assert load_run(str(copied.path), "last").facts["status"] == "running"


def test_a_run_of_a_gpu_plays_without_one(copied):
    facts = json.loads(copied.config_json.read_text())
    write_json(copied.config_json, {**facts, "config": {**facts["config"], "device": "cuda:1", "engine": "auto"}})
    loaded = load_run(str(copied.path))
    assert (loaded.config.device, loaded.config.engine, loaded.config.env_backend) == ("cpu", "eager", "gym")
    assert loaded.facts["config"]["device"] == "cuda:1"
    assert len(list(play_episodes(loaded, 2, max_steps=5))) == 2


WRONG = {
    "epoch=99": "it has epoch=02, epoch=04",
    "bset": "did you mean best",
    "../best": "takes best, last or epoch=NN",
}


@pytest.mark.parametrize("checkpoint", WRONG)
def test_a_wrong_checkpoint_is_refused(root, checkpoint):
    with pytest.raises(UserError, match=WRONG[checkpoint]):
        load_run("@last", checkpoint)


def test_what_does_not_fit_is_named(copied):
    state = read_checkpoint(copied.checkpoints / "epoch=04.ckpt")
    tensors = state["state_dict"]
    name = "policy.actor.0.0.weight"
    for changed, fragment in (
        ({key: value for key, value in tensors.items() if key != name}, "tensor actor.0.0.weight is missing"),
        ({**tensors, "policy.extra": torch.zeros(1)}, "no place for tensor extra"),
        ({**tensors, name: torch.zeros(64, 5)}, r"float32\[64, 5\], but torch.float32\[64, 4\] in the policy"),
        ({**tensors, name: tensors[name].double()}, "float64"),
        ({**tensors, name: "text"}, "is str"),
    ):
        save(copied, "epoch=04", {**state, "state_dict": changed})
        with pytest.raises(UserError, match=fragment):
            load_run(str(copied.path), "epoch=04")


class Evil:
    """Runs a command where it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("executed",)


@pytest.mark.parametrize("damage", ["cut", "text", "pickle", "other", "list"])
def test_damaged_and_hostile_files_are_refused(copied, damage, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    path = copied.checkpoints / "epoch=04.ckpt"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        seal_again(copied, "epoch=04")
    elif damage == "text":
        path.write_text("not a checkpoint")
        seal_again(copied, "epoch=04")
    else:
        save(copied, "epoch=04", {"pickle": {"state_dict": Evil()}, "other": {"a": 1}, "list": [1]}[damage])
    with pytest.raises(UserError, match=r"damaged|more than plain data|not a checkpoint") as caught:
        load_run(str(copied.path), "epoch=04")
    assert "\n" not in str(caught.value) and not (tmp_path / "executed").exists()


def test_a_link_out_of_the_run_is_not_followed(copied, tmp_path):
    (copied.checkpoints / "best.ckpt").unlink()
    (copied.checkpoints / "best.ckpt").symlink_to(tmp_path / "elsewhere.ckpt")
    with pytest.raises(UserError, match="not a checkpoint of this run"):
        load_run(str(copied.path))


def test_a_run_without_a_checkpoint_says_so(copied):
    shutil.rmtree(copied.checkpoints)
    with pytest.raises(UserError, match="no checkpoint yet"):
        load_run(str(copied.path))


class Counting(Policy):
    """Remembers how often it was asked since the episode began: that is its action."""

    draws = 1

    def initial(self, num_envs):
        return torch.zeros(num_envs, dtype=torch.int64)

    def act(self, obs, carry, is_first, noise, greedy):
        seen = torch.where(is_first, 0, carry)
        return Act(seen % 5, (), seen + 1)


def test_a_carry_lives_through_an_episode_and_ends_with_it():
    player = Player(Counting(), gymnasium.spaces.Discrete(3, start=1), gymnasium.spaces.Discrete(5, start=10))
    assert [player.act(1) for _ in range(3)] == [10, 11, 12]
    player.choose(1, "random")  # not its choice, but an instant of its episode
    assert player.act(3) == 14
    player.reset()
    assert player.act(2) == 10
    with pytest.raises(ValueError, match="is outside 1"):
        player.act(0)


def test_random_actions_are_the_environments_own():
    """Bounds are unscaled, a Discrete may begin anywhere."""
    box, choice = gymnasium.spaces.Box(-2.0, 6.0, (1,), np.float32), gymnasium.spaces.Discrete(2, start=5)
    drawn, chosen = [], []
    for number in range(200):
        for space, actions in ((box, drawn), (choice, chosen)):
            player = Player(Counting(), gymnasium.spaces.Discrete(3), space)
            player.reset(EpisodeStart(3, number))
            actions.append(player.choose(1, "random").action)
    values = np.array(drawn)
    assert box.contains(drawn[0]) and values.min() < -1 and values.max() > 5 and abs(values.mean() - 2) < 1
    assert {*chosen} == {5, 6} and observation_space(choice).n == 2


# --- what may be taken


@pytest.mark.parametrize("make", [
    lambda: torch.empty(1 << 40), lambda: torch.zeros(1 << 20, 1 << 20), lambda: torch.arange(1 << 40),
    lambda: torch.nn.Linear(1 << 20, 1 << 20), lambda: torch.nn.LSTM(1, 1 << 16),
    lambda: torch.zeros(1).new_full((1 << 40,), 1.0), lambda: [torch.ones(1 << 20) for _ in range(1 << 10)],
])  # fmt: skip
def test_more_is_never_made(make):
    with pytest.raises(UserError, match="needs a tensor of"), Allowance({"w": torch.zeros(8)}, 32, "theirs"):
        make()


def test_a_view_does_not_claim_more_than_there_is():
    endless = torch.zeros(1).expand(1 << 40)
    assert Allowance({"w": endless}, 0, "theirs").largest < 1 << 30


def spoilt(folder, changes):
    """A run of somebody else, whose config says more."""
    run = tiny_run(engine="eager")
    theirs = folder / "theirs" / run.id
    shutil.copytree(run.path, theirs, symlinks=True)
    facts = json.loads((theirs / "config.json").read_text())
    facts["config"].update(changes)
    (theirs / "config.json").write_text(json.dumps(facts))
    return theirs


CHANGES = {
    "product": (
        {"n_envs": 1 << 16, "n_steps": 1 << 16, "frame_stack": 2, "max_timesteps": 1 << 40},
        "a rollout needs at least 34,359,738,368",
    ),
    "rollout": ({"n_steps": 1 << 22, "max_timesteps": 1 << 40}, "n_steps above"),
    "window": ({"env_kwargs": {"render_mode": "human"}}, "env_kwargs.render_mode"),
    "memory": ({"policy": "gru", "policy_kwargs": {"hidden_size": 50_000}, "batch_size": 1.0}, "needs a tensor of"),
    "network": ({"hidden_dims": [50_000, 50_000]}, "needs a tensor of"),
}


PLAY, RESUME = (run_play, "--headless", "--episodes", "1", "--run-id"), (train, "-q", "--accept-changes", "--resume")


@pytest.mark.parametrize(("words", "what"), [*product([PLAY], CHANGES), *product([RESUME], [*CHANGES][:3])])
def test_a_run_folder_from_elsewhere_gets_no_more(tmp_path, monkeypatch, capsys, words, what):
    changes, reason = CHANGES[what]
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    theirs = spoilt(tmp_path, changes)
    capsys.readouterr()
    program, *flags = words
    assert program.command([*flags, str(theirs)]) == 2
    line = capsys.readouterr().err
    assert reason in line and len(line.splitlines()) == 1, line
