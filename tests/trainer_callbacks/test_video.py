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


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))


def lengths(run: RunDir):
    """Frames of each video, by name."""
    found = {}
    for path in run.videos.iterdir():
        with av.open(str(path)) as container:
            found[path.name] = sum(1 for _ in container.decode(video=0))
    return found


def weights(run):
    return torch.load(run.checkpoints / "last.ckpt", weights_only=True)["state_dict"]


def test_a_video_is_the_first_evaluation_episode_on_its_cadence():
    run = tiny_run(video_freq_epochs=2, video_max_steps=30)
    found = lengths(run)
    assert found.keys() == {"epoch=02.mp4", "epoch=04.mp4"}
    loaded = load_run(run.id, "epoch=04")
    env = make_rendered(loaded.config, None)
    start = EpisodeStart(worlds_seed(loaded.config, EVALUATE, 0), 0, EVALUATE)
    episode = record(env, loaded.agent, loaded.config, start, "greedy", 30, frames=False)
    assert found["epoch=04.mp4"] == episode.length + 1


def test_training_is_the_same_with_and_without_videos():
    plain, filmed = weights(tiny_run()), weights(tiny_run(video_freq_epochs=1, video_max_steps=5))
    assert all(torch.equal(plain[name], filmed[name]) for name in plain)


def test_no_cadence_is_no_video():
    assert not lengths(tiny_run(video_freq_epochs=0)) and not lengths(tiny_run())


@pytest.mark.parametrize(
    ("missing", "said"), [("av", "pip install 'stride-rl[video]'"), ("pygame", "pip install 'stride-rl[video]'")]
)
def test_what_is_missing_is_one_warning_and_no_end(missing, said, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)  # as if it were not installed
    run = tiny_run(video_freq_epochs=1)
    warnings = [line for line in run.run_log.read_text().splitlines() if "no videos in this run" in line]
    assert len(warnings) == 1 and said in warnings[0]
    assert not list(run.videos.iterdir()) and load_run(run.id, "last").progress["env_steps"] == 64


def test_an_environment_that_cannot_be_drawn_is_one_warning(tmp_path):
    """`Plain-v0` has no render modes at all."""
    run = tiny_run("CartPole-v1:ppo", env_id="plain_world:Plain-v0", video_freq_epochs=1)
    assert run.run_log.read_text().count("has no render mode rgb_array") == 1


def test_a_full_disk_or_a_missing_folder_is_one_warning(monkeypatch):
    monkeypatch.setattr(RunDir, "videos", property(lambda run: run.path / "gone" / "videos"))
    monkeypatch.setattr(RunDir, "create", classmethod(_create(RunDir.create.__func__)))
    run = tiny_run(video_freq_epochs=1, video_max_steps=3)
    assert run.run_log.read_text().count("no videos in this run") == 1


def _create(create):
    def made(cls, *arguments):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cls, "videos", property(lambda run: run.path / "videos"))
            return create(cls, *arguments)

    return made
