"""Sends forbidden requests to the inspector: files by every route, other host names, other pages, closed routes.

    python -m lab.faults door

The real run_inspect.py runs on its own port and gets raw HTTP requests (paths with dots are not normalised). There are
files with secrets beside the runs; no answer may contain one. A request with another host name, from another page, or
for a route that the page does not use, must get an error, and nothing may be stored. At the end the inspector gets
SIGTERM and must leave no file.
"""

import http.client
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from lab.faults.rig import TINY, Report, Tally, undisturbed
from stride.runstore.run_dir import RunDir
from stride.utils.provenance import PROJECT

SECRET = "sesame-4711"
TELLING = (SECRET.encode(), b"root:x:", b"PATH=", b"train/clock")  # text from the files that are requested
UNUSED = ("upload", "upload_progress", "proxy=http://127.0.0.1", "process_recording", "vibe-edit/", "api/x", "call/x",
          "run/x", "stream/x", "component_server", "deep_link", "runs", "openapi.json", "file/etc/passwd")  # fmt: skip
USED = ("/", "/config", "/gradio_api/queue/join", "/gradio_api/queue/data", "/static/x.js")


class Probe(NamedTuple):
    """A request that must be refused."""

    kind: str  # for the tally, such as "for a file"
    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> Report:
    run, scratch, tally = undisturbed((*TINY, "video_freq_epochs=2"), folder / "runs"), folder / "scratch", Tally()
    (folder / "secret.txt").write_text(SECRET)
    (run.path.parent / ".env").write_text(SECRET)
    (run.videos / "epoch=9.mp4").symlink_to(folder / "secret.txt")
    with serving(run, scratch) as (host, inspector):
        before = stored(scratch)
        for probe in (*files(run, folder / "secret.txt", scratch, host), *others(host), *closed(host)):
            tally.add(f"{probe.kind}: {probe.method} {probe.path}", answered(host, probe))
        page = ask(host, Probe("own", "GET", "/config", {"Host": host}))[0]
        new = stored(scratch) - before
        inspector.send_signal(signal.SIGTERM)
        code = inspector.wait(20)
    left = stored(scratch)
    lines = [
        f"requests to a running inspector, for files, with other host names, from other pages, for closed routes: "
        f"{tally} answered as they should be",
        f"afterwards its own page gets {page}; {len(new)} files were stored meanwhile, and {len(left)} were left over "
        f"after SIGTERM (exit code {code})",
    ]
    return lines + tally.problems[:20], tally.good and page == 200 and not new and not left and code == 143


@contextmanager
def serving(run: RunDir, scratch: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run an inspector of this run's folder; yield ("127.0.0.1:1234", its process), and kill it after the block."""
    scratch.mkdir()
    # TMPDIR is where Gradio would store what is uploaded
    environment = {**os.environ, "STRIDE_RUNS": str(run.path.parent), "TMPDIR": str(scratch)}
    command = [sys.executable, "run_inspect.py", "--port", "0"]
    with subprocess.Popen(command, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, text=True) as inspector:
        try:
            host = next(match[1] for line in inspector.stdout or () if (match := re.match(r"http://([^/\s]+)", line)))
            yield host, inspector
        finally:
            inspector.kill()


def stored(scratch: Path) -> set[str]:
    """Return the files that the inspector has stored in its temporary folder."""
    return {str(path) for path in scratch.rglob("*") if path.is_file()}


def files(run: RunDir, secret: Path, scratch: Path, host: str) -> Iterator[Probe]:
    """Yield requests for secret and private files, each by every route and spelling of its path."""
    served_folder = next(iter(scratch.glob("stride-inspect-*")), scratch)
    targets = [secret, run.path.parent / ".env", run.config_json, run.videos / "epoch=9.mp4", run.metrics_csv]
    for file in map(str, [*targets, run.run_log, "/etc/passwd", "/proc/self/environ"]):
        bare_path, up = file.lstrip("/"), f"{served_folder}/{'../' * 12}{file.lstrip('/')}"
        spellings = (file, quote(file, safe=""), quote(quote(file, safe=""), safe=""), up, quote(up, safe=""))
        for path in (
            *(f"/gradio_api/file={name}" for name in spellings),
            f"/file={file}",
            f"/gradio_api/file/{bare_path}",
            f"/static/{'../' * 10}{bare_path}",
            f"/assets/{'..%2f' * 10}{quote(bare_path, safe='')}",
            f"/gradio_api/file={'%2e%2e/' * 12}{bare_path}",
            f"/gradio_api/file=file://{file}",
            f"/gradio_api/file=\\\\localhost{file}",
            f"/gradio_api/file={file}%00.mp4",
            f"/gradio_api/proxy=file://{file}",
        ):
            yield Probe("for a file", "GET", path, {"Host": host})


def others(host: str) -> Iterator[Probe]:
    """Yield requests with another name for this machine, and from pages of other sites."""
    port = host.rpartition(":")[2]
    names = ("evil.com", f"evil.com:{port}", "", "127.0.0.1", "127.0.0.1:80", f"127.0.0.1.evil.com:{port}")
    pages = (f"http://evil.com:{port}", "null", "http://localhost:9000", "file://", f"http://{host}.evil.com")
    headers = [{"Host": name} for name in (*names, f"0.0.0.0:{port}", f"localhost.:{port}")]
    headers += [{"Host": host, "Origin": page} for page in pages]
    headers += [{"Host": host, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": dest} for dest in ("image", "iframe")]
    headers += [{"Host": host, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Dest": "empty"}]
    for fields in headers:
        kind = "from another page" if len(fields) > 1 else "by another name"
        for method in ("GET", "POST", "OPTIONS"):
            yield from (Probe(kind, method, path, fields) for path in USED)


def closed(host: str) -> Iterator[Probe]:
    """Yield requests for routes of Gradio that our page does not use."""
    form = b'--x\r\nContent-Disposition: form-data; name="files"; filename="x.html"\r\n\r\n<b>\r\n--x--\r\n'
    for route in UNUSED:
        for method in ("GET", "POST", "PUT"):
            headers = {"Host": host, "Content-Type": "multipart/form-data; boundary=x"}
            yield Probe("for a closed route", method, f"/gradio_api/{route}", headers, form)


def ask(host: str, probe: Probe) -> tuple[int, bytes]:
    """Send the request as it is; return the status and the body of the answer."""
    connection = http.client.HTTPConnection(host, timeout=5)
    connection.putrequest(probe.method, probe.path, skip_host=True)
    for name, value in {"Content-Length": str(len(probe.body)), **probe.headers}.items():
        connection.putheader(name, value)
    connection.endheaders(probe.body)
    response = connection.getresponse()
    answer = response.status, response.read()
    connection.close()
    return answer


def answered(host: str, probe: Probe) -> str:
    """Return what is wrong with the answer to a forbidden request; "" if it is refused."""
    status, body = ask(host, probe)
    if any(word in body for word in TELLING):
        return "it tells what it must not"
    is_served = status < 400 and (probe.kind != "for a file" or probe.path.startswith("/gradio_api/"))
    return f"answered with {status}" if is_served else ""
