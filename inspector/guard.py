"""Which requests are answered: those of pages that this server itself sent, addressed to a name of this server.

A web page elsewhere can have its visitor's browser ask 127.0.0.1 (Origin tells it), or give its own name that address
(DNS rebinding: Host tells it). Either gets 403, on every route. So do uploads and whatever else the page does not use.
"""

import logging
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
ANY = ("0.0.0.0", "[::]")  # all addresses of the machine: who connects to one of them may name it
API = "/gradio_api/"
USED = (
    "queue/join", "queue/data", "heartbeat/", "file=", "startup-events", "info", "app_id", "theme.css", "cancel",
    "reset",
)  # fmt: skip
READING = ("GET", "HEAD")
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]  # of ASGI


class Guard:
    """An ASGI application in front of another. `names` are the values of Host that are this server's."""

    def __init__(self, app: App, names: set[str], any_address: bool = False) -> None:
        self.app = app
        self.names = names
        self.any_address = any_address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self.refusal(scope) if scope["type"] in ("http", "websocket") else ""
        if not refusal:
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": refusal})
        else:
            await respond(send, 403, b"text/plain; charset=utf-8", f"{refusal}\n")

    def refusal(self, scope: Scope) -> str:
        """Why the request is not answered, "" where it is."""
        headers: dict[str, list[str]] = defaultdict(list)
        for name, value in scope["headers"]:
            headers[name.decode("latin-1").lower()].append(value.decode("latin-1").strip().lower())
        names = self.names | (_local_address(scope) if self.any_address else set())
        if len(headers["host"]) != 1 or headers["host"][0] not in names:
            return f"this server answers only to {', '.join(sorted(self.names))}, port included"
        host = headers["host"][0]
        # the public address of --share has https, the way from there to this server http
        is_foreign = not {*headers["origin"]} <= {f"https://{host}", f"http://{host}"}
        is_from_elsewhere = not {*headers["sec-fetch-site"]} <= {"same-origin", "none"}
        if is_foreign or (is_from_elsewhere and headers["sec-fetch-dest"] != ["document"]):
            return "this server answers only its own pages"
        path = scope["path"]
        is_used = scope.get("method") in READING
        if path.startswith(API):
            is_used = path.removeprefix(API).startswith(USED)
        return "" if is_used and scope["type"] == "http" else "the inspector does not use this route"


def names_of(host: str, port: int) -> set[str]:
    """Host as a browser writes it, for loopback and the address that was given; port 80 may be left out."""
    plain = host.strip("[]").lower()
    hosts = {*LOOPBACK, f"[{plain}]" if ":" in plain else plain}
    names = {f"{name}:{port}" for name in hosts}
    return names | hosts if port == 80 else names


def is_any(host: str) -> bool:
    return host in ANY or f"[{host}]" in ANY


def _local_address(scope: Scope) -> set[str]:
    """The address at which this very connection came in."""
    if not scope.get("server"):
        return set()
    address, port = scope["server"]
    return names_of(str(address).removeprefix("::ffff:"), port)


def one_a_minute() -> Callable[[logging.LogRecord], bool]:
    """A filter for the server's log that lets each warning through once a minute."""
    last_times: dict[str, float] = {}

    def is_due(record: logging.LogRecord) -> bool:
        if record.levelno > logging.WARNING or time.monotonic() - last_times.get(record.msg, -math.inf) > 60:
            last_times[record.msg] = time.monotonic()
            return True
        return False

    return is_due


async def respond(send: Send, status: int, kind: bytes, text: str) -> None:
    """Answer a request with this text, and close the connection."""
    headers = [(b"content-type", kind), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})
