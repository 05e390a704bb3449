"""A tiny run to publish, a Hub of our own to publish it on, and nothing of this machine's own login or cache."""

from contextlib import contextmanager

import pytest

pytest.importorskip("huggingface_hub", reason="needs pip install 'stride-rl[hub]'")

from commands import refusal
from fake_hub import TOKEN, FakeHub
from gallery import gallery

from stride import publishing
from stride.agents.trained.loading import load_run
from stride.commands import run_play, run_publish
from stride.publishing.facts import public_facts
from stride.publishing.folder import _json
from stride.publishing.weights_file import write_weights

REPO = "tester/CartPole-v1-ppo"


@pytest.fixture(scope="session")
def run():
    return gallery("ppo")


@contextmanager
def hub_for(run, folder):
    """The Hub, with a valid token in HF_TOKEN, while $STRIDE_RUNS has this run."""
    from huggingface_hub import constants

    server = FakeHub()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRIDE_RUNS", str(run.path.parent))
        patch.setenv("HF_ENDPOINT", server.url)
        patch.setenv("HF_TOKEN", TOKEN)
        patch.setattr(constants, "HF_TOKEN_PATH", str(folder / "no_token"))
        patch.setattr(constants, "HF_HUB_CACHE", str(folder / "cache"))
        patch.setattr(publishing.hub_client, "WAIT_SECONDS", (0.0, 0.0))
        for name in ("DISPLAY", "WAYLAND_DISPLAY", "HF_HUB_OFFLINE"):
            patch.delenv(name, raising=False)
        yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def hub(run, tmp_path):
    with hub_for(run, tmp_path) as server:
        yield server


@pytest.fixture(scope="session")
def publication(run, tmp_path_factory):
    """The files that publishing the run sends."""
    with hub_for(run, tmp_path_factory.mktemp("hub")) as server:
        assert run_publish.command([]) == 0
        return server.repos[REPO].files


@pytest.fixture
def published(hub, publication):
    """A repository with the run."""
    return hub.repo(REPO, publication)


@pytest.fixture(scope="session")
def sound(run):
    """The files that loading wants, by name."""
    loaded = load_run(str(run.path))
    weights = write_weights(loaded.agent.policy.state_dict())
    return {"config.json": _json(public_facts(loaded)), "model.safetensors": weights}


@pytest.fixture
def work(tmp_path, monkeypatch):
    """The folder one stands in."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@pytest.fixture
def refused_play(capsys):
    """Plays what must not be played; answers the one line that says so."""

    def play(selector):
        line = refusal(capsys, run_play.command, "--run-id", selector, "--headless", "--episodes", "1").rstrip("\n")
        assert line.isprintable(), line
        return line

    return play
