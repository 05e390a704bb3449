"""The documentation site builds without a warning, has all pages, loads nothing from elsewhere and finds answers."""

import re
import subprocess
import sys

import pytest
from inspector_browsing import chromium

from lab.evidence import public
from lab.evidence.runs import Store
from lab.site import learners, pictures
from lab.site.blocks import filled
from lab.site.commands import parser_of_command
from stride.commands.completion import actions_of
from stride.commands.usage import COMMANDS
from stride.utils.curve import NO_OVERLAY
from stride.utils.provenance import PROJECT
from stride.utils.user_error import UserError

NAMES = {command.name: command for command in COMMANDS}
SHELL, INLINE = re.compile(r"^```sh\n(.*?)^```", re.M | re.S), re.compile(r"`(stride [^`\n]+)`")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site; a broken link or anchor is a warning, which --strict makes an error."""
    pytest.importorskip("material", reason="needs MkDocs: pip install 'stride-rl[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_every_page_is_there_for_people_and_for_programs(site):
    sources = [path.relative_to(PROJECT / "docs") for path in (PROJECT / "docs").rglob("*.md")]
    listed = (site / "llms.txt").read_text()
    for source in sources:
        assert (site / source).is_file() and (site / source.with_suffix(".html")).is_file()
        assert f"]({source})" in listed, source
    assert "<!-- " not in (site / "learners" / "ppo.md").read_text()
    assert "<math" in (site / "learners" / "ppo.html").read_text()


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site):
    loaded = r"""<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=["']?(?:https?:)?//[^>]*>"""
    for path in site.rglob("*.html"):
        tags = [tag for tag in re.findall(loaded, path.read_text()) if 'rel="canonical"' not in tag]
        assert tags == [], path


@pytest.mark.parametrize(
    ("tag", "elsewhere"),
    [
        ('<script src="https://a.b/c.js">', True), ("<link rel=stylesheet href='//a.b/c.css'>", True),
        ("<img alt=x src=https://a.b/c.png>", True), ('<link rel="canonical" href="http://a.b">', False),
        ('<a href="https://a.b">', False), ('<script src="assets/a.js">', False),
    ],
)  # fmt: skip
def test_a_build_refuses_what_is_loaded_from_elsewhere(tag, elsewhere):
    hooks = pytest.importorskip("lab.site.hooks", reason="needs MkDocs", exc_type=ImportError)
    assert bool(hooks.LOADED.search(tag)) == elsewhere


@pytest.mark.slow
@pytest.mark.browser
def test_the_search_finds_answers_without_a_server(site, monkeypatch):
    monkeypatch.setattr(pictures, "SITE", site)
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        results = dict(pictures.ranks(page))
        assert {url.partition(":")[0] for url in asked} <= {"file", "blob", "data"}
    assert {question: rank for question, rank in results.items() if not 0 < rank <= pictures.FIRST} == {}


def test_a_page_follows_its_evidence_and_its_code(tmp_path, monkeypatch):
    """Another result, a missing one, another line of code: each changes what the page says."""
    row, code = "<!-- generated: reached pqn -->\n<!-- end -->", "<!-- generated: code a.py f -->\n<!-- end -->"
    assert re.search(r"[1-9]\d* of \d+ ", filled(row))
    monkeypatch.setattr(learners, "RESULTS", tmp_path)
    monkeypatch.setattr(learners, "Store", lambda: Store(tmp_path / "runs", tmp_path / "evidence"))
    assert "not measured" in filled(row)
    text = (PROJECT / "docs" / "results" / "CartPole-v1-pqn.json").read_text()
    (tmp_path / "CartPole-v1-pqn.json").write_text(text.replace('"goal": 475.0', '"goal": 499.0'))
    assert "| 499 | " in filled(row)
    monkeypatch.setattr(learners, "PROJECT", tmp_path)
    (tmp_path / "a.py").write_text('def f():\n    """Doc."""\n    return 1\n')
    assert "def f():\n    return 1\n```" in filled(code)
    with pytest.raises(UserError, match=r"a\.py has no g"):
        filled(code.replace(" f ", " g "))
    with pytest.raises(UserError, match="no such maker"):
        filled(row.replace("reached", "reacht"))


def test_published_results_are_drawn_as_far_as_a_curve_goes():
    """In our env steps, of which one may be several of theirs; the first where a curve ends before it."""
    sac = public.overlay("HalfCheetah-v5", "sac", 120_000)
    assert [(point.x, point.y) for point in sac.lines[0].points] == [(50_000, 4212.3), (100_000, 6156.3)]
    assert [band.x for band in sac.bands["fourthband"].high] == [50_000, 100_000]
    assert "SimbaV2: SAC on HalfCheetah-v4, mean of 10 seeds" in sac.labels[0]
    twice = public.overlay("dm_control/cartpole-swingup", "sac", 10_000, repeat=2)
    assert [point.x for point in twice.lines[0].points] == [50_000]
    assert public.overlay("CartPole-v1", "sac", 10_000) == public.overlay("Hopper-v5", "dqn", 10_000) == NO_OVERLAY
    text = (PROJECT / "docs" / "results" / "models" / "dm_control-cartpole-swingup-sac.svg").read_text()
    assert twice.labels[0] in text


FIGURE = re.compile(
    r"(?<![\w-])\d+(?:[.,]\d+)* ?(?:s|ms|us|ns|seconds|minutes|steps/s|times|million|%|[GM]B|[MG])(?!\w)"
)
SOURCE = re.compile(r"\]\([^)]*\.(?:json|svg|md#measured)\)|`python -m lab\.|generated|by hand|lab/bench/")


@pytest.mark.parametrize("path", sorted((PROJECT / "docs").rglob("*.md")), ids=lambda path: path.stem)
def test_measured_figures_name_their_source(path):
    """A section with three figures or more has a file, the command that measured them, or says `by hand`."""
    if path.parent.name in ("decisions", "reference", "tutorials"):
        return
    for section in re.split(r"^(?=##+ )", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S), flags=re.M):
        figures = FIGURE.findall(re.sub(r"`[^`]*`", "", section))
        assert len(figures) < 3 or SOURCE.search(section), section[:300]


@pytest.mark.parametrize("path", sorted((PROJECT / "docs").rglob("*.md")), ids=lambda path: path.stem)
def test_stride_commands_of_a_page_exist(path):
    text = path.read_text()
    lines = [line for block in SHELL.findall(text) for line in block.splitlines()]
    for line in [*lines, *INLINE.findall(text)]:
        if not line.startswith("stride "):
            continue
        name, *words = re.split(r"  +| #", line.removeprefix("stride "))[0].split()
        if not re.fullmatch(r"[a-z][a-z-]+", name):
            continue
        assert name in NAMES, line
        actions = actions_of(parser_of_command(NAMES[name]))
        flags = {flag for action in actions for flag in action.option_strings}
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= flags, line
