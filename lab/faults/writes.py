"""Tags and notes sent to the inspector as they must not be: by other pages, without its token, for other people's runs.

    python -m lab.faults writes

The real run_inspect.py on a port of its own. Each request is the valid one with one thing changed; afterwards every
file of all runs must be as it was. At the end the valid one is sent by many at once: it is written once.
"""

import http.client
import json
import os
import random
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from lab.faults.door import SECRET, Probe, ask, serving
from lab.faults.rig import TINY, Tally, Told, straight
from stride.inspector.guard import LABELS
from stride.runstore.run_brief import LONGEST_NOTE, MOST_TAGS, read_labels
from stride.runstore.run_dir import RunDir
from stride.runstore.run_lock import locked

TOKEN = re.compile(r"stride-token\\u0027 content=\\u0027([\w-]+)\\u0027")  # in the page, as text of a script
WRITERS = 40  # that write at once
OWN = {"tags": ["good"], "note": "a note", "old_tags": [], "old_note": ""}


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> Told:
    sound, tally = straight(TINY, folder / "runs"), Tally()
    ids = plant(sound, folder)
    with serving(sound, folder / "scratch") as (host, _), locked(sound.path.with_name(ids["training"])):
        page = ask(host, Probe("own", "GET", "/", {"Host": host}))[1].decode()
        match = TOKEN.search(page)
        assert match is not None
        token = match[1]
        before = everything(folder)
        for name, probe in cases(host, token, ids).items():
            tally.add(f"{probe.kind}: {name}", answered(host, probe))
        written = {path for path, content in everything(folder).items() if before.get(path) != content}
        gone = before.keys() - everything(folder).keys()
        valid = [request(host, token, {**OWN, "run": ids["own"], "tags": [f"writer-{n}"]}) for n in range(WRITERS)]
        with ThreadPoolExecutor(WRITERS) as writers:
            statuses = [*writers.map(lambda probe: status_of(host, probe), valid)]
    winner = f"writer-{statuses.index(200)}" if 200 in statuses else "nobody"
    once = sorted(statuses) == [200] + [409] * (WRITERS - 1) and read_labels(sound.path).tags == (winner,)
    lines = [
        f"hostile writes to a running inspector: {tally} refused in one line; **{len(written | gone)}** files changed",
        f"{WRITERS} valid writes at once: {statuses.count(200)} written, {statuses.count(409)} refused because the "
        "file had changed",
    ]
    return lines + tally.problems[:20], tally.good and not written and not gone and once


def plant(own: RunDir, outside: Path) -> dict[str, str]:
    """Beside a sound run others that nobody may write through the browser; their ids by what they are."""
    ids = {"own": own.id}
    root = own.path.parent
    kinds = (
        "link",
        "download",
        "protected",
        "training",
        "linked labels",
        "linked config",
        "damaged labels",
        "another's",
    )
    for number, kind in enumerate(kinds):
        ids[kind] = f"20990101-00000{number}-planted"
        copy = Path(shutil.copytree(own.path, root / ids[kind], symlinks=True))
        if kind == "link":
            (outside / "elsewhere").mkdir()
            root.joinpath(ids[kind]).rename(outside / "elsewhere" / "run")
            root.joinpath(ids[kind]).symlink_to(outside / "elsewhere" / "run")
        elif kind == "download":
            (copy / "model.safetensors").touch()
        elif kind == "protected":
            copy.chmod(stat.S_IRUSR | stat.S_IXUSR)
        elif kind == "another's":
            os.chown(copy, 4711, -1) if os.geteuid() == 0 else copy.chmod(0)
        elif kind != "training":
            name = "config.json" if kind == "linked config" else "labels.json"
            (copy / name).unlink(missing_ok=True)
            (outside / f"{kind}.json").write_text(json.dumps({"tags": [], "note": ""}))
            if kind == "damaged labels":
                (copy / name).write_text("{")
            else:
                (copy / name).symlink_to(outside / f"{kind}.json")
    return ids


def request(host: str, token: str, body: object, **headers: str) -> Probe:
    """The valid request, with other headers where they are given; one that is "" is left out."""
    sent = {"Host": host, "Origin": f"http://{host}", "Content-Type": "application/json", "X-Stride-Token": token}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Probe("own", "POST", LABELS, {name: value for name, value in sent.items() if value}, data)


def cases(host: str, token: str, ids: Mapping[str, str]) -> dict[str, Probe]:
    """Every hostile request by what is wrong with it."""
    body = {**OWN, "run": ids["own"]}
    probes: dict[str, Probe] = {}
    for kind, requests in (
        ("by another page", from_elsewhere(host, token, body)),
        ("without the token", without_token(host, token, body)),
        ("by another way", by_another_way(host, token, body)),
        ("no JSON of the page", no_json(host, token, body)),
        ("texts that are none", wrong_texts(host, token, body)),
        ("another run", wrong_runs(host, token, body, ids)),
    ):
        probes |= {name: probe._replace(kind=kind) for name, probe in requests}
    return probes


Requests = Iterator[tuple[str, Probe]]
Body = dict[str, Any]


