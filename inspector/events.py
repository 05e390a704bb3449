"""The events of the page, checked before Gradio keeps anything of them: what no page sends is HTTP 4xx and one line.

A mistake of the person's own (a seed below 0, an empty field) is answered the same way, and the page shows it. Of each
session it ever heard of Gradio keeps a state and the answers that were not fetched: here the number of both is bounded.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from stride.inspector.guard import API, App, Message, Receive, Scope, Send

JOIN, DATA = f"{API}queue/join", f"{API}queue/data"
LENGTHS = (b"content-length", b"transfer-encoding")
SESSION = re.compile(r"[A-Za-z0-9_-]{1,64}")
MOST_BYTES = 1 << 20  # of an event
LONGEST, MOST_TEXTS, LARGEST = 4000, 1000, 2.0**63  # of a text, of a list of texts, of a number
SESSIONS, UNREAD = 50, 20  # sessions that are kept; answers of one that wait to be fetched
WAITING = 200  # events that wait for a thread

Check = Callable[[object], bool]
Fields = Mapping[str, Check]  # of what an event brings beside the values of components


class Refusal(NamedTuple):
    """Why an event is not passed on."""

    status: int
    why: str


class EventDoor:
    """An ASGI application in front of Gradio's. `fields`: of each function that takes an event, what that must hold."""

    def __init__(self, app: App, demo: Any, fields: Mapping[Callable[..., object], Fields]) -> None:
        self.app, self.demo, self.fields = app, demo, fields
        self._reading: Counter[str] = Counter()  # sessions whose answers are being fetched

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in (JOIN, DATA):
            await self.app(scope, receive, send)
        elif scope["path"] == DATA:
            await self._fetch(scope, receive, send)
        elif scope["method"] == "POST":
            await self._join(scope, receive, send)
        else:
            await refuse(Refusal(405, "an event is sent by POST"), send)

    async def _join(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read(receive)
        if body is None:
            await refuse(Refusal(413, f"an event has at most {MOST_BYTES:,} bytes"), send)
            return
        event = self.checked(body)
        if not isinstance(event, Refusal):
            event = self._no_room(event["session_hash"]) or event
        if isinstance(event, Refusal):
            await refuse(event, send)
            return
        passed = json.dumps(event).encode()
        headers = [each for each in scope["headers"] if each[0].lower() not in LENGTHS]
        length = (b"content-length", str(len(passed)).encode())
        await self.app({**scope, "headers": [*headers, length]}, replayed(passed, receive), send)

    async def _fetch(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = parse_qs(scope["query_string"].decode("latin-1")).get("session_hash", [""])[0]
        if session not in self.demo._queue.pending_messages_per_session:
            await refuse(Refusal(404, "nothing was asked in this session"), send)
            return
        with self._fetched(session), suppress(KeyError, RuntimeError):  # Gradio's, where two fetch for one session
            await self.app(scope, receive, send)

    @contextmanager
    def _fetched(self, session: str) -> Iterator[None]:
        self._reading[session] += 1
        try:
            yield
        finally:
            self._reading[session] -= 1
            self._reading += Counter()  # drops those at 0

    def checked(self, body: bytes) -> dict[str, Any] | Refusal:
        """An event of nothing but what a page sends, or why it is none."""
        try:
            event = json.loads(body)
        except (ValueError, RecursionError):
            return Refusal(422, "an event is JSON")
        if not isinstance(event, dict) or not isinstance(event.get("data"), list):
            return Refusal(422, "an event is an object with a list `data`")
        session, index, trigger = (event.get(key) for key in ("session_hash", "fn_index", "trigger_id"))
        if not isinstance(session, str) or not SESSION.fullmatch(session):
            return Refusal(422, "session_hash is up to 64 letters and digits")
        function = self.demo.fns.get(index) if type(index) is int else None
        if function is None or function.fn is None:
            return Refusal(404, "the page has no such event")
        if type(trigger) not in (int, type(None)):
            return Refusal(422, "trigger_id is a number")
        fields, told = self.fields.get(function.fn, {}), event.get("event_data")
        found = {name: told.get(name) for name in fields} if isinstance(told, dict) else {}
        if fields and not (found and all(check(found[name]) for name, check in fields.items())):
            return Refusal(422, f"event_data does not hold {', '.join(fields)} as the page sends it")
        if why := wrong_value(function.inputs, event["data"]):
            return Refusal(422, why)
        pairs = zip(function.inputs, event["data"], strict=True)
        data = [None if component.stateful else value for component, value in pairs]
        event = {"data": data, "event_data": found or None, "fn_index": index, "trigger_id": trigger}
        return {**event, "session_hash": session}

    def _no_room(self, session: str) -> Refusal | None:
        """Makes room for a session by forgetting the oldest of which nothing is under way."""
        queue = self.demo._queue
        answers, unread = queue.pending_messages_per_session, queue.pending_event_ids_session
        for gone in [name for name in unread if name not in answers]:
            del unread[gone]
        if len(unread.get(session, ())) >= UNREAD:
            return Refusal(429, f"{UNREAD} answers of this session were not fetched")
        while session not in answers and len(answers) >= SESSIONS:
            busy = {event.session_hash for event in queue.event_ids_to_events.values()} | self._reading.keys()
            idle = next((name for name in answers if name not in busy), None)
            if idle is None:
                return Refusal(503, f"{SESSIONS} pages are open; close one")
            del answers[idle], unread[idle]
        return None


def wrong_value(components: Sequence[Any], values: Sequence[object]) -> str:
    """The first value that its component cannot have, in words; "" where all are right."""
    if len(components) != len(values):
        return f"the event has {len(components)} values, not {len(values)}"
    for component, value in zip(components, values, strict=True):
        if why := _wrong(component, value):
            return f"{component.label or 'a value'} {why}"
    return ""


def _wrong(component: Any, value: object) -> str:
    kind = component.get_block_name()
    if component.stateful:  # the server's own value counts
        return ""
    if kind == "number":
        least, most = component.minimum, component.maximum
        right = is_number(value) and (least is None or value >= least) and (most is None or value <= most)
        bounds = [f"from {least}"] * (least is not None) + [f"to {most}"] * (most is not None)
        return "" if right else " ".join(["is a number", *bounds])
    if kind != "dropdown":
        return "is not sent by the page"
    if component.multiselect:
        return "" if value is None or is_texts(value) else "is a list of names"
    known = component.allow_custom_value or value in [each for _, each in component.choices]
    return "" if (value is None or is_text(value)) and known else "is one of its names"


def is_text(value: object) -> bool:
    """Of a length that a line may have; half a character (a lone surrogate) is none."""
    return isinstance(value, str) and len(value) <= LONGEST and not re.search("[\ud800-\udfff]", value)


def is_texts(value: object) -> bool:
    return isinstance(value, list) and len(value) <= MOST_TEXTS and all(map(is_text, value))


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST  # no NaN, either


async def read(receive: Receive) -> bytes | None:
    """The body of a request, None where it is too long; of one that breaks off what came."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MOST_BYTES:
            return None
        if not message.get("more_body"):
            return body


def replayed(body: bytes, receive: Receive) -> Receive:
    """First this body, then whatever else comes."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return left.pop() if left else await receive()

    return again


async def refuse(refusal: Refusal, send: Send) -> None:
    """As FastAPI does it, so that the page shows the line."""
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps({"detail": refusal.why}).encode()})
