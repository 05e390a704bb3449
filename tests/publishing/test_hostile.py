"""Repositories and a Hub that mean harm: each answer is refused in one printable line, nothing is executed, nothing is
written, nobody else is asked."""

import copy
import hashlib
import io
import json
import os
import pickle
import struct
import sys
from pathlib import Path

import pytest
import torch
from commands import refusal
from fake_hub import TOKEN, FakeHub
from safetensors.torch import load

from stride.agents.trained.loading import load_run
from stride.commands import run_publish
from stride.publishing.hub_download import same_hub
from stride.publishing.weights_file import write_weights
from stride.utils.user_error import UserError

REPO = "mallory/gift"


class Evil:
    """Runs a command where it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("executed",)


@pytest.fixture
def gift(hub, sound, work, monkeypatch):
    """Good files to spoil, and in the present folder a module that would leave a trace."""
    (work / "evil_module.py").write_text("import os\nos.mkdir('executed')\n")
    monkeypatch.syspath_prepend(str(work))
    return {**sound}


def header(files, change):
    """model.safetensors with its header changed."""
    data = files["model.safetensors"]
    size = struct.unpack("<Q", data[:8])[0]
    table = json.loads(data[8 : 8 + size])
    change(table)
    text = json.dumps(table).encode()
    return {**files, "model.safetensors": struct.pack("<Q", len(text)) + text + data[8 + size :]}


def first(table):
    return table[sorted(name for name in table if name != "__metadata__")[0]]


def weights(files, change):
    tensors = load(files["model.safetensors"])
    change(tensors)
    return {**files, "model.safetensors": write_weights(tensors)}


def config(files, where=("config",), **changes):
    facts = json.loads(files["config.json"])
    place = facts
    for key in where:
        place = place[key]
    place.update(copy.deepcopy(changes))
    return {**files, "config.json": json.dumps(facts).encode()}


def checkpoint():
    stream = io.BytesIO()
    torch.save({"state_dict": Evil()}, stream)
    return stream.getvalue()


def name_of(files):
    return next(name for name, tensor in load(files["model.safetensors"]).items() if tensor.ndim == 2)


LSTM = {"policy": "lstm", "policy_kwargs": {"hidden_size": 60_000}, "batch_size": 1.0}
STACK, SELECTION = {"id": "FrameStack", "frames": 999}, {"id": "SelectObservation", "indices": [0] * 99_999}
GIGABYTE = {"shape": [1 << 28], "data_offsets": [0, 1 << 30]}
DEEP = b'{"config": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
HOSTILE = {  # what is wrong -> (the repository's files from good ones, fragment of the line)
    "pickle only": (lambda f: {"epoch=04.ckpt": checkpoint()}, "does not write"),
    "pickle beside": (lambda f: {**f, "model.pkl": pickle.dumps(Evil())}, "'model.pkl'"),
    "pickle as weights": (lambda f: {**f, "model.safetensors": checkpoint()}, "not a safetensors file"),
    "pickle as config": (lambda f: {**f, "config.json": pickle.dumps(Evil())}, "not valid JSON"),
    "_target_": (lambda f: config(f, policy_kwargs={"_target_": "os.mkdir", "path": "executed"}), "_target_"),
    "module in env_id": (lambda f: config(f, env_id="evil_module:Env-v0"), "names the module"),
    "module in env_kwargs": (lambda f: config(f, env_kwargs={"entry_point": "evil_module:main"}), "names the module"),
    "file in env_kwargs": (lambda f: config(f, env_id="Ant-v5", env_kwargs={"xml_file": "evil.xml"}), "file or a mod"),
    "wrapper": (lambda f: config(f, env_wrappers=[{"id": "evil_module.Wrapper"}]), "not registered"),
    "module in policy": (lambda f: config(f, policy="evil_module:Net"), "policy names the module 'evil_module'"),
    "module in algo_id": (lambda f: config(f, algo_id="evil_module:Agent"), "algo_id names the module 'evil_module'"),
    "unknown environment": (lambda f: config(f, env_id="Evil-v0"), "unknown environment 'Evil-v0'"),
    "unknown policy": (lambda f: config(f, policy="evil_module.Net"), "polic"),
    "escape in a key": (lambda f: config(f, **{"a\x1b[2J\nb": 1}), "control characters"),
    "escape in variant": (lambda f: config(f, variant="x\x1b[31m"), "control characters"),
    "escape in checkpoint": (lambda f: config(f, (), checkpoint="epoch=1\nok"), "checkpoint is not a name"),
    "huge network": (lambda f: config(f, hidden_dims=[10**9, 10**9]), "hidden_dims must be at most"),
    "large network": (lambda f: config(f, hidden_dims=[10**5, 10**5]), "more weights than model.safetensors has"),
    "huge rollout": (lambda f: config(f, n_steps=10**12, max_timesteps=10**15), "n_steps must be at most"),
    "large rollout": (lambda f: config(f, n_steps=1 << 22, max_timesteps=10**15), "n_steps above"),
    "large memory": (lambda f: config(f, **LSTM), "needs a tensor of"),
    "large stack": (lambda f: config(f, frame_stack=10**6), "needs a tensor of"),
    "pictures for a long line": (lambda f: config(f, obs="pixels", policy="cnn", resize_obs=[2000, 2000]), "needs a t"),
    "huge selection": (lambda f: config(f, env_wrappers=[SELECTION, STACK]), "an observation of"),
    "many layers": (lambda f: config(f, hidden_dims=[1] * 5000), "hidden_dims"),
    "seed of 401 digits": (lambda f: config(f, seed=10**400), "a number of 401 digits"),
    "window": (lambda f: config(f, env_kwargs={"render_mode": "human"}), "env_kwargs.render_mode"),
    "huge argument": (lambda f: config(f, env_kwargs={"width": 10**9}), "a whole number above"),
    "list as dtype": (lambda f: header(f, lambda t: first(t).update(dtype=["F32"])), "does not fit"),
    "deep JSON": (lambda f: {**f, "config.json": DEEP}, "JSON|nested"),
    "not a number": (lambda f: config(f, policy_lr=float("inf")), "not finite"),
    "list as config": (lambda f: {**f, "config.json": b"[]"}, "has no config"),
    "no clock": (lambda f: config(f, (), progress=3), "env_steps"),
    "oversized header": (lambda f: {**f, "model.safetensors": struct.pack("<Q", 2**60) + b"{}"}, "a header of"),
    "header beyond the file": (lambda f: {**f, "model.safetensors": struct.pack("<Q", 500) + b"{}"}, "a header of"),
    "empty weights": (lambda f: {**f, "model.safetensors": b""}, "a header of"),
    "1 GB claimed": (lambda f: header(f, lambda t: first(t).update(GIGABYTE)), "does not fit"),
    "overlap": (lambda f: header(f, lambda t: t.update(extra=first(t))), "does not fit"),
    "object dtype": (lambda f: header(f, lambda t: first(t).update(dtype="OBJECT")), "does not fit"),
    "many tensors": (lambda f: header(f, lambda t: t.update({str(n): 0 for n in range(5000)})), "at most"),
    "wrong shape": (lambda f: weights(f, lambda t: t.update({name_of(f): torch.zeros(64, 1)})), "in the policy"),
    "extra tensor": (lambda f: weights(f, lambda t: t.update(extra=torch.zeros(3))), "no place for tensor extra"),
    "missing tensor": (lambda f: weights(f, lambda t: t.pop(name_of(f))), "is missing"),
    "NaN": (lambda f: weights(f, lambda t: t[name_of(f)].fill_(float("nan"))), "not finite"),
    "code beside": (lambda f: {**f, "sitecustomize.py": b"import os; os.mkdir('executed')"}, "'sitecustomize.py'"),
    "path traversal": (lambda f: {**f, "../../../executed": b"x"}, "does not write"),
    "newline in a name": (lambda f: {**f, "a\nb\x1b[2J.txt": b"x"}, "does not write"),
    "no weights": (lambda f: {"config.json": f["config.json"]}, "has no model.safetensors"),
    "large config": (lambda f: {**f, "config.json": b" " * (2 << 20)}, "more than the"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_it_is_refused_in_one_line(hub, gift, refused_play, what, tmp_path):
    spoil, fragment = HOSTILE[what]
    hub.repo(REPO, spoil(gift))
    line = refused_play(f"hub:{REPO}")
    assert any(part in line for part in fragment.split("|")), line
    assert not list(tmp_path.rglob("executed")) and "evil_module" not in sys.modules
    assert os.listdir(tmp_path / "work") == ["evil_module.py"]


def test_what_is_trusted_by_name_is_followed_and_nothing_else(hub, gift, work):
    """A policy of the reader's own machine, named by somebody else's run."""
    (work / "their_net.py").write_text("from stride.agents.networks.actor_critic import ActorCritic as Net\n")
    hub.repo(REPO, config(gift, policy="their_net:Net", env_wrappers=[{"id": "evil_module:W"}]))
    with pytest.raises(UserError, match="names the module 'evil_module'"):
        load_run(f"hub:{REPO}", trust=["their_net"])
    assert not {"evil_module", "their_net"} & sys.modules.keys()
    hub.repo(REPO, config(gift, policy="their_net:Net"))
    assert load_run(f"hub:{REPO}", trust=["their_net"]).config.policy == "their_net:Net"
    assert sys.modules.pop("their_net")


# ---- a Hub that means harm


SOUND = "tester/CartPole-v1-ppo"
FILE = "/resolve/"
UP = "../" * 12


def with_headers(**headers):
    """The right file under headers of our own."""

    def answer(handler):
        repo = handler.server.repos[SOUND]
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
    "another file": (FILE, says(b"{}"), "is not the listed file"),
    "endless file": (FILE, endless, "is larger than"),
    "endless listing": ("/tree/", endless, "is larger than"),
    "endless error": (FILE, lambda handler: endless(handler, 404), "is larger than"),
    "another host": (FILE, moved("http://127.0.0.2:9/x"), "redirects to 127.0.0.2:9, not a host of the Hub"),
    "a file of this machine": (FILE, moved("file:///etc/passwd"), "not a host of the Hub"),
    "round and round": (FILE, moved("/tester/CartPole-v1-ppo/resolve/x"), "redirected more than"),
    "nowhere": (FILE, moved("http://[::"), "an unexpected answer"),
    "no JSON": ("/revision/", says(b"<html>"), "not JSON"),
    "deep JSON": ("/tree/", says(b"[" * 100_000), "not JSON"),
    "a list": ("/revision/", says([]), "not a commit hash"),
    "a hash that climbs": ("/revision/", says({"sha": "../../x"}), "not a commit hash"),
    "no list": ("/tree/", says({"a": 1}), "its list of files"),
    "a size in words": ("/tree/", tree(size="10"), "its list of files"),
    "a negative size": ("/tree/", tree(size=-1), "its list of files"),
    "no hash": ("/tree/", tree(oid=None), "its list of files"),
    "a large file without its hash": ("/tree/", tree(lfs={"oid": 7}), "its list of files"),
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
    assert words in refused_play(f"hub:{SOUND}")
    assert os.listdir(work) == [] and not (tmp_path / "cache").exists()


def test_names_in_headers_name_no_file_and_another_commit_than_the_pinned_one_is_not_taken(
    hub, published, tmp_path, refused_play
):
    """huggingface_hub 2.4.0 wrote the file ESC1 for this."""
    hub.odd = {FILE: with_headers(ETag=f'"{UP}{str(tmp_path)[1:]}/ESC1"', X_Repo_Commit=published.commits[-1])}
    assert load_run(f"hub:{SOUND}").config.env_id == "CartPole-v1"
    assert not (tmp_path / "ESC1").exists() and not (tmp_path / "cache").exists() and not Path("/ESC1").exists()
    hub.odd = {"/revision/": says({"sha": published.commits[0]})}
    assert "was requested" in refused_play(f"hub:{SOUND}@{published.commits[-1]}")


def test_a_token_stays_with_its_host(hub, published, monkeypatch):
    other, heard = FakeHub(), []
    other.repos = hub.repos
    monkeypatch.setattr("stride.publishing.hub_download.same_hub", lambda url, target: True)
    other.odd = {"": lambda handler: (heard.append(handler.headers.get("Authorization")), with_headers()(handler))}
    hub.odd = {FILE: lambda handler: moved(f"{other.url}{handler.path}")(handler)}
    assert load_run(f"hub:{SOUND}").checkpoint and heard and {*heard} == {None}
    other.shutdown()
    other.server_close()


REDIRECTS = [
    ("https://huggingface.co/a", "https://cdn-lfs.huggingface.co/b", True),
    ("https://hub.example.org/a", "https://cdn.hub.example.org/b", True),
    ("http://127.0.0.1:1/a", "http://127.0.0.1:1/b", True),
    ("https://huggingface.co/a", "http://huggingface.co/a", False),
    ("https://huggingface.co/a", "https://huggingface.co.evil.org/a", False),
    ("https://huggingface.co/a", "https://huggingface.co@evil.org/a", False),
    ("https://huggingface.co/a", "http://169.254.169.254/latest", False),
]


@pytest.mark.parametrize(("url", "target", "same"), REDIRECTS)
def test_which_redirects_stay_with_the_hub(url, target, same):
    assert same_hub(url, target) == same


GARBLED = {"/create": b"[]", "/commit/": b"<html>", "/tree/": b"[{}]"}


@pytest.mark.parametrize("place", GARBLED)
def test_publishing_to_a_hub_that_talks_nonsense_is_one_line(hub, capsys, place):
    hub.odd = {place: says(GARBLED[place])}
    line = refusal(capsys, run_publish.command)
    assert "an unexpected answer" in line and TOKEN not in line
