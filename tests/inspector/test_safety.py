"""What a running inspector gives away, and what planted text does: nothing."""

import http.client
import json

import pytest
from gallery import gallery_copy
from inspector_browsing import opened, serving

from lab.faults.door import SECRET, TELLING, Probe, answered, ask, closed, files, others
from stride.inspector.compare import compare
from stride.inspector.markdown import report_text
from stride.inspector.overview import overview
from stride.inspector.played import config
from stride.inspector.runs import Runs
from stride.inspector.table import runs_table

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
    for name in (".env", "secret.txt"):
        (root / name).write_text(SECRET)
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


def test_only_lent_files_are_given_away_and_only_to_its_own_page(planted, root):
    """Of others nothing is stored either; `python -m lab.faults door` asks the same of a process of its own."""
    with serving() as (inspector, url):
        film, host = inspector.folder / "episode-0.mp4", url.removeprefix("http://")
        film.write_bytes(b"film")

        def get(path):
            return ask(host, Probe("own", "GET", path, {"Host": host}))

        probes = list(files(planted, root / "secret.txt", inspector.folder.parent, host))
        assert len(probes) >= 60 and get(f"/gradio_api/file={film}") == (200, b"film")
        assert not any(word in get(f"/gradio_api/file={planted.videos}/epoch=9.mp4")[1] for word in TELLING)
        probes += [*others(host), *closed(host)][::9]  # all of them: test_guard.py
        assert [(probe.path, why) for probe in probes if (why := answered(host, probe))] == []
        assert get("/config")[0] == 200 and host.startswith("127.0.0.1:") and inspector.demo.share is False
        assert inspector.demo.allowed_paths == [str(inspector.folder)]
        assert [path for path in inspector.folder.rglob("*") if path.is_file()] == [film]
        connection = http.client.HTTPConnection(host, timeout=60)
        connection.request("POST", "/gradio_api/queue/join", b"{}", {"Origin": "http://evil.com"})
        answer = connection.getresponse()
        connection.close()
        assert answer.status == 403 and not any("access-control" in name.lower() for name in answer.headers)
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
