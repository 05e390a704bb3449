"""Does a tracker slow a training, or change a number of it? With servers that answer, stall, drop and fail.

    python -m lab.faults trackers --pairs 5 --steps 400000

Trainings in this process, without and with a tracker: all of metrics.csv that is not of time must be the same, and the
processor's time of the tracker's own thread and of the calls that bring it news is told beside the training's.
"""

import json
import os
import random
import re
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Literal, NamedTuple, get_args

from lab.faults.record import Told
from stride.commands import train
from stride.config.metrics import load_metrics
from stride.report.trackers.async_tracker import AsyncTracker
from stride.report.trackers.registry import TITLES, is_installed
from stride.runstore.metrics_table import read_csv
from stride.runstore.run_dir import RunDir

Mode = Literal["answers", "stalls", "drops", "fails"]
KEY = "0" * 40  # what the client takes for a key
FOREVER = 3600.0
OPERATION = re.compile(r"\b(?:query|mutation)\s+(\w+)")


class WandbServer(ThreadingHTTPServer):
    """`mode` may be changed at any time."""

    daemon_threads = True

    def __init__(self, mode: Mode) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.mode = mode
        self.asked: list[str] = []  # What was called: names of GraphQL's operations, and paths.
        self.rows: list[dict[str, Any]] = []
        self.views: dict[str, dict[str, Any]] = {}
        self.runs: list[str] = []

    @property
    def variables(self) -> dict[str, str]:
        return {"WANDB_BASE_URL": f"http://127.0.0.1:{self.server_port}", "WANDB_API_KEY": KEY}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is none of our business."""

    def answer(self, operation: str, variables: dict[str, Any]) -> dict[str, Any]:
        project = {"id": "UA==", "name": variables.get("project") or "p", "entity": {"id": "RQ==", "name": "me"}}
        if operation == "UpsertBucket":
            self.runs.append(str(variables.get("name")))
            bucket = {"id": "QQ==", "name": variables.get("name"), "displayName": variables.get("displayName")}
            bucket |= {"project": project, "historyLineCount": 0, "config": variables.get("config"), "sweepName": None}
            return {"upsertBucket": {"bucket": bucket, "inserted": True}}
        if operation == "UpsertView2":
            known = variables.get("id") or f"view{len(self.views)}"
            inserted = known not in self.views
            self.views[known] = variables
            return {"upsertView": {"view": {"id": known, "name": variables["name"]}, "inserted": inserted}}
        if operation == "View":
            found = [{"node": {**view, "id": known}} for known, view in self.views.items()
                     if view["name"] == variables["viewName"]]  # fmt: skip
            return {"project": {"allViews": {"edges": found}}}
        if operation == "CreateRunFiles":
            return {"createRunFiles": {"runID": "QQ==", "uploadHeaders": [], "files": []}}
        viewer = {"id": "VQ==", "entity": "me", "username": "me", "email": "me@localhost", "flags": "{}"}
        return {"viewer": {**viewer, "teams": {"edges": []}}, "serverInfo": {"features": []}, "model": None}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: WandbServer

    def do_GET(self) -> None:
        self._served(b"")

    def do_POST(self) -> None:
        self._served(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    do_PUT = do_POST  # noqa: N815

    def _served(self, body: bytes) -> None:
        server = self.server
        if server.mode == "stalls":
            time.sleep(FOREVER)
        if server.mode == "drops":
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        self._reply(*(500, {"error": "planted"}) if server.mode == "fails" else (200, self._heard(body)))

    def _heard(self, body: bytes) -> dict[str, Any]:
        server = self.server
        told = json.loads(body) if body[:1] == b"{" else {}
        if not self.path.endswith("/graphql"):
            server.asked.append(self.path)
            lines = told.get("files", {}).get("wandb-history.jsonl", {}).get("content", [])
            server.rows += [json.loads(line) for line in lines]
            return {"exitcode": None, "limits": {}}
        found = OPERATION.search(told.get("query", ""))
        operation = found[1] if found else ""
        server.asked.append(operation)
        return {"data": server.answer(operation, told.get("variables") or {})}

    def _reply(self, code: int, answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the terminal."""


@contextmanager
def serving(mode: Mode = "answers") -> Iterator[WandbServer]:
    with WandbServer(mode) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


WORDS = ("CartPole-v1:ppo", "-q", "eval_freq_epochs=null", "early_stop_on_eval_threshold=false", "test_episodes=0")
SERVERS = get_args(Mode)
MOST = 0.02  # of a training's time
LONG = 5.0  # seconds from which on a training is judged by it
CALLS = ("begin", "row", "media", "alert", "end", "_deliver")


class Trained(NamedTuple):
    seconds: float  # of the command, from its first word to its last
    taken: float  # of those, the processor's in calls and thread of the tracker
    rows: list[dict[str, float]]  # without what tells of time


def run(counts: dict[str, int], draws: random.Random, folder: Path) -> Told:
    os.environ["STRIDE_RUNS"] = str(folder / "runs")
    os.environ["TRACKIO_DIR"] = str(folder / "trackio")
    plain = trained("csv", counts["steps"])
    lines, good = [], True
    for tracker, mode in ways():
        with serving(mode or "answers") as server:
            os.environ.update(server.variables)
            each = [trained(tracker, counts["steps"]) for _ in range(counts["pairs"])]
        same = all(told.rows == plain.rows for told in each)
        taken = statistics.median(told.taken / told.seconds for told in each)
        # of a short training what a tracker does once is more
        good = good and same and (taken < MOST or min(told.seconds for told in each) < LONG)
        what = f"{TITLES[tracker]}{f', a server that {mode}' if mode else ''}"
        words = "every number is the same" if same else "NUMBERS DIFFER"
        lines.append(f"{what}: **{100 * taken:.2f} %** of the training's time was in its thread and calls; {words}")
        print(lines[-1], flush=True)
    return lines, good


def ways() -> Iterator[tuple[str, Mode | None]]:
    """Each tracker that is installed, W&B with each server."""
    for name in TITLES:
        if is_installed(name):
            yield from ((name, mode) for mode in (SERVERS if name == "wandb" else (None,)))


def trained(logger: str, steps: int) -> Trained:
    began = time.perf_counter()
    with clocked(AsyncTracker, CALLS) as taken:
        code = train.command([*WORDS, f"max_timesteps={steps}", f"logger={logger}"])
    seconds = time.perf_counter() - began
    if code:
        raise RuntimeError(f"a training with logger={logger} ended with {code}")
    wall = {name for name, metric in load_metrics().items() if metric.wall_time}
    rows = [{name: row[name] for name in row.keys() - wall} for row in read_csv(RunDir.find("@last").metrics_csv)]
    return Trained(seconds, sum(taken), rows)


@contextmanager
def clocked(owner: type, names: Sequence[str]) -> Iterator[list[float]]:
    """Seconds of the processor in every call of these methods, for as long as a block lasts.

    By the processor's time of the thread, as others may keep the machine busy.
    """
    taken: list[float] = []
    own = {name: getattr(owner, name) for name in names}

    def timed(method: Callable[..., None]) -> Callable[..., None]:
        def call(*told: object) -> None:
            began = time.thread_time()
            try:
                method(*told)
            finally:
                taken.append(time.thread_time() - began)

        return call

    try:
        for name, method in own.items():
            setattr(owner, name, timed(method))
        yield taken
    finally:
        for name, method in own.items():
            setattr(owner, name, method)
