"""What was published is played from the Hub: the same numbers to the last digit, at a commit that is told."""

import json

import pytest
import torch
from gallery import gallery

from stride.agents.trained.episode import play_episodes
from stride.agents.trained.loading import load_run
from stride.commands import run_play, run_publish
from stride.utils.user_error import UserError

REPO = "tester/CartPole-v1-ppo"


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


def test_the_weights_and_the_config_are_the_same(published):
    assert same_weights(load_run("@last"), load_run(f"hub:{REPO}"))


def test_a_revision_is_kept(published):
    first, held = published.commits[-1], load_run(f"hub:{REPO}").checkpoint
    other = "epoch=04" if held == "epoch=02" else "epoch=02"
    assert run_publish.command(["--checkpoint", other, "--repo", REPO]) == 0
    second = published.commits[-1]
    assert first != second and load_run(f"hub:{REPO}").checkpoint == other
    assert load_run(f"hub:{REPO}@{first}").checkpoint == held
    assert load_run(f"hub:{REPO}@{second}", other).checkpoint == other


def test_a_normaliser_and_unscaled_actions_travel_too(hub, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(gallery("pendulum").path.parent))
    assert run_publish.command(["--repo", "tester/pendulum"]) == 0
    here, there = load_run("@last"), load_run("hub:tester/pendulum")
    assert any("mean" in name for name in same_weights(here, there))
    assert list(play_episodes(here, 2, 7, "sampled", 30)) == list(play_episodes(there, 2, 7, "sampled", 30))


WRONG = [  # (selector, checkpoint, fragment)
    ("hub:nobody/nothing", "best", "is not on"),
    (f"hub:{REPO}@v9", "best", "no such revision"),
    (f"hub:{REPO}", "epoch=77", "holds one checkpoint"),
    ("hub:../../etc", "best", "not the name of a repository"),
    ("hub:", "best", "not the name of a repository"),
    ("hub:a/b/c", "best", "not the name of a repository"),
    (f"hub:{REPO}@../main", "best", "not a revision"),
]


@pytest.mark.parametrize(("selector", "checkpoint", "fragment"), WRONG)
def test_a_wrong_name_is_one_line(published, selector, checkpoint, fragment):
    with pytest.raises(UserError, match=fragment) as caught:
        load_run(selector, checkpoint)
    assert "\n" not in str(caught.value)


def test_a_private_repository_needs_its_token(published, monkeypatch):
    published.private = True
    assert load_run(f"hub:{REPO}").checkpoint
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(UserError, match="is private and needs another HF_TOKEN"):
        load_run(f"hub:{REPO}")
