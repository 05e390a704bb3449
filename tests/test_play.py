"""The command that plays: returns that repeat, goals met or not, JSON, videos, and one line for what is wrong."""

import io
import json
import sys

import numpy as np
import pytest
from commands import refusal
from gallery import gallery, gallery_copy
from gymnasium import spaces

from stride.agents.playing.film import captioned
from stride.agents.playing.keyboard import Steering
from stride.commands import run_play
from stride.runstore.run_files import check_folder, write_json
from stride.utils.user_error import UserError


@pytest.fixture(autouse=True)
def run(monkeypatch):
    """The run that is played; nobody watches."""
    monkeypatch.setenv("STRIDE_RUNS", str(gallery("ppo").path.parent))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    return gallery("ppo")


@pytest.fixture
def av():
    return pytest.importorskip("av", reason="needs PyAV: pip install 'stride-rl[video]'")


def played(capsys, *words):
    assert run_play.command([*words, "--json"]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 1
    return json.loads(out)


def test_a_line_per_episode_and_a_verdict_and_without_a_display_no_window(capsys):
    assert run_play.command(["--run-id", "@last", "--episodes", "3", "--headless"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:4]] == [["episode", "1"], ["episode", "2"], ["episode", "3"]]
    assert "over 3 episodes: goal not met (475)" in lines[4] and " ± " in lines[4] and len(lines) == 5
    assert run_play.command(["--episodes", "1"]) == 0
    assert "no display: playing without a window" in capsys.readouterr().out


def test_the_object_is_complete_and_the_same_for_the_same_seed(run, capsys):
    words = ["--sampled", "--checkpoint", "last"]
    first = played(capsys, "--seed", "3", *words)
    fixed = {
        "run_id": run.id, "env_id": "CartPole-v1", "variant": "ppo", "checkpoint": "epoch=04", "seed": 3,
        "env_steps": 64, "policy": "sampled", "episodes": 5, "goal": 475.0, "goal_here": None, "goal_met": False,
        "video": None,
    }  # fmt: skip
    assert first.keys() == {*fixed, "mean_return", "std_return", "returns", "lengths"}
    assert {key: first[key] for key in fixed} == fixed and len(first["returns"]) == 5
    assert first["mean_return"] == pytest.approx(sum(first["returns"]) / 5)
    assert played(capsys, "--seed", "3", *words) == first
    assert played(capsys, "--seed", "4", *words)["returns"] != first["returns"]


def test_the_goal_is_met(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    run = gallery_copy("ppo", tmp_path / "runs")
    facts = run.facts()
    facts["config"]["spec"]["goal"] = 5
    write_json(run.config_json, {**facts, "goal": 5})
    words = ["--episodes", "4", "--headless", "--random"]
    assert run_play.command(words) == 0 and "goal met (5)" in capsys.readouterr().out
    elsewhere = run.path.rename(tmp_path / "from-elsewhere")  # whose goal may be anything
    assert run_play.command(["--run-id", str(elsewhere), *words]) == 0
    assert "goal met (the publisher's 5; here 475)" in capsys.readouterr().out


def test_watched_and_counted_are_the_same_and_progress_is_shown_on_a_terminal_alone(capsys, av, tmp_path, monkeypatch):
    words = ["--episodes", "2", "--sampled", "--seed", "5", "--max-steps", "25"]
    counted = played(capsys, *words)
    file = tmp_path / "out.mp4"
    filmed = played(capsys, *words, "--video", str(file), "--fps", "20")
    assert {**filmed, "video": None} == counted and filmed["video"] == str(file)
    with av.open(str(file)) as container:
        assert container.streams.video[0].average_rate == 20
        assert sum(1 for _ in container.decode(video=0)) == sum(filmed["lengths"]) + 2
    words = ["--episodes", "1", "--max-steps", "3", "--video", str(tmp_path / "a.mp4")]
    assert run_play.command(words) == 0 and "filming" not in capsys.readouterr().err
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert run_play.command(words) == 0
    err = capsys.readouterr().err
    assert "filming  episode 1/1   step" in err and err.endswith("\r\x1b[K"), "gone in the end"


def test_an_episode_a_file_in_the_runs_own_folder_with_captions_or_without(capsys, av, tmp_path):
    run = gallery_copy("ppo", tmp_path)
    words = ["--run-id", str(run.path), "--episodes", "2", "--max-steps", "6", "--video"]
    filmed = played(capsys, *words)
    names = [f"play-{filmed['checkpoint']}-seed0-episode{number}.mp4" for number in (1, 2)]
    assert filmed["video"] == [str(run.videos / name) for name in names]
    assert sorted(path.name for path in run.videos.iterdir()) == names
    for path, length in zip(filmed["video"], filmed["lengths"], strict=True):
        with av.open(path) as container:
            frames = [frame.to_ndarray(format="gray") for frame in container.decode(video=0)]
        assert len(frames) == length + 1 and frames[0].shape[0] > 400, "a strip below 400 lines of the picture"
        strips = [frame[402:].astype(int) for frame in frames]
        assert (strips[0] > 128).sum() > 20 and abs(strips[0] - strips[-1]).max() > 60, "it says where it stands"
    check_folder(run.path)
    (tmp_path / "out").mkdir()
    with av.open(played(capsys, *words, str(tmp_path / "out"), "--no-captions")["video"][1]) as container:
        assert container.streams.video[0].height == 400 and len(list((tmp_path / "out").iterdir())) == 2


def test_small_pictures_are_enlarged_for_their_strip():
    strip = captioned(np.zeros((210, 160, 3), np.uint8), "episode 1/5   step 1,234   return -1,234.56")
    assert strip.shape == (420 + 24, 320, 3) and not strip[:420].any() and strip[420:].max() > 200
    assert not (strip[420:, -6:].max() > 128), "the words end before the strip does"


def test_step_by_step_waits_for_enter_and_tells_what_was_thought(capsys, monkeypatch):
    words = ["--step-by-step", "--episodes", "1", "--max-steps", "2"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n\n"))
    assert run_play.command(words) == 0
    out = capsys.readouterr().out
    assert "step    2  value" in out and "push left" in out and "%" in out
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    assert run_play.command(words) == 2 and "but standard input is closed" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--user"], ["--sampled", "--fps", "500"]])
def test_a_window_opens_where_there_is_a_display(words, capsys, monkeypatch):
    monkeypatch.setenv("DISPLAY", ":1")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")  # a window that only SDL knows of
    assert run_play.command([*words, "--episodes", "1", "--max-steps", "5"]) == 0
    out = capsys.readouterr().out
    assert "length      5" in out and ("0/left push left, 1/right push right" in out) == ("--user" in words)


WRONG = {  # words -> fragment of the line
    "--run-id nothing": "no run 'nothing'", "--run-id hub:repo": "not the name of a repository",
    "--checkpoint epoch=77": "it has epoch=02, epoch=04", "--checkpoint bset": "did you mean best",
    "--deterministic --sampled": "not allowed with", "--episodes 0": "--episodes must be a whole number, 1",
    "--episodes many": "invalid int value", "--seed -1": "--seed must be a whole number, 0",
    "--max-steps 0": "--max-steps must be a whole number, 1", "--fps nan": "--fps must be above 0",
    "--video out.gif": "takes a folder or a file", "--no-captions": "give both", "--user": "--user needs a display",
    "--video /nowhere/out.mp4": "no folder /nowhere", "--user --headless": "--user needs a window",
    "--user --video x.mp4": "--user needs a window", "@last": "unknown argument '@last'",
}  # fmt: skip


@pytest.mark.parametrize("words", WRONG)
def test_wrong_input_is_one_line(words, capsys):
    assert WRONG[words] in refusal(capsys, run_play.command, *words.split())


def test_a_video_without_pyav_names_its_install(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "av", None)  # as if it were not installed
    assert "pip install 'stride-rl[video]'" in refusal(capsys, run_play.command, "--video", tmp_path / "a.mp4")


def test_keys_are_actions():
    discrete = Steering(spaces.Discrete(3), ["push left", "do nothing", "push right"])
    assert [discrete.action(held) for held in (set(), {"left"}, set(), {"right"}, {"0"})] == [1, 0, 1, 2, 0]
    endless = Steering(spaces.Discrete(2, start=5), ["push left", "push right"])
    assert [endless.action(held) for held in (set(), {"right"}, set(), {"left"})] == [5, 6, 6, 5]
    numbers = Steering(spaces.Box(-2.0, 4.0, (2,)), [])
    assert [numbers.action(held).tolist() for held in (set(), {"left", "up"})] == [[1, 1], [-2, 4]]
    for space in (spaces.Discrete(11), spaces.MultiDiscrete([2, 2]), spaces.Box(-1, 1, (3,))):
        with pytest.raises(UserError, match="cannot play"):
            Steering(space, [])
