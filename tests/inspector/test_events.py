"""What no page sends is refused in a line before Gradio hears of it; sessions and answers are bounded."""

import http.client
import json
import re
import time

import pytest

from stride.inspector.events import MAX_EVENT_BYTES, MAX_SESSIONS, MAX_UNREAD, EventDoor, Refusal

RECORD = ["a-run", "best", 0, "greedy", 10]
DEEP = "[" * 100_000


@pytest.fixture(scope="module")
def indices(served):
    """The index of an event by what it holds, or by how many values it brings."""
    inspector, _ = served
    functions = {index: function for index, function in inspector.demo.fns.items() if function.fn}
    labels = {index: [component.label for component in function.inputs] for index, function in functions.items()}
    result = {"+".join(inspector.fields.get(function.fn, {})): index for index, function in functions.items()}
    result["record"] = next(index for index, names in labels.items() if "Seed" in names)
    result["several"] = next(index for index, names in labels.items() if names == ["groups and runs", "metrics"])
    result["tick"] = next(n for n, function in functions.items() if "tick" in [name for _, name in function.targets])
    result["no backend"] = next(index for index, function in inspector.demo.fns.items() if not function.fn)
    return result


def event(index, data, **more):
    return {"data": data, "fn_index": index, "session_hash": "abc", "trigger_id": None, "event_data": None, **more}


SEED, STEPS = "Seed must be a number from 0", "Max steps must be a number from 1 to 5000"
SENT = [  # (name of the event, its values, other fields, why it is refused)
    ("tick", [None, None, None, None], {}, ""),
    ("tick", [["x"], 1, {}, "a-run"], {}, ""),  # a state is the server's own, whatever is sent
    ("record", RECORD, {}, ""),
    ("several", [["a", "b"], ["return"]], {}, ""),
    ("value", [], {"event_data": {"value": "Runs", "index": 3}}, ""),
    ("key+step", [], {"event_data": {"key": "k", "step": 3}}, ""),
    ("tick", [None, None, None, 7], {}, "run must be one of its names"),
    ("tick", [None], {}, "the event has 4 values, not 1"),
    *(("record", ["a-run", "best", seed, "greedy", 10], {}, SEED) for seed in (-1, None, 2**70, float("nan"), True)),
    ("record", ["a-run", "best", 0, "greedy", 9e9], {}, STEPS),
    ("record", ["a-run", "best", 0, "rude", 10], {}, "Policy must be one of its names"),
    ("record", ["a-run", "\ud800", 0, "greedy", 10], {}, "Checkpoint must be one of its names"),
    ("record", ["a" * 5000, "best", 0, "greedy", 10], {}, "run must be one of its names"),
    ("several", ["a", []], {}, "groups and runs must be a list of names"),
    ("several", [[], [1]], {}, "metrics must be a list of names"),
    ("words", [], {}, "event_data does not have words"),
    ("words", [], {"event_data": {"words": 7}}, "event_data does not have words"),
    ("runs", [], {"event_data": {"runs": "abc"}}, "event_data does not have runs"),
    ("run", [], {"event_data": ["run"]}, "event_data does not have run"),
    ("key+step", [], {"event_data": {"key": "k", "step": "1"}}, "event_data does not have key, step"),
    ("no backend", [], {}, "the page has no such event"),
    ("tick", [None] * 4, {"fn_index": 9999}, "the page has no such event"),
    ("tick", [None] * 4, {"fn_index": "0"}, "the page has no such event"),
    ("tick", [None] * 4, {"trigger_id": []}, "trigger_id must be a number"),
    ("tick", {}, {}, "a list `data`"),
    ("tick", [None] * 4, {"session_hash": None}, "session_hash must be up to 64"),
    ("tick", [None] * 4, {"session_hash": "../x"}, "session_hash must be up to 64"),
]


@pytest.mark.parametrize(("name", "data", "more", "why"), SENT)
def test_only_what_the_page_sends_is_passed_on(name, data, more, why, served, indices):
    inspector, _ = served
    sent = event(indices[name], data, batched=True, **more)
    found = EventDoor(None, inspector.demo, inspector.fields).checked(json.dumps(sent).encode())
    if why:
        assert isinstance(found, Refusal) and found.status in (404, 422) and why in found.why
    else:
        assert "batched" not in found and found["fn_index"] == indices[name]
        assert name != "tick" or found["data"][:3] == [None] * 3


def test_a_running_inspector_answers_in_a_line_and_keeps_few_sessions(served, indices, capfd):
    inspector, url = served
    host, tick = url.removeprefix("http://"), event(indices["tick"], [None] * 4)

    def asked(method, path, body=None):
        connection = http.client.HTTPConnection(host, timeout=60)
        connection.request(method, f"/gradio_api/queue/{path}", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    def get(session):
        return asked("GET", f"data?session_hash={session}")

    def join(body):
        status, text = asked("POST", "join", body)
        return status, json.loads(text)

    def join_as(session):
        return join(json.dumps({**tick, "session_hash": session}))[0]

    for body, status in (("{", 422), (DEEP, 422), ("[]", 422), ("x" * (MAX_EVENT_BYTES + 1), 413), ("", 422),
                         (json.dumps({**tick, "fn_index": -1}), 404)):  # fmt: skip
        code, answer = join(body)
        assert code == status and {*answer} == {"detail"}
    assert get("nobody")[0] == 404

    for number in range(3 * MAX_SESSIONS):  # fetched or not, they are forgotten
        while (code := join_as(f"s{number}")) == 503:  # events of all of them are under way
            time.sleep(0.1)
        assert code == 200
        if number % 2:
            assert '"process_completed"' in get(f"s{number}")[1]
    queue = inspector.demo._queue
    kept = queue.pending_messages_per_session, queue.pending_event_ids_session, inspector.demo.state_holder.session_data
    assert max(map(len, kept)) <= MAX_SESSIONS

    assert [join_as("greedy") for _ in range(MAX_UNREAD + 5)] == [200] * MAX_UNREAD + [429] * 5
    assert not re.search("Traceback|Exception", "".join(capfd.readouterr()))
