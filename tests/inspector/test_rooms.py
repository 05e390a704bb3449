"""What the rooms of the inspector say, without a browser."""

import numpy as np
import pytest
from gallery import gallery, gallery_copies, gallery_copy

from stride.agents.trained.episode import record_episode
from stride.agents.trained.loading import load_run
from stride.inspector.charts import Line, chart, clock
from stride.inspector.compare import compare, curves, groups
from stride.inspector.episode import gradients, judged, numbers, observed_numbers, player_markup, record_for_browser
from stride.inspector.markup import safe, tag
from stride.inspector.pictures import GAP, heat_frames, seen_frames, tiles
from stride.inspector.played import model, modules
from stride.inspector.runs import Runs
from stride.inspector.videos import caption, films_of, lend, poster
from stride.utils.curve import Point
from stride.utils.user_error import UserError
from stride.utils.video_file import VideoFile


@pytest.fixture(scope="module")
def runs(root):
    """Two seeds of a variant, and one with another gamma, the last."""
    return *gallery_copies("seeds", root), gallery_copy("other", root)


def read_run(run):
    return Runs().look_into(run.id)


@pytest.mark.parametrize("selector", ["", "/etc", "../x", "nothing", "a/../b", "hub:user/x", "\0", "@best:Nope-v0"])
def test_only_runs_under_the_root_are_found(runs, selector):
    with pytest.raises(UserError):
        Runs().find(selector)
    assert Runs().find("@last") == Runs().find(runs[2].id)


def test_runs_that_differ_by_seed_are_one_group(runs):
    found = [read_run(run) for run in runs]
    assert sorted(map(len, groups(found).values())) == [1, 2]
    page = compare(found)
    assert "gamma" in page and page.count("<tr>") >= 5 and "choose another" in compare(found[:1])
    both = next(each for each in groups(found).values() if len(each) == 2)
    line = next(line for line in curves("x", both, "c0", {run.run.id: clock(run) for run in both}) if line.low)
    assert all(low <= p.y <= high for low, p, high in zip(line.low, line.points, line.high, strict=True))


def test_returns_and_errors_of_a_recording_are_right(runs):
    loaded = load_run(runs[0].id)
    episode = record_episode(loaded, 0, "greedy", 6, frames=False)
    told = judged(episode, 0.5, 1.0)
    assert told["so_far"][-1] == told["to_go"][0] == episode.rewards.sum()
    after = np.append(episode.values[1:-1], 0.0 if episode.terminated else episode.values[-1])
    np.testing.assert_allclose(told["td_error"], episode.rewards + 0.5 * after - episode.values[:-1], rtol=1e-6)
    discounted = after[-1]
    for reward in episode.rewards[::-1]:
        discounted = reward + 0.5 * discounted
    assert told["advantage"][0] == pytest.approx(discounted - episode.values[0])
    assert told["discounted"][0] == pytest.approx(discounted) and told["to_go"][0] > discounted
    data = numbers(episode, loaded)
    assert [each["name"] for each in data["observations"]][2] == "pole angle" and data["observations"][2]["bounded"]
    assert len(data["observed"]) == episode.length + 1 and data["actions"] == ["push left", "push right"]


def test_a_recording_has_a_frame_per_instant_and_what_a_policy_saw_of_images(runs, tmp_path):
    av = pytest.importorskip("av", reason="needs PyAV: pip install 'stride-rl[video]'")
    made = record_for_browser(load_run(runs[0].id), 3, "sampled", 5, tmp_path)
    assert "NaN" not in player_markup(made) and made.videos.keys() == {"frame"}
    seeing = record_for_browser(load_run(str(gallery("pixels").path)), 0, "sampled", 3, tmp_path)
    assert seeing.data["stacked"] == [2] and seeing.data["observations"] == []
    assert seeing.videos.keys() == {"frame", "seen", "action", "value"}
    for recording in (made, seeing):
        for path in recording.videos.values():
            with av.open(str(path)) as container:
                assert all(frame.key_frame for frame in container.decode(video=0))
                assert container.streams.video[0].frames == recording.data["steps"] + 1
    for words in ({"seed": -1}, {"max_steps": 10**9}, {"mode": "best"}):
        with pytest.raises(UserError):
            record_for_browser(load_run(runs[0].id), **{"seed": 0, "mode": "greedy", "max_steps": 5, **words},
                               folder=tmp_path)  # fmt: skip


def test_stacked_images_are_laid_side_by_side():
    stack = np.zeros((4, 84, 84), np.uint8)
    stack[2] = 200
    assert tiles(stack, 4).shape == (4, 84, 84, 1) and tiles(stack[0], 1).shape == (1, 84, 84, 1)
    assert tiles(np.zeros((6, 50, 40), np.uint8), 2).shape == (2, 50, 40, 3)
    assert tiles(np.zeros((50, 40, 3), np.uint8), 1).shape == (1, 50, 40, 3)
    assert tiles(np.zeros((5, 50, 40), np.uint8), 1).shape == (5, 50, 40, 1)  # neither grey nor coloured: one by one
    (frame,) = seen_frames(stack[None], 4)
    assert frame.shape == (168, 4 * 168 + 3 * GAP, 3) and frame[:, 2 * (168 + GAP)].min() == 200 and frame[0, 0, 0] == 0
    hot, dark = heat_frames(stack[None], 4)
    assert hot[0, 2 * (168 + GAP)].tolist() == [255, 145, 0] and not dark.any()


