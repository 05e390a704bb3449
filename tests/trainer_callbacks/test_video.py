"""Videos come on their cadence, show what evaluation plays, and never change or end a training."""

import sys

import pytest
import torch
from tiny_runs import tiny_run

from stride.agents.trained.episode import record
from stride.agents.trained.loading import load_run
from stride.agents.trained.player import EpisodeStart
from stride.envs_gym.rendered import make_rendered
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.evaluate import worlds_seed
from stride.utils.counter_rng import EVALUATE

av = pytest.importorskip("av", reason="needs PyAV: pip install 'stride-rl[video]'")


def frames(path):
    with av.open(str(path)) as container:
        return sum(1 for _ in container.decode(video=0))


def weights(run):
    return torch.load(run.checkpoints / "last.ckpt", weights_only=True)["state_dict"]


def test_a_video_is_the_first_evaluation_episode_on_its_cadence_and_changes_no_training():
    filmed, plain = tiny_run(video_freq_epochs=2, video_max_steps=30), tiny_run(video_freq_epochs=0)
    assert not list(plain.videos.iterdir()) and not list(tiny_run(max_timesteps=16).videos.iterdir())
    assert {path.name for path in filmed.videos.iterdir()} == {"epoch=02.mp4", "epoch=04.mp4"}
    loaded = load_run(filmed.id, "epoch=04")
    env = make_rendered(loaded.config, None)
    start = EpisodeStart(worlds_seed(loaded.config, EVALUATE, 0), 0, EVALUATE)
    episode = record(env, loaded.agent, loaded.config, start, "greedy", 30, frames=False)
    assert frames(filmed.videos / "epoch=04.mp4") == episode.length + 1
    assert all(torch.equal(weights(plain)[name], weight) for name, weight in weights(filmed).items())


@pytest.mark.parametrize("missing", ["av", "pygame"])
def test_what_is_missing_is_one_warning_and_no_end(missing, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)  # as if it were not installed
    run = tiny_run(video_freq_epochs=1)
    (warning,) = [line for line in run.run_log.read_text().splitlines() if "no videos in this run" in line]
    assert "pip install 'stride-rl[video]'" in warning
    assert not list(run.videos.iterdir()) and load_run(run.id, "last").progress["env_steps"] == 64


def test_an_environment_that_cannot_be_drawn_is_one_warning():
    """`Plain-v0` has no render modes at all."""
    run = tiny_run("CartPole-v1:ppo", env_id="plain_world:Plain-v0", video_freq_epochs=1)
    assert run.run_log.read_text().count("has no render mode rgb_array") == 1


def test_a_full_disk_or_a_missing_folder_is_one_warning(monkeypatch):
    videos = RunDir.videos

    def gone(run):  # once the run has its folders
        return run.path / "gone" / "videos" if run.run_log.exists() else videos.fget(run)

    monkeypatch.setattr(RunDir, "videos", property(gone))
    run = tiny_run(video_freq_epochs=1, video_max_steps=3)
    assert run.run_log.read_text().count("no videos in this run") == 1
