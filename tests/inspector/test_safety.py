"""What a running inspector gives away, and what planted text does, also that of a report: nothing."""

import json
import re

import pytest
from gallery import gallery_copy
from inspector_browsing import opened, serving

from lab.faults.door import SECRET
from stride.config.diff import differing_rows
from stride.inspector.compare import compare
from stride.inspector.markdown import MAX_TEXT, rendered, report
from stride.inspector.overview import environment, overview
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


# ---- a report

SCRIPT, PICTURE = "<script>alert(1)</script>", "<img src=x onerror=alert(1)>"
HOSTILE = [
    SCRIPT, PICTURE, "![x](http://evil.example/x.png)", "![x](javascript:alert(1))", "[x](javascript:alert(1))",
    "[x](http://evil.example/)", "<http://evil.example/>", '[x](http://evil.example/ "a\\" onmouseover=alert(1)")',
    "a <svg onload=alert(1)> b", "<details open ontoggle=alert(1)><summary>x</summary>",
    "<details><summary><b onclick=alert(1)>x</b></summary>", "</section></details></div>",
    "${alert(1)} {{alert(1)}} `x`", f"| a |\n|---|\n| {PICTURE} |", f"```html\n{SCRIPT}\n```",
    '<a href="//evil.example">x</a>', "<style>* { background: url(http://evil.example) }</style>",
    "<iframe src=http://evil.example></iframe>", "[a]: http://evil.example\n\n[a] ![a]",
    "&lt;script&gt; &#60;img src=x&#62;",
]  # fmt: skip
ALLOWED = {
    "article", "p", "details", "summary", "h1", "h2", "h3", "table", "thead", "tbody", "tr", "th", "td", "div", "pre",
    "code", "span", "strong", "em", "ul", "ol", "li", "hr", "blockquote", "br",
}  # fmt: skip


@pytest.mark.parametrize("text", [*HOSTILE, "\n\n".join(HOSTILE)])
def test_a_hostile_report_is_only_text(text):
    page = rendered(text)
    tags = re.findall(r"<(/?)([A-Za-z][A-Za-z0-9]*)((?:[^>\"]|\"[^\"]*\")*)>", page)
    assert {name for _, name, _ in tags} <= ALLOWED
    for _, _, attributes in tags:
        bare = re.sub(r'"[^"]*"', '""', attributes)
        assert set(re.findall(r"([\w-]+)=", bare)) <= {"class", "title", "start", "style"}
    assert not re.search(r"[{}`]", page) and page.count("<details") == page.count("</details")
    assert page.count("<div") == page.count("</div") and page.endswith("</article>")


@pytest.mark.parametrize("piece", ["> ", "[", "**", "<", "|a", "[a]("])
def test_a_report_of_one_sign_is_bounded(piece):
    assert len(rendered(piece * (MAX_TEXT // 8))) < 20 * MAX_TEXT


def test_our_own_report_is_a_page_and_a_link_is_not_read(root):
    run = gallery_copy("other", root)
    facts = Runs().look_into(run.id)
    page = report(facts)
    assert "<h1>CartPole-v1:ppo</h1>" in page and "<strong>Not solved" in page and page.count("<table>") >= 3
    assert "**" not in page and "| --- |" not in page
    rows = {key: (value, default) for key, value, default in differing_rows(facts.facts)}
    assert rows["gamma"] == ("0.9", "0.99") and "lin_0.001" in config(facts)
    assert "Different from the defaults" in config(facts) and facts.facts["versions"]["torch"] in environment(facts)
    run.report.rename(root / "elsewhere.md")
    run.report.symlink_to(root / "elsewhere.md")
    assert "no report yet" in report(Runs().look_into(run.id))
