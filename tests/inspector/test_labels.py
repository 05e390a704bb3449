"""Tags and notes edited in the browser: written once, by the page alone, and shown; nothing else writes."""

import json
import os

import pytest
from gallery import gallery_copy
from inspector_browsing import apart, opened, serving

from lab.faults.door import Probe
from lab.faults.writes import OWN, cases, everything, plant, request
from stride.commands import runs as ledger
from stride.inspector.guard import Guard, names_of
from stride.inspector.labels import LabelDoor, new_token, why_not
from stride.inspector.runs import Runs
from stride.runstore.run_brief import Labels, read_labels
from stride.runstore.run_lock import locked

HOST, TOKEN = "127.0.0.1:7860", "a-token-of-this-server-alone"


async def elsewhere(scope, receive, send):
    """What is behind the door: it answers nothing of ours."""
    await send({"type": "http.response.start", "status": 404, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


def asked(probe: Probe, token: str = TOKEN) -> tuple[int, str]:
    """(status, text) for a request, without a network."""
    headers = [(name.lower().encode(), value.encode()) for name, value in probe.headers.items()]
    scope = {"type": "http", "method": probe.method, "path": probe.path.partition("?")[0], "headers": headers}
    answer = []

    async def receive():
        return {"type": "http.request", "body": probe.body}

    async def send(message):
        answer.append(message)

    guard = Guard(LabelDoor(elsewhere, Runs(), token), names_of("127.0.0.1", 7860))
    apart(guard({**scope, "query_string": b"", "server": ("127.0.0.1", 7860)}, receive, send))
    return answer[0]["status"], answer[1]["body"].decode()


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    return gallery_copy("ppo", tmp_path / "runs")


def written(run, **changes):
    return asked(request(HOST, TOKEN, {**OWN, "run": run.id, **changes}))


def test_no_hostile_write_writes(run, tmp_path):
    """The same requests as `python -m lab.faults writes` sends to a process."""
    ids = plant(run, tmp_path)
    with locked(run.path.with_name(ids["training"])):
        before = everything(tmp_path)
        probes = cases(HOST, TOKEN, ids)
        answers = {name: asked(probe) for name, probe in probes.items()}
        assert everything(tmp_path) == before and len(probes) > 90
    assert {
        name: answer for name, answer in answers.items() if not 400 <= answer[0] < 500 or len(answer[1]) > 800
    } == {}
    for kind, why in (("training", "is in training"), ("download", "from the Hub"), ("protected", "write-protected")):
        assert why in answers[kind][1]
    assert asked(request(HOST, "", {**OWN, "run": run.id}), token="")[0] == 403  # shared, or another --host
    assert written(run)[0] == 200 and read_labels(run.path) == Labels(("good",), "a note")


def test_the_browser_and_the_command_write_the_same_file(run, capsys):
    assert written(run)[0] == 200
    ledger.main(["tag", run.id, "tuned"])
    status, text = written(run, old_tags=["good"], old_note="a note", tags=[])
    assert status == 409 and "changed meanwhile" in json.loads(text)["detail"]
    assert written(run, old_tags=["tuned", "good"], old_note="a note", tags=[], note="")[0] == 200
    assert read_labels(run.path) == Labels() and not (run.path / ".lock").exists()


def test_only_a_server_of_this_machine_alone_has_a_token():
    assert new_token("127.0.0.1", False) != new_token("::1", False) != "" and len(new_token("localhost", False)) > 40
    assert {new_token("0.0.0.0", False), new_token("127.0.0.1", True), new_token("10.0.0.7", False)} == {""}


def test_a_run_that_is_gone_or_anothers_has_no_button(run, tmp_path):
    assert why_not(run.path) == "" and "No such file" in why_not(tmp_path / "gone")
    os.symlink(run.path, tmp_path / "link")
    assert "a link" in why_not(tmp_path / "link")


@pytest.mark.browser
def test_tags_and_note_are_edited_and_a_mistake_is_a_line(run, browser):
    with serving(run.id) as (_, url), opened(browser, url, 390) as page:
        page.all(".labels .edit").click()
        page.all("dialog input").fill("good, bad/tag")
        page.all("dialog textarea").fill("entropy bonus doubled")
        page.all("dialog [type=submit]").click()
        page.expect(page.all("dialog .problem")).to_contain_text("'bad/tag' is not a valid tag")
        page.all("dialog input").fill("good tuned")
        page.all("dialog [type=submit]").click()
        page.all("dialog").wait_for(state="detached")
        page.expect(page.all("#overview .pill")).to_have_text(["good", "tuned"])
        page.expect(page.all("#overview .labels")).to_contain_text("entropy bonus doubled")
    assert read_labels(run.path) == Labels(("good", "tuned"), "entropy bonus doubled")
