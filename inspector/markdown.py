"""Makes the tab Report from report.md, without its HTML, pictures and links, because a run may come from anywhere.

A link becomes text with its address as tooltip: for a real link, a browser may look up the host even without a click.
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

MAX_TEXT = 60_000  # characters of a report; the rest is left out
BRACES = str.maketrans({"{": "&#123;", "}": "&#125;", "`": "&#96;"})  # Gradio's templates would interpret these


class Renderer(RendererHTML):
    """A renderer that shows HTML in Markdown as text, and leaves out pictures and links."""

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
    """Return Markdown as safe HTML."""
    parser = MarkdownIt("commonmark", {"html": True}, renderer_cls=Renderer).enable("table")
    page: str = parser.render(text[:MAX_TEXT])
    return tag("article", Markup(page.translate(BRACES)), class_="report")


def report(run: RunFacts) -> Markup:
    """Return the complete tab."""
    text = report_text(run.run)
    if text:
        return tag("section", rendered(text), class_="card")
    return card("Report", note(f"no report yet: {run.brief.reason or 'it is written when the run ends'}"))


def report_text(run: RunDir) -> str:
    """Return the text of report.md, "" if it is missing or unreadable; a symbolic link is not followed."""
    try:
        content = run_files.read_bytes(run.report) if run_files.exists(run.report) else b""
    except UserError:
        return ""
    return content.decode("utf-8", "replace")[:MAX_TEXT]
