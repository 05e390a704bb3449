"""What a running inspector gives away, and what planted text does: nothing."""

import http.client
import json
from urllib.parse import quote

import pytest
from inspector_browsing import Page, chromium, serving
from tiny_runs import tiny_run

from stride.inspector.compare import compare
from stride.inspector.markdown import report_text
from stride.inspector.overview import overview
from stride.inspector.played import config
from stride.inspector.runs import Runs
from stride.inspector.table import runs_table

SECRET = "sesame-4711"
PLANTED = "<img src=x onerror=alert(1)><script>alert(2)</script>${alert(3)}{{alert(4)}}\"'`"


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A run whose every text is hostile, beside files nobody may read."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("runs")
        patch.setenv("STRIDE_RUNS", str(folder))
        patch.chdir(folder)
        run = tiny_run()
        facts = json.loads(run.config_json.read_text())
        facts |= {"variant": PLANTED, "command": PLANTED, "group": PLANTED, "versions": {PLANTED: PLANTED}}
        facts["config"] |= {"variant": PLANTED, "description": PLANTED, "project_id": SECRET}
        run.config_json.write_text(json.dumps(facts))
        head, *rows = run.metrics_csv.read_text().split("\n")
        rows = [row + ",1" if row else row for row in rows]
        run.metrics_csv.write_text("\n".join([f"{head},{PLANTED.replace(',', ';')}", *rows]))
        run.report.write_text(f"# {PLANTED}")
        (folder / ".env").write_text(SECRET)
        (folder / "secret.txt").write_text(SECRET)
        (run.videos / "epoch=9.mp4").symlink_to(folder / "secret.txt")
        yield run


def test_planted_text_is_only_text(planted):
    each = Runs().look_into(planted.id)
    for page in (runs_table(Runs().page()), overview(each), compare([each, each]), config(each)):
        assert "<img" not in page and "<script" not in page and "${" not in page and "{{" not in page
        assert "&lt;img" in page
    (planted.path / "report.md").unlink()
    (planted.path / "report.md").symlink_to(planted.path.parent / "secret.txt")
    assert report_text(planted) == ""


def probes(run, served):
    """Ways people have got at files of such servers."""
    root = run.path.parent
    files = [root / ".env", root / "secret.txt", run.config_json, run.videos / "epoch=9.mp4"]
    files += [run.metrics_csv, run.run_log, "/etc/passwd", "/proc/self/environ", "/etc/hostname"]
    for file in map(str, files):
        up = f"{served}/{'../' * 12}{file.lstrip('/')}"
        for name in (file, quote(file, safe=""), quote(quote(file, safe=""), safe=""), up, quote(up, safe="")):
            yield f"/gradio_api/file={name}"
        yield f"/file={file}"
        yield f"/gradio_api/file/{file.lstrip('/')}"
        yield f"/static/{'../' * 10}{file.lstrip('/')}"
        yield f"/assets/{'..%2f' * 10}{quote(file.lstrip('/'), safe='')}"
        yield f"/gradio_api/file={'%2e%2e/' * 12}{file.lstrip('/')}"
        yield f"/gradio_api/file=file://{file}"
        yield f"/gradio_api/file=\\\\localhost{file}"
        yield f"/gradio_api/file={file}%00.mp4"
        yield f"/gradio_api/proxy=file://{file}"


def test_no_file_but_those_lent_is_given_away(planted):
    words = (SECRET.encode(), b"root:", b"PATH=", b"train/clock")
    with serving() as (inspector, url):
        lent, host = inspector.folder / "episode-0.mp4", url.removeprefix("http://")
        lent.write_bytes(b"film")
        asked = list(probes(planted, inspector.folder))
        assert len(asked) >= 60 and get(host, f"/gradio_api/file={lent}") == (200, b"film")
        leaked = [(path, found) for path in asked if any(word in (found := get(host, path))[1] for word in words)]
        assert leaked == []
        assert host.startswith("127.0.0.1:") and inspector.demo.share is False
        assert inspector.demo.allowed_paths == [str(inspector.folder)]


def get(host, path):
    connection = http.client.HTTPConnection(host, timeout=60)  # sends the path as it is, dots and all
    connection.request("GET", path)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def ask(host, method, path, body=None, **headers):
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    for name, value in {"Host": host, "Content-Length": str(len(body or b"")), **headers}.items():
        connection.putheader(name, value)
    connection.endheaders(body)
    answer = connection.getresponse()
    found = answer.status, answer.read(), dict(answer.getheaders())
    connection.close()
    return found


def test_a_running_inspector_refuses_them_and_stores_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    with serving() as (inspector, url):
        own = url.removeprefix("http://")
        port = own.partition(":")[2]
        assert ask(own, "GET", "/config")[0] == 200
        for path in ("/", "/config", "/gradio_api/queue/data?session_hash=x", "/gradio_api/startup-events"):
            assert ask(own, "GET", path, Host=f"evil.com:{port}")[0] == 403
        status, _, headers = ask(own, "POST", "/gradio_api/queue/join", b"{}", Origin=f"http://evil.com:{port}")
        assert status == 403 and not any("access-control" in name.lower() for name in headers)
        form = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\nstored\r\n--x--\r\n'
        kind = {"Content-Type": "multipart/form-data; boundary=x"}
        for origin in ({}, {"Origin": url}, {"Origin": "http://evil.com"}):
            assert ask(own, "POST", "/gradio_api/upload", form, **kind, **origin)[0] == 403
        assert not [path for path in inspector.folder.rglob("*") if path.is_file()]
        preflight = {"Origin": "http://evil.com", "Access-Control-Request-Method": "POST"}
        assert ask(own, "OPTIONS", "/gradio_api/queue/join", **preflight)[0] == 403
    assert not inspector.folder.exists()


@pytest.mark.browser
@pytest.mark.slow
def test_no_planted_script_runs(planted):
    planted.report.unlink(missing_ok=True)
    planted.report.write_text(f"# {PLANTED}\n\n![x](http://evil.example/x.png) [x](http://evil.example)\n\n{PLANTED}")
    with chromium() as browser, serving(planted.id) as (_, url):
        page = Page(browser, url)
        for tab in ("Overview", "Runs", "Compare", "Videos", "Config", "Report"):
            page.tab(tab)
            page.page.wait_for_timeout(600)  # time for a script to run, were there one
        assert "<img src=x" in page.page.locator("#report article").inner_text()
        assert page.page.locator("#report :is(img, a, script)").count() == 0
        page.tab("Overview")
        assert "<img src=x" in page.page.locator("#overview h2").inner_text()
        assert page.page.locator("#overview img, #runs img, #model script").count() == 0
        assert page.wrong == []
