"""Which requests are answered: those of pages that this server itself sent, addressed to a name of this server.

A web page elsewhere can have its visitor's browser ask 127.0.0.1 (Origin tells it), or give its own name that address
(DNS rebinding: Host tells it). Either gets 403, on every route. So do uploads and whatever else the page does not use.
"""

import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
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
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
        elif why := self.refusal(scope):
            await _refuse(scope["type"], why, send)
        else:
            await self.app(scope, receive, send)

    def refusal(self, scope: Scope) -> str:
        """Why the request is not answered, "" where it is."""
        headers = {name: _values(scope, name) for name in ("host", "origin", "sec-fetch-site", "sec-fetch-dest")}
        names = self.names | (_own_address(scope) if self.any_address else set())
        if len(headers["host"]) != 1 or headers["host"][0] not in names:
            return f"this server answers as {', '.join(sorted(self.names))} only, port included"
        schemes = ("https", "http")  # the public address of --share has the one, its way to here the other
        own_origins = [f"{scheme}://{headers['host'][0]}" for scheme in schemes]
        if any(origin not in own_origins for origin in headers["origin"]):
            return "this server answers its own pages only"
        if set(headers["sec-fetch-site"]) - {"same-origin", "none"} and headers["sec-fetch-dest"] != ["document"]:
            return "this server answers its own pages only"
        return "" if _is_used(scope) else "the inspector does not use this route"


def names_of(host: str, port: int) -> set[str]:
    """Host as a browser writes it, for loopback and the address that was given; port 80 may be left out."""
    plain = host.strip("[]").lower()
    hosts = {*LOOPBACK, f"[{plain}]" if ":" in plain else plain}
    names = {f"{name}:{port}" for name in hosts}
    return names | hosts if port == 80 else names


def is_any(host: str) -> bool:
    return host in ANY or f"[{host}]" in ANY


def _is_used(scope: Scope) -> bool:
    """Whether the page needs this route of Gradio, or reads a file of Gradio."""
    if scope["type"] == "websocket":
        return False
    path = scope["path"]
    if path.startswith(API):
        return path.removeprefix(API).startswith(USED)
    return scope["method"] in READING


def _values(scope: Scope, name: str) -> list[str]:
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return [value.decode("latin-1").strip().lower() for key, value in headers if key.lower() == name.encode()]


def _own_address(scope: Scope) -> set[str]:
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


async def _refuse(kind: str, why: str, send: Send) -> None:
    if kind == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": why})
        return
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": f"{why}\n".encode()})
