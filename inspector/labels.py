"""Tags and note of a run, edited in the browser: the only thing that the inspector writes.

A page of this very server sends its token with JSON; whatever else comes is refused with HTTP 4xx and one line. The
run is under the root, of this user, not a download, not write-protected and in nobody's training. What the page showed
comes back with what is to be written: had somebody else written meanwhile, nothing is overwritten.
"""

import asyncio
import json
import os
import secrets
import stat
from pathlib import Path
from typing import Any

from stride.inspector.events import Refusal, read, refuse
from stride.inspector.guard import LABELS, LOOPBACK, App, Receive, Scope, Send, respond
from stride.inspector.markup import Markup, tag
from stride.inspector.runs import RunFacts, Runs
from stride.runstore.run_brief import LONGEST_NOTE, MOST_TAGS, Labels, facts_of, read_labels, write_labels
from stride.runstore.run_lock import RunInTrainingError, locked
from stride.utils.user_error import UserError

MOST_BYTES = 1 << 14  # of a request
KEYS = {"run", "tags", "note", "old_tags", "old_note"}
WEIGHTS = "model.safetensors"  # of a run as it is published: one that was downloaded
HINT = "`stride runs tag` and `stride runs note` can still write them"


class LabelDoor:
    """An ASGI application in front of another, which answers POST to LABELS. `token`: "" where nothing is written."""

    def __init__(self, app: App, runs: Runs, token: str) -> None:
        self.app = app
        self.runs = runs
        self.token = token
        self._turn = asyncio.Lock()  # a run's lock is one process's, whose requests wait for one another

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != LABELS:
            await self.app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        body = b"" if refusal else await read(receive, MOST_BYTES)
        if body is None:
            refusal = Refusal(413, f"tags and note may have at most {MOST_BYTES:,} bytes")
        if refusal is None:
            async with self._turn:
                refusal = await asyncio.to_thread(self._write, body)
        if refusal is None:
            await respond(send, 200, b"application/json", "{}")
        else:
            await refuse(refusal, send)

    def _refusal(self, scope: Scope) -> Refusal | None:
        """Why the request is not even read."""
        headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        values = {name: [value for other, value in headers if other == name] for name, _ in headers}
        if scope["method"] != "POST":
            return Refusal(405, "send tags and notes with POST")
        if not self.token:
            return Refusal(403, "tags and notes can be written only on this machine, not with --share or --host")
        if len(values.get("origin", ())) != 1:  # the guard has compared it with this server's own
            return Refusal(403, "the request must have an Origin header")
        if values.get("content-type") != ["application/json"]:
            return Refusal(415, "tags and notes must be JSON")
        tokens = values.get("x-stride-token", [])
        if len(tokens) != 1 or not secrets.compare_digest(tokens[0].encode(), self.token.encode()):
            return Refusal(403, "this page is of an inspector that was stopped; reload the page")
        return None

    def _write(self, body: bytes | None) -> Refusal | None:
        """Write what the body holds; the reason where nothing was written."""
        request = parsed(body or b"")
        if isinstance(request, Refusal):
            return request
        shown_labels = Labels(tuple(sorted({*request["old_tags"]})), request["old_note"])
        try:
            run = self.runs.find(request["run"])
            if run.id != request["run"]:
                return Refusal(422, "run must be the id of a run")
            if why := why_not(run.path):
                return Refusal(403, why)
            facts_of(run.path)  # a folder without a sound config.json is nobody's run
            with locked(run.path):
                if read_labels(run.path) != shown_labels:
                    return Refusal(409, "tags or note have changed meanwhile; reload the page")
                write_labels(run.path, Labels(tuple(request["tags"]), request["note"]))
        except RunInTrainingError:
            return Refusal(423, f"{run.id} is in training: {HINT}")
        except UserError as error:
            return Refusal(422, str(error))
        return None


def new_token(host: str, share: bool) -> str:
    """The secret of a server and its pages; "" where others than this machine reach it."""
    is_own = not share and (host.lower() in LOOPBACK or f"[{host.lower()}]" in LOOPBACK)
    return secrets.token_urlsafe(32) if is_own else ""


def parsed(body: bytes) -> dict[str, Any] | Refusal:
    """The object that a page sends, or why it is none."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return Refusal(422, "tags and notes must be JSON")
    if not isinstance(request, dict) or request.keys() != KEYS:
        return Refusal(422, f"tags and notes must be an object with {', '.join(sorted(KEYS))}")
    for key, value in request.items():
        texts = value if key in ("tags", "old_tags") else [value]
        if not isinstance(texts, list) or len(texts) > MOST_TAGS or not all(isinstance(text, str) for text in texts):
            return Refusal(422, f"{key} must be {f'at most {MOST_TAGS} tags' if 'tags' in key else 'a text'}")
    return request


def why_not(folder: Path) -> str:
    """Why tags and note of this run are not written from a browser; "" where they are."""
    try:
        status = os.lstat(folder)
    except OSError as error:
        return f"{folder.name}: {error.strerror}"
    if not stat.S_ISDIR(status.st_mode):
        return f"{folder.name} is a link to a run elsewhere"
    if status.st_uid != os.geteuid():
        return f"{folder.name} belongs to another user"
    if not status.st_mode & stat.S_IWUSR:  # which does not keep root out
        return f"{folder.name} is write-protected"
    if os.path.lexists(folder / WEIGHTS):
        return f"{folder.name} was downloaded from the Hub"
    return ""


def labels(run_facts: RunFacts) -> Markup:
    """Tags, note and the button that edits them (labels.js); beside it, why there is none."""
    folder = run_facts.run.path
    own = run_facts.brief.labels
    pills = [tag("span", word, class_="pill") for word in own.tags]
    why = why_not(folder)
    note = tag("span", own.note, class_="about") if own.note else ""
    edit = tag("button", "edit tags and note", type="button", class_="link edit")
    return tag(
        "div", *pills, note, tag("span", why, class_="dim") if why else edit,
        class_="labels", data_run=run_facts.run.id, data_tags=own.tag_text, data_note=own.note, data_most=LONGEST_NOTE,
    )  # fmt: skip
