"""Checks the events that the browser sends, before they reach Gradio: an invalid one gets HTTP 4xx and one line.

A user's mistake (a seed below 0, an empty field) gets such an answer, too, and the page shows it. Gradio keeps a state
for each session, and answers until they are fetched; here the number of both is limited, so that memory is.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from stride.inspector.guard import API, App, Message, Receive, Scope, Send, respond

JOIN_ROUTE, DATA_ROUTE = f"{API}queue/join", f"{API}queue/data"
LENGTH_HEADERS = (b"content-length", b"transfer-encoding")
SESSION = re.compile(r"[A-Za-z0-9_-]{1,64}")
MAX_EVENT_BYTES = 1 << 20  # of an event
MAX_TEXT_LETTERS, MAX_TEXTS, MAX_NUMBER = 4000, 1000, 2.0**63  # characters of a text, texts in a list, a number
MAX_SESSIONS, MAX_UNREAD = 50, 20  # sessions that are kept; answers of one session that were not fetched
MAX_WAITING = 200  # events that wait for a thread

Check = Callable[[object], bool]
Fields = Mapping[str, Check]  # name in the event data (sent beside the values of components) -> check of its value


class Refusal(NamedTuple):
    """The answer to an event that is not passed on."""

    status: int  # of HTTP
    why: str


class EventDoor:
    """An ASGI application that checks events, then passes them to Gradio's `app`.

    `fields`: function of the page -> checks of the event data that it reads.
    """

    def __init__(self, app: App, demo: Any, fields: Mapping[Callable[..., object], Fields]) -> None:
        self.app = app
        self.demo = demo
        self.fields = fields
        self._reading: Counter[str] = Counter()  # sessions whose answers are being fetched

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in (JOIN_ROUTE, DATA_ROUTE):
            await self.app(scope, receive, send)
        elif scope["path"] == DATA_ROUTE:
            await self._fetch(scope, receive, send)
        elif scope["method"] == "POST":
            await self._join(scope, receive, send)
        else:
            await refuse(Refusal(405, "send an event with POST"), send)

    async def _join(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check an event and pass on only its checked parts, as a new body with a new length."""
        event = self.checked(await read(receive))
        if not isinstance(event, Refusal):
            event = self._full(event["session_hash"]) or event
        if isinstance(event, Refusal):
            await refuse(event, send)
            return
        passed = json.dumps(event).encode()
        headers = [header for header in scope["headers"] if header[0].lower() not in LENGTH_HEADERS]
        length = (b"content-length", str(len(passed)).encode())
        await self.app({**scope, "headers": [*headers, length]}, replayed(passed, receive), send)

    async def _fetch(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a session fetch its answers; while it does, the session counts as busy."""
        session = parse_qs(scope["query_string"].decode("latin-1")).get("session_hash", [""])[0]
        if session not in self.demo._queue.pending_messages_per_session:
            await refuse(Refusal(404, "this session has no open request"), send)
            return
        self._reading[session] += 1
        try:
            with suppress(KeyError, RuntimeError):  # Gradio raises them if two requests fetch for one session
                await self.app(scope, receive, send)
        finally:
            self._reading[session] -= 1
            self._reading += Counter()  # removes entries with count 0

    def checked(self, body: bytes | None) -> dict[str, Any] | Refusal:
        """Return the event with only the keys that the page sends, or a Refusal if it is invalid.

        `body`: of the request; None if it was too long."""
        if body is None:
            return Refusal(413, f"an event may have at most {MAX_EVENT_BYTES:,} bytes")
        try:
            event = json.loads(body)
        except (ValueError, RecursionError):
            return Refusal(422, "an event must be JSON")
        if not isinstance(event, dict) or not isinstance(event.get("data"), list):
            return Refusal(422, "an event must be an object with a list `data`")
        session, index, trigger = (event.get(key) for key in ("session_hash", "fn_index", "trigger_id"))
        if not isinstance(session, str) or not SESSION.fullmatch(session):
            return Refusal(422, "session_hash must be up to 64 letters and digits")
        function = self.demo.fns.get(index) if type(index) is int else None
        if function is None or function.fn is None:
            return Refusal(404, "the page has no such event")
        if type(trigger) not in (int, type(None)):
            return Refusal(422, "trigger_id must be a number")
        fields = self.fields.get(function.fn, {})
        sent_data = event.get("event_data")
        event_data = {name: sent_data.get(name) for name in fields} if isinstance(sent_data, dict) else {}
        if fields and not (event_data and all(check(event_data[name]) for name, check in fields.items())):
            return Refusal(422, f"event_data does not have {', '.join(fields)} as the page sends it")
        if why := wrong_value(function.inputs, event["data"]):
            return Refusal(422, why)
        pairs = zip(function.inputs, event["data"], strict=True)
        return {
            "data": [None if component.stateful else value for component, value in pairs],
            "event_data": event_data or None,
            "fn_index": index,
            "trigger_id": trigger,
            "session_hash": session,
        }

    def _full(self, session: str) -> Refusal | None:
        """Drop the oldest idle sessions if there are too many; return a Refusal if all are busy, else None.

        A session that left too many answers unfetched is refused, too."""
        queue = self.demo._queue
        answers = queue.pending_messages_per_session
        unread = queue.pending_event_ids_session
        for closed_session in [session_hash for session_hash in unread if session_hash not in answers]:
            del unread[closed_session]
        if len(unread.get(session, ())) >= MAX_UNREAD:
            return Refusal(429, f"{MAX_UNREAD} results of this session were not fetched")
        while session not in answers and len(answers) >= MAX_SESSIONS:
            busy = {event.session_hash for event in queue.event_ids_to_events.values()} | self._reading.keys()
            idle_sessions = [session_hash for session_hash in answers if session_hash not in busy]
            if not idle_sessions:
                return Refusal(503, f"{MAX_SESSIONS} pages are open, which is the limit; close one")
            del answers[idle_sessions[0]]
            del unread[idle_sessions[0]]
        return None


def wrong_value(components: Sequence[Any], values: Sequence[object]) -> str:
    """Return a message about the first value that its component cannot have; "" if all are valid."""
    if len(components) != len(values):
        return f"the event has {len(components)} values, not {len(values)}"
    for component, value in zip(components, values, strict=True):
        if why := _wrong(component, value):
            return f"{component.label or 'a value'} {why}"
    return ""


def _wrong(component: Any, value: object) -> str:
    """Return what a component's value must be, if it is wrong; "" if the component can have it."""
    kind = component.get_block_name()
    if component.stateful:  # the browser's value is not used, only the server's own
        return ""
    if kind == "number":
        minimum = component.minimum
        maximum = component.maximum
        if is_number(value) and (minimum is None or value >= minimum) and (maximum is None or value <= maximum):
            return ""
        message = "must be a number"
        if minimum is not None:
            message += f" from {minimum}"
        if maximum is not None:
            message += f" to {maximum}"
        return message
    if kind != "dropdown":
        return "is not sent by the page"
    if component.multiselect:
        return "" if value is None or is_texts(value) else "must be a list of names"
    is_choice = component.allow_custom_value or value in [choice for _, choice in component.choices]
    return "" if (value is None or is_text(value)) and is_choice else "must be one of its names"


def is_text(value: object) -> bool:
    """Return whether this is a text of limited length without half characters (lone surrogates)."""
    return isinstance(value, str) and len(value) <= MAX_TEXT_LETTERS and not re.search("[\ud800-\udfff]", value)


def is_texts(value: object) -> bool:
    return isinstance(value, list) and len(value) <= MAX_TEXTS and all(map(is_text, value))


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_NUMBER  # NaN is refused


async def read(receive: Receive) -> bytes | None:
    """Return the body of a request; None if it is too long."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MAX_EVENT_BYTES:
            return None
        if not message.get("more_body"):
            return body


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return an ASGI receiver that gives this body first, then everything else that comes."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    return receive_again


async def refuse(refusal: Refusal, send: Send) -> None:
    """Answer with a Refusal in FastAPI's format, so that the page shows its line."""
    await respond(send, refusal.status, b"application/json", json.dumps({"detail": refusal.why}))