def from_elsewhere(host: str, token: str, body: Body) -> Requests:
    port = host.rpartition(":")[2]
    evil = f"evil.com:{port}"
    yield "a name that points here (DNS rebinding)", request(host, token, body, Host=evil, Origin=f"http://{evil}")
    yield "another name", request(host, token, body, Host=evil)
    yield "no origin", request(host, token, body, Origin="")
    for origin in (
        "null",
        f"http://{evil}",
        "http://127.0.0.1:1",
        f"http://{host}.evil.com",
        "file://",
        f"http://{host}/",
    ):
        yield f"origin {origin}", request(host, token, body, Origin=origin)
    for site in ("cross-site", "same-site"):
        yield f"fetched {site}", request(host, token, body, Sec_Fetch_Site=site, Sec_Fetch_Dest="empty")


def without_token(host: str, token: str, body: Body) -> Requests:
    tokens = {
        "no token": "", "the token of an earlier server": secrets.token_urlsafe(32), "half the token": token[:20],
        "the token and more": f"{token}x", "the token in other letters": token.swapcase(), "null": "null",
    }  # fmt: skip
    for name, value in tokens.items():
        yield name, request(host, value, body)
    yield "the token in the address", request(host, "", body)._replace(path=f"{LABELS}?token={token}")


def by_another_way(host: str, token: str, body: Body) -> Requests:
    valid = request(host, token, body)
    for method in ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"):
        yield method, valid._replace(method=method)
    for kind in ("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        yield f"content type {kind or 'none'}", request(host, token, body, Content_Type=kind)
    yield "JSON in another code", request(host, token, body, Content_Type="application/json; charset=utf-7")
    for path in (f"{LABELS}/", f"/{LABELS}", LABELS.upper(), f"/x/..{LABELS}", f"/gradio_api{LABELS}"):
        yield f"path {path}", valid._replace(path=path)


def no_json(host: str, token: str, body: Body) -> Requests:
    text = json.dumps(body)
    bodies = {
        "nothing": b"", "half": text[: len(text) // 2].encode(), "no UTF-8": b"\xff" + text.encode(), "[]": b"[]",
        "nested 8,000 deep": b"[" * 8000, "a number of 9,000 digits": b'{"run": ' + b"9" * 9000 + b"}",
        "20,000 bytes": text.encode() + b" " * 20_000, "a megabyte": text.encode() + b" " * (1 << 20),
        "two objects": (text + text).encode(),
    }  # fmt: skip
    for name, data in bodies.items():
        yield name, request(host, token, data)
    yield "a key more", request(host, token, {**body, "path": "/etc"})
    for key in body:
        yield f"without {key}", request(host, token, {name: value for name, value in body.items() if name != key})
        yield f"{key} null", request(host, token, {**body, key: None})


def wrong_texts(host: str, token: str, body: Body) -> Requests:
    tags = {
        "10,000 characters": ["x" * 10_000], "a way up": ["../../x"], "a control character": ["a\x1b[2J"],
        "empty": [""], "a blank": ["a b"], "markup": ["<script>"], "a number": [7], "a list": [["a"]], "a text": "good",
        "33 tags": [f"t{n}" for n in range(MOST_TAGS + 1)], "half a character": ["\ud800"],
    }  # fmt: skip
    notes = {
        "too long": "x" * (LONGEST_NOTE + 1), "two lines": "a\nb", "a control character": "\x1b]0;x\x07", "NUL": "a\0b",
        "turned around": "\u202egood", "half a character": "\ud800", "a number": 7, "an object": {"a": 1},
    }  # fmt: skip
    for name, value in tags.items():
        yield f"tag: {name}", request(host, token, {**body, "tags": value})
    for name, note in notes.items():
        yield f"note: {name}", request(host, token, {**body, "note": note})
    yield "labels that are not those of now", request(host, token, {**body, "old_tags": ["other"]})


def wrong_runs(host: str, token: str, body: Body, ids: Mapping[str, str]) -> Requests:
    own = ids["own"]
    for selector in ("", "@last", "@best", own[:-1], f"../runs/{own}", f"./{own}", f"/tmp/{own}", f"{own}/", f"{own}\0",
                     "group:x", "hub:user/repo", "nothing", "x" * 5000, ".", ".."):  # fmt: skip
        yield f"run {selector[:40]!r}", request(host, token, {**body, "run": selector})
    for kind, run_id in ids.items():
        if kind != "own":
            yield kind, request(host, token, {**body, "run": run_id})


def everything(folder: Path) -> dict[str, object]:
    """Each file below the folder, but those of the server: its bytes, or where a link points."""
    files: dict[str, object] = {}
    for path in folder.rglob("*"):
        if "scratch" not in path.relative_to(folder).parts and ".index" not in path.name:
            files[str(path)] = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else ""
    return files


def status_of(host: str, probe: Probe) -> int:
    return ask(host, probe)[0]


def answered(host: str, probe: Probe) -> str:
    """What is wrong with the answer: a refusal is 4xx and one short line without a secret."""
    try:
        status, text = ask(host, probe)
    except (ConnectionError, http.client.HTTPException) as error:  # it hung up before it had read a large body
        return "" if len(probe.body) > 10_000 else f"no answer: {error}"
    if not 400 <= status < 500:
        return f"answered with {status}"
    return "" if len(text) < 800 and SECRET.encode() not in text and b"Traceback" not in text else "it tells too much"
