"""report.md as a page. A run folder may come from anywhere: its HTML, pictures and links are not passed on.

A link shows its address as text only: browsers look up the names of links on their own.
"""

from collections.abc import Sequence
from html import escape

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from stride.inspector.markup import Markup, card, note, tag
from stride.inspector.runs import RunFacts
from stride.runstore import run_files
from stride.runstore.run_dir import RunDir
from stride.utils.user_error import UserError

MOST_TEXT = 60_000  # characters; beyond is left out
BRACES = str.maketrans({"{": "&#123;", "}": "&#125;", "`": "&#96;"})  # Gradio's templates read those


class Renderer(RendererHTML):
    """Shows all HTML as text."""

    def html_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f"<p>{escape(tokens[idx].content.strip())}</p>"

    def html_inline(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return escape(tokens[idx].content)

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return ""

    def link_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return '<span class="link-text" title="{}">'.format(escape(str(tokens[idx].attrs.get("href", ""))))

    def link_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "</span>"

    def table_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return '<div class="scroll"><table>'

    def table_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "</table></div>"


def rendered(text: str) -> Markup:
    parser = MarkdownIt("commonmark", {"html": True}, renderer_cls=Renderer).enable("table")
    page: str = parser.render(text[:MOST_TEXT])
    return tag("article", Markup(page.translate(BRACES)), class_="report")


def report(run: RunFacts) -> Markup:
    """The complete tab."""
    text = report_text(run.run)
    if text:
        return tag("section", rendered(text), class_="card")
    return card("Report", note(f"no report yet: {run.brief.reason or 'it is written when the run ends'}"))


def report_text(run: RunDir) -> str:
    """The present text of report.md, "" where there is none; a link is not followed."""
    try:
        content = run_files.read_bytes(run.report) if run_files.exists(run.report) else b""
    except UserError:
        return ""
    return content.decode("utf-8", "replace")[:MOST_TEXT]
