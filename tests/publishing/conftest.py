"""A tiny run to publish, a Hub of our own to publish it on, and nothing of this machine's own login or cache."""

import pytest

pytest.importorskip("huggingface_hub", reason="needs pip install 'stride-rl[hub]'")

from fake_hub import TOKEN, FakeHub
from tiny_runs import tiny_run

from stride import publishing
from stride.runstore.run_dir import RunDir


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRIDE_RUNS", str(tmp_path_factory.mktemp("runs")))
        tiny_run()
        yield RunDir.find("@last")


@pytest.fixture
def hub(run, monkeypatch, tmp_path):
    """The Hub, with a valid token in HF_TOKEN."""
    from huggingface_hub import constants

    server = FakeHub()
    monkeypatch.setenv("STRIDE_RUNS", str(run.path.parent))
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no_token"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(publishing.hub_client, "WAITS", (0.0, 0.0))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    yield server
    server.shutdown()
    server.server_close()
