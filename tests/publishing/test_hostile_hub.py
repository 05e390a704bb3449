"""A Hub that means harm itself: what it answers is one line, nothing is written, nobody else is asked."""

import hashlib
import os
from pathlib import Path

import pytest
from fake_hub import TOKEN, FakeHub

from stride.agents.trained.loading import load_run
from stride.commands import run_publish
from stride.publishing.hub_download import same_hub

REPO = "tester/CartPole-v1-ppo"
FILE = "/resolve/"
UP = "../" * 12


def with_headers(**headers):
    """The right file under headers of our own."""

    def answer(handler):
        repo = handler.server.repos[REPO]
        data = repo.files[handler.path.rpartition("/")[2]]
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        handler.send(data, 200, {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', **names})

    return answer


def says(data, status=200, **headers):
    return lambda handler: handler.send(data, status, {name.replace("_", "-"): v for name, v in headers.items()})


def endless(handler, status=200):
    handler.send_response(status)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    chunk = b"a" * (1 << 16)
    try:
        for _ in range(1 << 14):
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
    except OSError:
        handler.close_connection = True


def moved(url):
    return says({}, 302, Location=url)


def tree(**changes):
    entry = {"type": "file", "path": "config.json", "size": 10, "oid": "0" * 40}
    return says([{**entry, **changes}])


ODD = {  # what is wrong -> (fragment of the path, the answer, fragment of the line)
    "another commit": (FILE, with_headers(X_Repo_Commit="0" * 40), "another commit"),
    "a commit that climbs": (FILE, with_headers(X_Repo_Commit=f"{UP}ESC2"), "another commit"),
    "another file": (FILE, says(b"{}"), "is not the file that was listed"),
    "endless file": (FILE, endless, "has more bytes than"),
    "endless listing": ("/tree/", endless, "has more bytes than"),
    "endless revision": ("/revision/", endless, "has more bytes than"),
    "endless error": (FILE, lambda handler: endless(handler, 404), "has more bytes than"),
    "another host": (FILE, moved("http://127.0.0.2:9/x"), "sends on to 127.0.0.2:9, no host of the Hub"),
    "another port": ("/revision/", moved("http://127.0.0.1:9/x"), "no host of the Hub"),
    "a file of this machine": (FILE, moved("file:///etc/passwd"), "no host of the Hub"),
    "round and round": (FILE, moved("/tester/CartPole-v1-ppo/resolve/x"), "sent on more than"),
    "nowhere": (FILE, moved("http://[::"), "not understood"),
    "no JSON": ("/revision/", says(b"<html>"), "not JSON"),
    "deep JSON": ("/tree/", says(b"[" * 100_000), "not JSON"),
    "a list": ("/revision/", says([]), "not a commit hash"),
    "a hash that climbs": ("/revision/", says({"sha": "../../x"}), "not a commit hash"),
    "a hash in a list": ("/revision/", says({"sha": ["0" * 40]}), "not a commit hash"),
    "no list": ("/tree/", says({"a": 1}), "the list of its files"),
    "a list of numbers": ("/tree/", says([1, 2]), "the list of its files"),
    "a size in words": ("/tree/", tree(size="10"), "the list of its files"),
    "a negative size": ("/tree/", tree(size=-1), "the list of its files"),
    "no hash": ("/tree/", tree(oid=None), "the list of its files"),
    "a large file without its hash": ("/tree/", tree(lfs={"oid": 7}), "the list of its files"),
    "a name that climbs": ("/tree/", tree(path=f"{UP}x"), "does not write"),
    "a number as a name": ("/tree/", tree(path=7), "does not write"),
    "more pages": ("/tree/", says([], Link='<http://127.0.0.1:9/>; rel="next"'), "more files than"),
    "teapot": (FILE, says(b"\x1b[2Jshort and stout", 418, X_Error_Message="\x1b]0;x\x07"), "418"),
    "not modified": (FILE, says(b"", 304), "304"),
}


@pytest.mark.parametrize("what", ODD)
def test_it_is_one_line_and_nothing_is_written(hub, published, work, refused_play, what, tmp_path):
    fragment, answer, words = ODD[what]
    hub.odd = {fragment: answer}
    line = refused_play(f"hub:{REPO}")
    assert words in line and len(line) < 450, line
    assert os.listdir(work) == [] and not (tmp_path / "cache").exists()


def test_names_in_headers_name_no_file(hub, published, tmp_path):
    """huggingface_hub 2.4.0 wrote the file ESC1 for this."""
    hub.odd = {FILE: with_headers(ETag=f'"{UP}{str(tmp_path)[1:]}/ESC1"', X_Repo_Commit=published.commits[-1])}
    assert load_run(f"hub:{REPO}").config.env_id == "CartPole-v1"
    assert not (tmp_path / "ESC1").exists() and not (tmp_path / "cache").exists() and not Path("/ESC1").exists()


def test_another_commit_than_the_pinned_one_is_not_taken(hub, published, refused_play):
    hub.odd = {"/revision/": says({"sha": published.commits[0]})}
    assert "was asked for" in refused_play(f"hub:{REPO}@{published.commits[-1]}")


def test_a_token_stays_with_its_host(hub, published, monkeypatch):
    other, heard = FakeHub(), []
    other.repos = hub.repos
    monkeypatch.setattr("stride.publishing.hub_download.same_hub", lambda url, target: True)
    other.odd = {"": lambda handler: (heard.append(handler.headers.get("Authorization")), with_headers()(handler))}
    hub.odd = {FILE: lambda handler: moved(f"{other.url}{handler.path}")(handler)}
    assert load_run(f"hub:{REPO}").checkpoint and heard and {*heard} == {None}
    other.shutdown()
    other.server_close()


REDIRECTS = [
    ("https://huggingface.co/a", "https://cdn-lfs.huggingface.co/b", True),
    ("https://huggingface.co/a", "https://cas-bridge.xethub.hf.co/b", True),
    ("https://hub.example.org/a", "https://cdn.hub.example.org/b", True),
    ("http://127.0.0.1:1/a", "http://127.0.0.1:1/b", True),
    ("https://huggingface.co/a", "http://huggingface.co/a", False),
    ("https://huggingface.co/a", "https://huggingface.co.evil.org/a", False),
    ("https://huggingface.co/a", "https://evilhuggingface.co/a", False),
    ("https://huggingface.co/a", "https://huggingface.co@evil.org/a", False),
    ("https://huggingface.co/a", "http://169.254.169.254/latest", False),
]


@pytest.mark.parametrize(("url", "target", "same"), REDIRECTS)
def test_which_redirects_stay_with_the_hub(url, target, same):
    assert same_hub(url, target) == same


GARBLED = {"/create": b"[]", "/preupload": b"{}", "/commit/": b"<html>", "/whoami": b"[1]", "/tree/": b"[{}]"}


@pytest.mark.parametrize("place", GARBLED)
def test_publishing_to_a_hub_that_talks_nonsense_is_one_line(hub, capsys, place):
    hub.odd = {place: says(GARBLED[place])}
    assert run_publish.command([]) == 2
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 1 and "not understood" in captured.err, captured
    assert TOKEN not in captured.err