def test_a_mask_and_q_values_go_with_the_actions(runs):
    loaded = load_run(str(gallery("taxi").path))
    data = numbers(record_episode(loaded, 0, "greedy", 4, frames=False, saliency=True), loaded)
    assert len(data["allowed"]) == 5 and len(data["allowed"][0]) == 6 and len(data["observed"][0]) == 1
    refused = [(p, ok) for shares, row in zip(data["distribution"]["probability"], data["allowed"], strict=False)
               for p, ok in zip(shares, row, strict=True) if not ok]  # fmt: skip
    assert refused and all(p == 0 for p, _ in refused) and data["saliency"] == {}
    loaded = load_run(str(gallery("dqn").path))
    episode = record_episode(loaded, 0, "greedy", 4, frames=False, saliency=True)
    data = numbers(episode, loaded)
    np.testing.assert_allclose(data["distribution"]["q"], episode.distribution["q"], rtol=1e-3)
    assert data["kind"] == "choice"
    assert np.shape(data["saliency"]["action"]) == np.shape(data["saliency"]["value"]) == (4, 4)
    np.testing.assert_allclose(data["saliency"]["value"], episode.saliency.value[""], rtol=1e-3)


def test_observations_of_every_kind_become_numbers():
    names, rows = observed_numbers({"a": np.zeros((3, 2)), "b": np.arange(3)})
    assert names == ["a 0", "a 1", "b"] and rows[:, 2].tolist() == [0, 1, 2]
    assert observed_numbers(np.zeros((3, 8, 8, 3), np.uint8))[1].shape == (3, 0)
    tree = {"a": {"x": np.zeros((3, 2))}, "action_mask": np.ones((3, 4)), "b": np.arange(3)}
    assert observed_numbers(tree)[0] == ["a.x 0", "a.x 1", "b"]
    told = gradients({"a.x": np.ones((2, 2))}, tree)
    assert told.shape == (2, 3) and told[:, :2].all() and np.isnan(told[:, 2]).all()


def test_videos_are_copied_in_order_and_links_are_not_followed(runs, tmp_path):
    """What run_play filmed is beside what the training did."""
    folder, served = runs[0].videos, tmp_path / "served"
    (tmp_path / "secret").write_text("secret")
    (folder / "epoch=2.mp4").symlink_to(tmp_path / "secret")
    wanted = ["play-epoch=04-seed0-episode2.mp4", "play-epoch=04-seed0-episode10.mp4", "epoch=1.mp4"]
    for name in (*wanted, "play-x-seed0-episode1.mp4", "other.mp4"):
        (folder / name).write_bytes(b"film")
    assert [path.name for path in films_of(runs[0])] == wanted
    served.mkdir()
    films = lend(runs[0], served)
    assert [path.read_bytes() for path in films] == [b"film"] * 3
    assert [caption(path, {1: 9.5}) for path in films] == [
        "play, epoch 04, seed 0, episode 2", "play, epoch 04, seed 0, episode 10", "epoch 1, mean return 9.50",
    ]  # fmt: skip
    assert lend(runs[1], served) == [] and not list(served.iterdir())


def test_a_video_has_a_thumbnail_and_a_damaged_one_has_none(tmp_path):
    pytest.importorskip("av", reason="needs PyAV: pip install 'stride-rl[video]'")
    with VideoFile(tmp_path / "a.mp4", 30) as video:
        for step in range(9):
            video.add(np.full((48, 64, 3), 25 * step, np.uint8))
    (tmp_path / "b.mp4").write_bytes(b"film")
    assert poster(tmp_path / "a.mp4").startswith("data:image/jpeg;base64,/9j/") and poster(tmp_path / "b.mp4") == ""


def test_the_network_is_listed(runs):
    loaded = load_run(runs[0].id)
    rows = modules(loaded.agent.policy)
    total = sum(parameter.numel() for parameter in loaded.agent.policy.parameters())
    assert rows[0][3] == f"{total:,}" and any("64×4" in row[2] for row in rows)
    leaves = [int(row[3].replace(",", "")) for row in rows if row[2]]
    assert sum(leaves) == total  # each parameter once, the actor's head in the actor
    assert all(int(row[3].replace(",", "")) > 0 for row in rows) and "Tanh" not in {row[1] for row in rows}
    assert "env_id: CartPole-v1" in model(read_run(runs[0]), loaded)


def test_everything_is_escaped():
    assert safe("a\x1b[1m\u202eb\nc\t\xa0") == "a\\x1b[1m\\u202eb\nc\t\xa0"
    assert tag("p", "<b>", title='"') == '<p title="&quot;">&lt;b&gt;</p>' and "{" not in safe("${x}{{y}}`")
    assert "no values yet" in chart("x", [Line("x", [Point(1.0, float("nan"))], "c0")])
