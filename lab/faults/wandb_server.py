"""A server on this machine that looks like W&B's to its own client, and then answers, stalls, drops, or fails.

It keeps what it was sent: rows of runs, and pages. Nothing leaves the machine.
"""

import json
import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from subprocess import PIPE, Popen
from threading import Thread
from typing import Any, Literal, get_args

from stride.commands.usage import parser_of
from stride.utils import entry
from stride.utils.provenance import PROJECT

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
        self.asked: list[str] = []
        """What was called: names of GraphQL's operations, and paths."""
        self.rows: list[dict[str, Any]] = []
        self.views: dict[str, dict[str, Any]] = {}
        self.runs: list[str] = []

    @property
    def variables(self) -> dict[str, str]:
        """Of the environment, for a client that is to come here."""
        return variables_of(self.server_port)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is none of our business."""

    def answer(self, operation: str, variables: dict[str, Any]) -> dict[str, Any]:
        """What GraphQL's operation of this name returns."""
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
        viewer = {
            "id": "VQ==",
            "entity": "me",
            "username": "me",
            "email": "me@localhost",
            "flags": "{}",
            "teams": {"edges": []},
        }
        return {"viewer": viewer, "serverInfo": {"features": []}, "model": None}


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


def variables_of(port: int) -> dict[str, str]:
    return {"WANDB_BASE_URL": f"http://127.0.0.1:{port}", "WANDB_API_KEY": KEY}


@contextmanager
def serving(mode: Mode = "answers") -> Iterator[WandbServer]:
    """A server until the end of the block."""
    with WandbServer(mode) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@contextmanager
def serving_apart(mode: Mode) -> Iterator[dict[str, str]]:
    """The same in a process of its own, whose work is not counted as ours; the variables for its clients."""
    words = [sys.executable, "-m", "lab.faults.wandb_server", mode]
    with Popen(words, stdin=PIPE, stdout=PIPE, text=True, cwd=PROJECT) as process:
        assert process.stdin and process.stdout
        yield variables_of(int(process.stdout.readline()))
        process.stdin.close()


def main(argv: list[str]) -> int:
    """Serve until stdin is closed; the port is said."""
    parser = parser_of(__doc__)
    parser.add_argument("mode", choices=get_args(Mode))
    with serving(parser.parse_args(argv).mode) as server:
        print(server.server_port, flush=True)
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    entry.run(main)
