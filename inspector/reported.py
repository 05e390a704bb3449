"""What a run said of itself: report.md, rendered."""

from stride.inspector.markdown import MOST_TEXT, rendered
from stride.inspector.markup import Markup, card, note, tag
from stride.inspector.runs import RunFacts
from stride.runstore import run_files
from stride.runstore.run_dir import RunDir
from stride.utils.user_error import UserError


def report(each: RunFacts) -> Markup:
    """The whole room."""
    text = report_text(each.run)
    if text:
        return tag("section", rendered(text), class_="card")
    why = each.brief.reason or "it is written when a run ends"
    return card("Report", note(f"no report yet: {why}"))


def report_text(run: RunDir) -> str:
    """report.md as it stands, "" where there is none; a link is not followed."""
    try:
        text = run_files.read_bytes(run.report) if run_files.exists(run.report) else b""
        return text.decode("utf-8", "replace")[:MOST_TEXT]
    except UserError:
        return ""
