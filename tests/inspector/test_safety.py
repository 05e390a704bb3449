"""What a running inspector gives away, and what planted text does: nothing."""

import json
from urllib.parse import quote

import pytest
from gallery import gallery_copy
from inspector_browsing import opened, serving

from stride.inspector.compare import compare
from stride.inspector.markdown import report_text
from stride.inspector.overview import overview
from stride.inspector.played import config
from stride.inspector.runs import Runs
from stride.inspector.table import runs_table

SECRET = "sesame-4711"
PLANTED = "<img src=x onerror=alert(1)><script>alert(2)</script>${alert(3)}{{alert(4)}}\"'`"


@pytest.fixture(scope="module")
def planted(root):
    """A run whose every text is hostile, beside files nobody may read."""
    run = gallery_copy("ppo", root)
    facts = run.facts()
    facts |= {"variant": PLANTED, "command": PLANTED, "group": PLANTED, "versions": {PLANTED: PLANTED}}
    facts["config"] |= {"variant": PLANTED, "description": PLANTED, "project_id": SECRET}
    run.config_json.write_text(json.dumps(facts))
    head, *rows = run.metrics_csv.read_text().splitlines()
    run.metrics_csv.write_text("\n".join([f"{head},{PLANTED.replace(',', ';')}", *(f"{row},1" for row in rows), ""]))
    run.report.write_text(f"# {PLANTED}\n\n![x](http://evil.example/x.png) [x](http://evil.example)\n\n{PLANTED}")
    (root / ".env").write_text(SECRET)
    (root / "secret.txt").write_text(SECRET)
    (run.videos / "epoch=9.mp4").symlink_to(root / "secret.txt")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        yield run


def test_planted_text_is_only_text(planted):
    facts = Runs().look_into(planted.id)
    for page in (runs_table(Runs().page()), overview(facts), compare([facts, facts]), config(facts)):
        assert "<img" not in page and "<script" not in page and "${" not in page and "{{" not in page
        assert "&lt;img" in page


def test_a_report_that_is_a_link_is_not_read(tmp_path):
    run = gallery_copy("ppo", tmp_path)
    (tmp_path / "secret.txt").write_text(SECRET)
    run.report.unlink()
    run.report.symlink_to(tmp_path / "secret.txt")
    assert report_text(run) == ""


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


def test_no_file_but_those_lent_is_given_away(planted, ask):
    secrets = (SECRET.encode(), b"root:", b"PATH=", b"train/clock")
    with serving() as (inspector, url):
        film, host = inspector.folder / "episode-0.mp4", url.removeprefix("http://")
        film.write_bytes(b"film")
        paths = list(probes(planted, inspector.folder))
        assert len(paths) >= 60 and ask(host, "GET", f"/gradio_api/file={film}")[:2] == (200, b"film")
        answers = {path: ask(host, "GET", path)[1] for path in paths}
        assert [path for path, answer in answers.items() if any(word in answer for word in secrets)] == []
        assert host.startswith("127.0.0.1:") and inspector.demo.share is False
        assert inspector.demo.allowed_paths == [str(inspector.folder)]


def test_a_running_inspector_refuses_other_pages_and_stores_nothing(tmp_path, monkeypatch, ask):
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
def test_no_planted_script_runs(planted, browser):
    with serving(planted.id) as (_, url), opened(browser, url) as page:
        for tab in ("Overview", "Runs", "Compare", "Videos", "Config", "Report"):
            page.tab(tab)
            page.page.wait_for_timeout(600)  # time for a script to run, were there one
        page.expect(page.all("#report article")).to_contain_text("<img src=x")
        page.expect(page.all("#report :is(img, a, script)")).to_have_count(0)
        page.tab("Overview")
        page.expect(page.all("#overview h2")).to_contain_text("<img src=x")
        page.expect(page.all("#overview img, #runs img, #model script")).to_have_count(0)
