"""report.md as a page. A run folder may come from anywhere: no HTML of its own, no picture, no address to go to.

A link shows where it leads, but is none: browsers look up the names of links on their own.
"""

import re
from collections.abc import Sequence
from html import escape

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from stride.inspector.markup import Markup, tag

MOST_TEXT = 60_000  # characters; beyond is left out
FOLD = re.compile(r"<details><summary>([^<>&]{1,200})</summary>")
BRACES = str.maketrans({"{": "&#123;", "}": "&#125;", "`": "&#96;"})  # Gradio's templates read those


class Renderer(RendererHTML):
    """Everything as text but the fold that report.md itself uses."""

    folds = 0

    def html_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        text = tokens[idx].content.strip()
        if found := FOLD.fullmatch(text):
            self.folds += 1
            return f"<details><summary>{found[1]}</summary>"
        if text == "</details>" and self.folds:
            self.folds -= 1
            return "</details>"
        return f"<p>{escape(text)}</p>"

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
    renderer = parser.renderer
    assert isinstance(renderer, Renderer)
    page = parser.render(text[:MOST_TEXT])
    page += "</details>" * renderer.folds
    return tag("article", Markup(page.translate(BRACES)), class_="report")
