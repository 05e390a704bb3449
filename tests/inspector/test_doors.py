"""Who the inspector answers: its own page under its own name; and what is left when it ends: nothing."""

import os
import signal
import sys
import tempfile

import pytest
from inspector_browsing import apart

from lab.faults.door import closed, others
from stride.commands.run_inspect import ended_by_signals
from stride.inspector.app import Inspector
from stride.inspector.guard import Guard, is_any, names_of
from stride.inspector.scratch import PREFIX, scratch, sweep
from stride.utils.user_error import UserError

HOST, TOKEN = "127.0.0.1:7860", "a-token-of-this-server-alone"


async def answered(scope, receive, send):
    """What is behind a door."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


def messages(app, headers, body=b"", **scope):
    """What comes back from an app for a request with these pairs of headers, without a network."""
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "GET", "query_string": b"", "server": ("127.0.0.1", 7860), **scope}
    result = []

    async def receive():
        return {"type": "http.request", "body": body}

    async def send(message):
        result.append(message)

    apart(app({**scope, "headers": pairs}, receive, send))
    return result


def asked(guard, path="/", method="GET", kind="http", server=("127.0.0.1", 7860), **headers):
    """The status, or of a websocket the kind, of the first message that comes back."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    first = messages(guard, headers, type=kind, path=path, method=method, server=server)[0]
    return first.get("status", first["type"])


@pytest.fixture
def guard():
    return Guard(answered, names_of("127.0.0.1", 7860))


def test_other_names_other_pages_and_unused_routes_are_refused(guard):
    probes = [*others(HOST), *closed(HOST)]
    assert len(probes) > 250
    for probe in probes:
        assert asked(guard, probe.path, probe.method, **probe.headers) == 403, probe
        if probe.kind != "for a closed route":
            assert asked(guard, probe.path, kind="websocket", **probe.headers) == "websocket.close", probe
    assert asked(guard) == 403 and asked(guard, "/login", "POST", host=HOST) == 403
    assert asked(guard, host="evil.com:7860", origin="http://evil.com:7860") == 403


@pytest.mark.parametrize("host", [HOST, "localhost:7860", "LOCALHOST:7860", "[::1]:7860"])
def test_its_own_page_is_answered(guard, host):
    assert asked(guard, host=host) == 200
    own = {"host": host, "origin": f"http://{host}", "sec_fetch_site": "same-origin", "sec_fetch_dest": "empty"}
    assert asked(guard, "/gradio_api/queue/join", "POST", **own) == 200
    assert asked(guard, host=host, sec_fetch_site="cross-site", sec_fetch_dest="document") == 200  # a link to it


def test_the_given_host_is_answered_and_two_names_are_none():
    guard = Guard(answered, names_of("192.168.1.5", 80))
    assert [asked(guard, host=host) for host in ("192.168.1.5", "192.168.1.5:80", "evil.com")] == [200, 200, 403]
    twice = {"type": "http", "path": "/", "method": "GET", "headers": [(b"host", b"192.168.1.5"), (b"Host", b"evil")]}
    assert guard.refusal(twice)
    everywhere = Guard(answered, names_of("0.0.0.0", 7860), is_any("0.0.0.0"))
    here = {"server": ("192.168.1.5", 7860)}
    assert [asked(everywhere, host=f"{name}:7860", **here) for name in ("192.168.1.5", "192.168.1.6")] == [200, 403]
    assert names_of("::1", 7860) == names_of("127.0.0.1", 7860) and is_any("::")


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_nobody_uses_is_swept_and_what_is_in_use_is_not(temporary):
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    left = temporary / f"{PREFIX}abc"
    left.mkdir()
    (left / "video.mp4").touch()
    (temporary / f"{PREFIX}link").symlink_to(elsewhere)
    with scratch() as folder:
        assert not left.exists() and (elsewhere / "kept").exists()
        (folder / "film").touch()
        assert sweep() == 0 and (folder / "film").exists()
    assert not folder.exists()


def test_nothing_is_left_of_one_that_could_not_begin(temporary, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(temporary / "runs"))
    monkeypatch.setitem(sys.modules, "gradio", None)  # as if it were not installed
    with pytest.raises(UserError, match=r"pip install 'stride-rl\[web\]'"):
        Inspector("@last")
    assert not any(temporary.iterdir())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_it_in_order(temporary, number):
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as ended, ended_by_signals(), scratch() as folder:
        (folder / "film").touch()
        os.kill(os.getpid(), number)
    assert ended.value.code == 128 + number and not any(temporary.iterdir()) and signal.getsignal(number) == before
