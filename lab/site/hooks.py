"""Hooks that MkDocs calls: they expand nav, add pages from outside docs/, correct links, set equations, write llms.txt.

They import nothing of Stride, so a build of the site takes seconds and needs no torch.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = {  # page of the site -> file of the repository
    "repository/changelog.md": "CHANGELOG.md",
    "repository/contributing.md": "CONTRIBUTING.md",
    "repository/laboratory.md": "lab/README.md",
    "repository/security.md": "SECURITY.md",
}
SAME = {"README.md": "index.md"}  # file of the repository -> page with the same contents
FENCE = re.compile(r"^( *```.*?^ *```\s*?$)", re.M | re.S)
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?([^)]*)\)")
MATH = re.compile(r"^```math\n(.*?)^```$", re.M | re.S)
# code in a table: GitHub wants its bars escaped, Python-Markdown does not
CELL = re.compile(r"(?<=[ (])`[^`\n]*\\\|[^`\n]*`")
COMMENT = re.compile(r"^<!--.*?-->\n", re.M | re.S)
LOADED = re.compile(
    r"""<(?:script|img|iframe|source|link(?![^>]*\brel=["']?(?:canonical|prev|next)))\b[^>]*?"""
    r"""(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)"""
)
IMPORTED = re.compile(r"""(?:@import|url\()\s*["']?((?:https?:)?//[^"')\s]+)""")
SENTENCE = re.compile(r"(?<=\.)(?<! al\.)\s")
texts: dict[str, str] = {}  # page -> its Markdown, for llms.txt


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace the patterns of nav, such as learners/*.md, by the pages that nav does not name elsewhere."""
    assert config.nav
    pages = [path.relative_to(config.docs_dir).as_posix() for path in Path(config.docs_dir).rglob("*.md")]
    pages += [*OUTSIDE, *notebooks()]
    named = {name for name in leaves(config.nav) if "*" not in name}
    config.nav = expand(config.nav, sorted(set(pages) - named))
    texts.clear()
    return config


def leaves(nav: list[Any]) -> Iterator[str]:
    """Yield the pages and patterns of a nested nav."""
    for item in nav:
        for entry in item.values() if isinstance(item, dict) else (item,):
            yield from leaves(entry) if isinstance(entry, list) else (entry,)


def expand(nav: list[Any], pages: list[str]) -> list[Any]:
    """Return nav with patterns replaced by matching pages, which are removed from `pages`: the first pattern wins."""
    expanded: list[Any] = []
    for item in nav:
        if isinstance(item, dict):
            expanded += [
                {title: expand(part, pages) if isinstance(part, list) else part for title, part in item.items()}
            ]
        elif "*" in item:
            pattern = re.compile(re.escape(item).replace(r"\*", "[^/]*"))
            matches = [page for page in pages if pattern.fullmatch(page)]
            pages[:] = [page for page in pages if page not in matches]
            expanded += matches
        else:
            expanded.append(item)
    return expanded


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages whose sources are not Markdown in docs/."""
    for page, source in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for page, path in notebooks().items():
        files.append(File.generated(config, page, content=notebook_text(path)))
    return files


def notebooks() -> dict[str, Path]:
    return {f"notebooks/{path.stem}.md": path for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))}


def notebook_text(path: Path) -> str:
    """Return a notebook as Markdown: its cells and their outputs as text."""
    blocks = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        blocks.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", ()):
            lines = output.get("text") or output.get("data", {}).get("text/plain") or [output.get("evalue", "")]
            blocks.append(f"```text\n{''.join(lines).rstrip()}\n```")
    title, _, rest = "\n\n".join(blocks).partition("\n")
    title = title.replace("# ", "# Notebook: ", 1)
    return f"{title}\n\nThe notebook [{path.name}]({path.name}) with what its cells printed.\n{rest}\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to files into links to pages and equations into MathML, and remove the marks of generated parts."""
    page_uri = page.file.src_uri
    boosts = config.extra["search_boosts"]
    page.meta["search"] = {"boost": boosts.get(page_uri) or boosts.get(dirname(page_uri), 1)}
    source = OUTSIDE.get(page_uri, f"docs/{page_uri}")

    def target(match: re.Match[str]) -> str:
        image, label, path, anchor, rest = (text or "" for text in match.groups())
        if not path or "://" in path or path.startswith("mailto:"):
            return match[0]
        uri = site_uri(normpath(join(dirname(source), path)), files)
        anchor = "" if uri in SAME.values() else anchor
        return f"{image}[{label}]({relpath(uri, dirname(page_uri) or '.')}{anchor}{rest})" if uri else label

    text = outside_fences(COMMENT.sub("", markdown), lambda part: LINK.sub(target, part))
    texts[page_uri] = text
    text = CELL.sub(lambda match: match[0].replace("\\|", "|"), text)
    return MATH.sub(lambda match: f'<div class="equation">{convert(match[1].strip(), display="block")}</div>', text)


def outside_fences(text: str, change: Callable[[str], str]) -> str:
    """Change the text outside of code blocks."""
    parts = FENCE.split(text)
    return "".join(part if index % 2 else change(part) for index, part in enumerate(parts))


def site_uri(path: str, files: Files) -> str:
    """Return the site's page or file for a path of the repository; "" if it has none.

    PluginError if the path does not exist in the repository.
    """
    for uri, source in OUTSIDE.items():
        if path == source:
            return uri
    if path in SAME:
        return SAME[path]
    uri = path.removeprefix("docs/")
    if path.startswith("docs/") and files.get_file_from_path(uri):
        return uri
    if not (ROOT / path).exists():
        raise PluginError(f"a link leads to {path}, which is not in the repository")
    return ""


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> None:
    config.extra["sections"] = nav.items


def on_post_build(config: MkDocsConfig) -> None:
    """Write each page's Markdown and llms.txt; PluginError if a page loads something from another site."""
    folder = Path(config.site_dir)
    for uri, text in texts.items():
        (folder / uri).parent.mkdir(parents=True, exist_ok=True)
        (folder / uri).write_text(text, encoding="utf-8")
    lines = [f"# {config.site_name}", f"> {config.site_description}"]
    for section in config.extra.pop("sections"):
        lines += [f"## {section.title}", "\n".join(listed(section))]
    (folder / "llms.txt").write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    for path in sorted(folder.rglob("*.html")):
        if elsewhere := LOADED.search(path.read_text(encoding="utf-8")):
            raise PluginError(f"{path.name} loads {elsewhere[1]}")
    for path in sorted(folder.rglob("*.css")):
        if elsewhere := IMPORTED.search(path.read_text(encoding="utf-8")):
            raise PluginError(f"{path.name} loads {elsewhere[1]}")


def listed(item: Any) -> Iterator[str]:
    """Yield a line for each page of a section: title, path of its Markdown, first sentence."""
    if isinstance(item, Section):
        for child in item.children:
            yield from listed(child)
    else:
        yield f"- [{item.title}]({item.file.src_uri}): {first_words(texts[item.file.src_uri])}"


def first_words(text: str) -> str:
    """Return the first sentence of text below the title, without lists, tables and quotes; "" if there is none."""
    for block in text.split("\n\n")[1:]:
        if block[:1] not in "#<![|`>-" and not block.startswith("Generated by"):
            sentence = " ".join(LINK.sub(r"\2", block).split())
            return SENTENCE.split(sentence)[0]
    return ""
