"""Tests that a tracker neither slows a training nor changes its numbers, with servers that answer, stall, drop or fail.

    python -m lab.faults trackers --pairs 5 --steps 400000

Trainings run in this process, without and with a tracker. All of metrics.csv except times must be equal. The processor
time of the tracker's own thread and of the calls to it is reported as a part of the training's time.
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

from lab.faults.record import Report
from stride.commands import train
from stride.config.metrics import load_metrics
from stride.report.trackers.async_tracker import AsyncTracker
from stride.report.trackers.registry import TITLES, is_installed
from stride.runstore.metrics_table import read_csv
from stride.runstore.run_dir import RunDir

Mode = Literal["answers", "stalls", "drops", "fails"]
KEY = "0" * 40  # has the form of an API key
FOREVER = 3600.0  # seconds
# the name of a GraphQL operation, such as "mutation UpsertBucket("
OPERATION = re.compile(r"\b(?:query|mutation)\s+(\w+)")


class WandbServer(ThreadingHTTPServer):
    """A local server with the part of W&B's interface that its client uses; `mode` may be changed at any time."""

    daemon_threads = True

    def __init__(self, mode: Mode) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.mode = mode
        self.asked: list[str] = []  # requests: names of GraphQL operations, and paths
        self.rows: list[dict[str, Any]] = []
        self.views: dict[str, dict[str, Any]] = {}
        self.runs: list[str] = []

    @property
    def variables(self) -> dict[str, str]:
        return {"WANDB_BASE_URL": f"http://127.0.0.1:{self.server_port}", "WANDB_API_KEY": KEY}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that close the connection."""

    def answer(self, operation: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the "data" of the answer to a GraphQL operation, and store what it wrote."""
        project = {"id": "UA==", "name": variables.get("project") or "p", "entity": {"id": "RQ==", "name": "me"}}
        if operation == "UpsertBucket":
            self.runs.append(str(variables.get("name")))
            bucket = {"id": "QQ==", "name": variables.get("name"), "displayName": variables.get("displayName")}
            bucket |= {"project": project, "historyLineCount": 0, "config": variables.get("config"), "sweepName": None}
            return {"upsertBucket": {"bucket": bucket, "inserted": True}}
        if operation == "UpsertView2":
            view_id = variables.get("id") or f"view{len(self.views)}"
            inserted = view_id not in self.views
            self.views[view_id] = variables
            return {"upsertView": {"view": {"id": view_id, "name": variables["name"]}, "inserted": inserted}}
        if operation == "View":
            edges = [{"node": {**fields, "id": view_id}} for view_id, fields in self.views.items()
                     if fields["name"] == variables["viewName"]]  # fmt: skip
            return {"project": {"allViews": {"edges": edges}}}
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
        message = json.loads(body) if body[:1] == b"{" else {}
        if not self.path.endswith("/graphql"):
            server.asked.append(self.path)
            lines = message.get("files", {}).get("wandb-history.jsonl", {}).get("content", [])
            server.rows += [json.loads(line) for line in lines]
            return {"exitcode": None, "limits": {}}
        match = OPERATION.search(message.get("query", ""))
        operation = match[1] if match else ""
        server.asked.append(operation)
        return {"data": server.answer(operation, message.get("variables") or {})}

    def _reply(self, code: int, answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def serving(mode: Mode = "answers") -> Iterator[WandbServer]:
    """Run a server inside the block."""
    with WandbServer(mode) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


WORDS = ("CartPole-v1:ppo", "-q", "eval_freq_epochs=null", "early_stop_on_eval_threshold=false", "test_episodes=0")
SERVERS = get_args(Mode)
MAX_SHARE = 0.02  # of a training's time
LONG = 5.0  # seconds; in shorter trainings the share is not judged
CALLS = ("begin", "row", "media", "alert", "end", "_deliver")


class Trained(NamedTuple):
    """A training with a tracker."""

    seconds: float  # of the whole command
    taken: float  # processor seconds in calls and thread of the tracker
    rows: list[dict[str, float]]  # of metrics.csv, without times


def run(counts: dict[str, int], draws: random.Random, folder: Path) -> Report:
    os.environ["STRIDE_RUNS"] = str(folder / "runs")
    os.environ["TRACKIO_DIR"] = str(folder / "trackio")
    plain = trained("csv", counts["steps"])
    lines, good = [], True
    for tracker, mode in tracker_modes():
        with serving(mode or "answers") as server:
            os.environ.update(server.variables)
            runs = [trained(tracker, counts["steps"]) for _ in range(counts["pairs"])]
        same = all(run.rows == plain.rows for run in runs)
        share = statistics.median(run.taken / run.seconds for run in runs)
        # in a short training, what a tracker does once is a larger share
        good = good and same and (share < MAX_SHARE or min(run.seconds for run in runs) < LONG)
        title = f"{TITLES[tracker]}{f', a server that {mode}' if mode else ''}"
        words = "every number is the same" if same else "NUMBERS DIFFER"
        lines.append(f"{title}: **{100 * share:.2f} %** of the training's time was in its thread and calls; {words}")
        print(lines[-1], flush=True)
    return lines, good


def tracker_modes() -> Iterator[tuple[str, Mode | None]]:
    """Yield (tracker, mode of the server) for each installed tracker; None if it needs no server."""
    for name in TITLES:
        if is_installed(name):
            yield from ((name, mode) for mode in (SERVERS if name == "wandb" else (None,)))


def trained(logger: str, steps: int) -> Trained:
    """Train with this tracker in this process."""
    started = time.perf_counter()
    with clocked(AsyncTracker, CALLS) as taken:
        code = train.command([*WORDS, f"max_timesteps={steps}", f"logger={logger}"])
    seconds = time.perf_counter() - started
    if code:
        raise RuntimeError(f"a training with logger={logger} ended with {code}")
    times = {name for name, metric in load_metrics().items() if metric.wall_time}
    rows = [{name: row[name] for name in row.keys() - times} for row in read_csv(RunDir.find("@last").metrics_csv)]
    return Trained(seconds, sum(taken), rows)


@contextmanager
def clocked(owner: type, names: Sequence[str]) -> Iterator[list[float]]:
    """Measure every call of these methods inside the block; yield a list that gets the seconds of each call.

    It is the processor time of the calling thread, because other processes may keep the machine busy.
    """
    seconds: list[float] = []
    methods = {name: getattr(owner, name) for name in names}

    def timed(method: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: object) -> None:
            started = time.thread_time()
            try:
                method(*arguments)
            finally:
                seconds.append(time.thread_time() - started)

        return call

    try:
        for name, method in methods.items():
            setattr(owner, name, timed(method))
        yield seconds
    finally:
        for name, method in methods.items():
            setattr(owner, name, method)
