"""Refuses requests that do not come from the inspector's own page, or are not addressed to this server by name.

A foreign web page could let its visitor's browser send requests to 127.0.0.1 (the header Origin shows it), or map its
own name to that address (DNS rebinding; the header Host shows it). Both get 403 on every route. Uploads, and all other
routes that the page does not use, get 403, too.
"""

import logging
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
ANY_ADDRESS = ("0.0.0.0", "[::]")  # --host for all addresses of the machine; Host may then be any of them
API = "/gradio_api/"
USED_ROUTES = (  # below API; a path must begin with one of them
    "queue/join", "queue/data", "heartbeat/", "file=", "startup-events", "info", "app_id", "theme.css", "cancel",
    "reset",
)  # fmt: skip
READ_METHODS = ("GET", "HEAD")  # allowed on routes outside of API: the page itself and its files
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]  # of ASGI


class Guard:
    """An ASGI application that passes allowed requests to `app` and answers the others with 403.

    `names`: values of the header Host that mean this server. `any_address`: the server listens on all addresses, so the
    address at which a request came in counts as a name, too.
    """

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
        """Return why a request is refused; "" if it is allowed."""
        headers: dict[str, list[str]] = defaultdict(list)
        for name, value in scope["headers"]:
            headers[name.decode("latin-1").lower()].append(value.decode("latin-1").strip().lower())
        names = self.names | (_local_address(scope) if self.any_address else set())
        if len(headers["host"]) != 1 or headers["host"][0] not in names:
            return f"this server answers only to {', '.join(sorted(self.names))}, port included"
        host = headers["host"][0]
        # with --share, the page is at an https address, but requests reach this server by http
        is_foreign = not {*headers["origin"]} <= {f"https://{host}", f"http://{host}"}
        is_from_elsewhere = not {*headers["sec-fetch-site"]} <= {"same-origin", "none"}
        if is_foreign or (is_from_elsewhere and headers["sec-fetch-dest"] != ["document"]):
            return "this server answers only its own pages"
        path = scope["path"]
        is_used = scope.get("method") in READ_METHODS
        if path.startswith(API):
            is_used = path.removeprefix(API).startswith(USED_ROUTES)
        return "" if is_used and scope["type"] == "http" else "the inspector does not use this route"


def names_of(host: str, port: int) -> set[str]:
    """Return the values of Host that a browser sends for loopback and for `host`; port 80 may be left out."""
    plain = host.strip("[]").lower()
    hosts = {*LOOPBACK, f"[{plain}]" if ":" in plain else plain}
    names = {f"{name}:{port}" for name in hosts}
    return names | hosts if port == 80 else names


def is_any(host: str) -> bool:
    return host in ANY_ADDRESS or f"[{host}]" in ANY_ADDRESS


def _local_address(scope: Scope) -> set[str]:
    """Return the values of Host for the address at which this connection came in."""
    if not scope.get("server"):
        return set()
    address, port = scope["server"]
    return names_of(str(address).removeprefix("::ffff:"), port)


def one_a_minute() -> Callable[[logging.LogRecord], bool]:
    """Return a filter for the server's log that passes each warning at most once a minute."""
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
