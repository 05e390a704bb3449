"""run_publish.py against a Hub of our own and the real client: one commit, or none, and one line for what is wrong; and
what was published is played from there: the same numbers to the last digit, at a commit that is told."""

import io
import json
import re
import shlex
import socket
import sys

import pytest
import torch
import yaml
from commands import refusal
from fake_hub import TOKEN
from gallery import gallery
from tiny_runs import tiny_run

from stride.agents.trained.episode import play_episodes
from stride.agents.trained.loading import load_run
from stride.commands import run_play, run_publish
from stride.commands.train_arguments import parse_arguments
from stride.config.loader import load_file, to_plain
from stride.utils.user_error import UserError

REPO = "tester/CartPole-v1-ppo"
FILES = {"README.md", "config.json", "curve.svg", "metrics.csv", "model.safetensors", "replay.mp4", "results.json"}


def publish(capsys, *words):
    code = run_publish.command([*words])
    return code, capsys.readouterr()


def refused(capsys, *words):
    return refusal(capsys, run_publish.command, *words)


def test_publish_writes_what_was_promised(hub, capsys, run):
    av = pytest.importorskip("av", reason="needs PyAV: pip install 'stride-rl[video]'")
    code, captured = publish(capsys)
    assert code == 0 and f"published  {hub.url}/{REPO} at commit" in captured.out, captured
    repo = hub.repos[REPO]
    assert repo.files.keys() == FILES | {".gitattributes"} and len(repo.commits) == 2 and not repo.private
    results = json.loads(repo.files["results.json"])
    assert len(results["returns"]) == len(results["lengths"]) == results["n_eval_episodes"] == 100
    assert results["mean_reward"] == pytest.approx(sum(results["returns"]) / 100) and results["is_deterministic"]
    assert results["env_id"] == "CartPole-v1" and results["checkpoint"].startswith("epoch=")
    assert repo.files["metrics.csv"] == run.metrics_csv.read_bytes() and repo.files["curve.svg"].startswith(b"<svg")
    with av.open(io.BytesIO(repo.files["replay.mp4"])) as video:
        assert video.streams.video[0].codec_context.name == "h264"
        assert sum(1 for _ in video.decode(video=0)) == results["lengths"][0] + 1
    assert len(repo.files["replay.mp4"]) <= 5_000_000


def test_the_card_is_read_by_the_hubs_own_class(hub, publication, monkeypatch):
    from huggingface_hub import ModelCard, constants

    monkeypatch.setattr(constants, "ENDPOINT", hub.url)  # where validate() asks
    results = json.loads(publication["results.json"])
    card = ModelCard(publication["README.md"].decode())
    card.validate()
    entries = {entry.metric_type: entry for entry in card.data.eval_results}
    score = f"{results['mean_reward']:.2f} +/- {results['std_reward']:.2f}"
    assert entries["mean_reward"].metric_value == score and entries["mean_reward"].dataset_name == "CartPole-v1"
    assert entries["mean_reward"].task_type == "reinforcement-learning" == card.data.pipeline_tag
    assert entries["n_eval_episodes"].metric_value == 100 and "reinforcement-learning" in card.data.tags
    assert f"**{score}**" in card.text
    for words in ("| `policy_lr` | `lin_0.001` |", "| seed | 1 |", "| torch |", "(curve.svg)", "main/replay.mp4"):
        assert words in card.text, words


def test_the_commands_of_the_card_work_as_pasted(published, run):
    card = published.files["README.md"].decode()
    (command,) = re.findall(r"^python train.py (.*)$", card, re.M)
    assert to_plain(parse_arguments(shlex.split(command)).load()) == run.facts()["config"]
    command, _, words = card.split("```sh\n")[1].split("```")[0].splitlines()[-1].partition(" --")
    assert command == "python run_play.py" and run_play.command(f"--{words}".split()) == 0
    scope = {}
    exec(compile(card.split("```python\n")[1].split("```")[0], "README.md", "exec"), scope)
    assert scope["action"] in (0, 1)


def test_publishing_again_makes_no_commit_and_what_differs_goes_in_one(hub, published, capsys):
    """Nor does another encoder's video, which has other bytes of the same episode."""
    published.commit({"replay.mp4": b"from another encoder"})
    commits = [*published.commits]
    code, captured = publish(capsys)
    assert code == 0 and "nothing changed" in captured.out
    assert published.commits == commits and hub.count("/commit/") == 0
    published.commit({"old/model.zip": b"PK", "LICENSE": b"MIT", "results.json": b"{}"})
    before = len(published.commits)
    code, captured = publish(capsys, "--message", "Again")
    assert code == 0 and "results.json, removed old/model.zip" in captured.out
    assert len(published.commits) == before + 1 and published.files.keys() == FILES | {".gitattributes", "LICENSE"}


