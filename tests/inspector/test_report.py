"""report.md as a page: what it shows of ours, and what it makes of a hostile one: text."""

import re

import pytest
from gallery import gallery_copy

from stride.config.diff import differing_rows
from stride.inspector.markdown import MOST_TEXT, rendered, report
from stride.inspector.played import config
from stride.inspector.runs import Runs

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


@pytest.mark.parametrize("piece", ["> ", "* ", "[", "**", "`", "<", "|a", "[a](", "&", "- \n"])
def test_a_report_of_one_sign_is_bounded(piece):
    assert len(rendered(piece * (MOST_TEXT // 8))) < 20 * MOST_TEXT


def test_our_own_report_is_a_page(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    run = gallery_copy("other", tmp_path)
    facts = Runs().look_into(run.id)
    page = report(facts)
    assert "<h1>CartPole-v1:ppo</h1>" in page and "<strong>Not solved" in page and page.count("<table>") >= 3
    assert "**" not in page and "| --- |" not in page
    rows = {key: (value, default) for key, value, default in differing_rows(facts.facts)}
    assert rows["gamma"] == ("0.9", "0.99") and "lin_0.001" in config(facts)
    run.report.unlink()
    assert "no report yet" in report(Runs().look_into(run.id))