def test_something_elses_repository_is_left_alone_and_a_private_one_is_private(hub, capsys):
    repo = hub.repo("tester/precious", {"pytorch_model.bin": b"years of work"})
    assert "has other files (pytorch_model.bin)" in refused(capsys, "--repo", "tester/precious")
    assert repo.files["pytorch_model.bin"] and len(repo.commits) == 2
    assert publish(capsys, "--private", "--repo", "tester/mine")[0] == 0
    assert hub.repos["tester/mine"].private
    assert run_play.command(["--run-id", "hub:tester/mine", "--episodes", "1", "--headless"]) == 0
    hub.repo("tester/open", {})
    assert "exists and is public: nothing was sent" in refused(capsys, "--private", "--repo", "tester/open")
    assert hub.repos["tester/open"].files.keys() == {".gitattributes"}


def test_without_a_renderer_there_is_no_video_and_one_line(published, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    code, captured = publish(capsys)
    assert code == 0 and captured.out.count("no video: ") == 1 and "removed replay.mp4" in captured.out
    assert published.files.keys() == FILES - {"replay.mp4"} | {".gitattributes"}
    assert b"<video" not in published.files["README.md"]


def test_a_dry_run_talks_to_nobody(hub, capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("HF_TOKEN")
    code, captured = publish(capsys, "--dry-run", str(tmp_path / "out"))
    assert code == 0 and hub.log == [] and "# ppo on CartPole-v1" in captured.out and "nothing was sent" in captured.out
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES
    head = yaml.safe_load((tmp_path / "out" / "README.md").read_text().split("---\n")[1])
    assert head["model-index"][0]["name"] == "ppo"


WORLD = """
import gymnasium

gymnasium.register("Mine-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=20)
"""


def test_a_world_of_ones_own_is_published_with_a_warning(hub, capsys, monkeypatch, refused_play, tmp_path):
    """Its weights are worth keeping, but a download may not name a module, and everybody is told so."""
    (tmp_path / "stride_test_mine.py").write_text(WORLD)
    (tmp_path / "mine.yaml").write_text("env_id: stride_test_mine:Mine-v0\nppo: {algo_id: ppo, max_timesteps: 64}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    tiny_run("stride_test_mine:Mine-v0:ppo", "--config", str(tmp_path / "mine.yaml"))
    code, captured = publish(capsys, "--repo", "tester/mine")
    warnings = [line for line in captured.out.splitlines() if "it cannot be loaded from the Hub" in line]
    assert code == 0 and len(warnings) == 1 and "env_id names the module 'stride_test_mine'" in warnings[0], captured
    card = hub.repos["tester/mine"].files["README.md"].decode()
    assert "names the module" in card and "hub:tester/mine" not in card + captured.out
    assert "names the module" in refused_play("hub:tester/mine")
    (text,) = re.findall(r"```yaml\n(.*?)```", card, re.S)
    (tmp_path / "again.yaml").write_text(text)
    assert load_file(tmp_path / "again.yaml").max_timesteps == 64


def test_a_server_error_once_is_tried_again(hub, capsys):
    hub.fail = {"/commit/": [500], "/whoami": [503]}
    code, captured = publish(capsys)
    assert code == 0 and "published" in captured.out and len(hub.repos[REPO].commits) == 2, captured


def test_a_server_that_stays_broken_is_one_line(hub, capsys, run):
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    hub.fail = {"/commit/": [500] * 9}
    assert "has a server error (500)" in refused(capsys)
    assert hub.repos[REPO].files.keys() == {".gitattributes"}
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before
    hub.fail = {}
    assert publish(capsys)[0] == 0 and hub.repos[REPO].files.keys() >= FILES - {"replay.mp4"}


@pytest.mark.parametrize("package", ["huggingface_hub", "safetensors"])
def test_a_missing_package_names_its_install(hub, capsys, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    assert "pip install 'stride-rl[hub]'" in refused(capsys)


WRONG = {  # words -> fragment of the line
    "--repo norepo": "not the name of a repository", "--repo ../x": "not the name of a repository",
    "--run-id nothing": "no run 'nothing'", "--run-id hub:a/b": "already published",
    "--checkpoint epoch=77": "it has epoch=02, epoch=04", "--privat": "did you mean --private",
    "--dry-run /dev/null/x": "Not a directory",
}  # fmt: skip


@pytest.mark.parametrize("words", WRONG)
def test_wrong_input_is_one_line(hub, capsys, words):
    assert WRONG[words] in refused(capsys, *words.split()) and hub.repos == {}


def test_secrets_in_a_message_wrong_tokens_and_no_network_are_one_line(hub, capsys, monkeypatch, refused_play):
    line = refused(capsys, "--message", f"with {TOKEN}")
    assert "--message holds" in line and TOKEN not in line and "--allow-text" in line and hub.repos == {}
    monkeypatch.setenv("HF_TOKEN", "hf_wrongwrongwrong")
    line = refused(capsys)
    assert "does not accept this token" in line and "hf_wrong" not in line
    monkeypatch.delenv("HF_TOKEN")
    assert "publishing needs a token: set HF_TOKEN or run `hf auth login`" in refused(capsys)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.fail = {"/create": [403]}
    assert "has no write permission" in refused(capsys)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{unused.getsockname()[1]}")
        for line in (refused(capsys), refused_play(f"hub:{REPO}")):
            assert "cannot reach http://127.0.0.1" in line
    assert hub.repos == {}


# ---- played from the Hub


def played(capsys, *words):
    assert run_play.command([*words, "--json", "--episodes", "100"]) == 0
    captured = capsys.readouterr()
    return json.loads(captured.out), captured.err


def test_the_same_returns_to_the_last_digit(published, capsys):
    here, _ = played(capsys, "--run-id", "@last")
    there, told = played(capsys, "--run-id", f"hub:{REPO}")
    assert {**there, "run_id": "", "goal_here": None} == {**here, "run_id": ""}
    results = json.loads(published.files["results.json"])
    assert there["returns"] == results["returns"] and there["mean_return"] == results["mean_reward"]
    assert f"downloaded hub:{REPO}@{published.commits[-1]}" in told


def same_weights(here, there):
    """The names of weights that two runs of one config have in common, bit for bit."""
    weights, others = (loaded.agent.policy.state_dict() for loaded in (here, there))
    assert there.config == here.config and weights.keys() == others.keys()
    assert all(torch.equal(value, others[name]) for name, value in weights.items())
    return [*weights]


def test_a_revision_is_kept_and_a_private_repository_needs_its_token(published, monkeypatch):
    first, held = published.commits[-1], load_run(f"hub:{REPO}").checkpoint
    other = "epoch=04" if held == "epoch=02" else "epoch=02"
    assert run_publish.command(["--checkpoint", other, "--repo", REPO]) == 0
    second = published.commits[-1]
    assert first != second and load_run(f"hub:{REPO}").checkpoint == other
    assert load_run(f"hub:{REPO}@{first}").checkpoint == held
    assert load_run(f"hub:{REPO}@{second}", other).checkpoint == other
    published.private = True
    assert load_run(f"hub:{REPO}").checkpoint
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(UserError, match="is private and needs another HF_TOKEN"):
        load_run(f"hub:{REPO}")


def test_a_normaliser_and_unscaled_actions_travel_too(hub, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(gallery("pendulum").path.parent))
    assert run_publish.command(["--repo", "tester/pendulum"]) == 0
    here, there = load_run("@last"), load_run("hub:tester/pendulum")
    assert any("mean" in name for name in same_weights(here, there))
    assert list(play_episodes(here, 2, 7, "sampled", 30)) == list(play_episodes(there, 2, 7, "sampled", 30))


NO_RUNS = [  # (selector, checkpoint, fragment)
    ("hub:nobody/nothing", "best", "is not on"), (f"hub:{REPO}@v9", "best", "no such revision"),
    (f"hub:{REPO}", "epoch=77", "has only the checkpoint"), ("hub:../../etc", "best", "not the name of a repository"),
    ("hub:", "best", "not the name of a repository"), ("hub:a/b/c", "best", "not the name of a repository"),
    (f"hub:{REPO}@../main", "best", "not a revision"),
]  # fmt: skip


@pytest.mark.parametrize(("selector", "checkpoint", "fragment"), NO_RUNS)
def test_a_wrong_name_is_one_line(published, selector, checkpoint, fragment):
    with pytest.raises(UserError, match=fragment) as caught:
        load_run(selector, checkpoint)
    assert "\n" not in str(caught.value)
