"""What people say of a run: tags and a note, in its labels.json. Training neither reads nor writes it. No torch."""

import re
from pathlib import Path
from typing import NamedTuple

from stride.runstore import run_files
from stride.runstore.run_facts import text
from stride.utils.user_error import UserError

NAME = "labels.json"
TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
MOST_TAGS, LONGEST_NOTE = 32, 2000


class Labels(NamedTuple):
    """In the order of the alphabet, and one line."""

    tags: tuple[str, ...] = ()
    note: str = ""


def check_tag(tag: str) -> str:
    if not TAG.fullmatch(tag):
        raise UserError(f"{tag[:60]!r} is no tag: at most 40 letters, digits, '.', '_' and '-'")
    return tag


def read_labels(folder: Path) -> Labels:
    """Of the run in this folder, none where nobody said anything; UserError where the file is damaged."""
    path = folder / NAME
    if not run_files.exists(path):
        return Labels()
    found = run_files.read_json(path)
    tags, note = (found.get("tags"), found.get("note")) if isinstance(found, dict) else (None, None)
    if not isinstance(tags, list) or not all(isinstance(tag, str) and TAG.fullmatch(tag) for tag in tags):
        raise UserError(f"{path} is damaged: tags is not a list of words")
    if not isinstance(note, str) or not text(note):
        raise UserError(f"{path} is damaged: note is not a line of text")
    return Labels(tuple(sorted({*tags})), note)


def write_labels(folder: Path, labels: Labels) -> None:
    """Replace them in one instant; UserError for more than a line has room for."""
    if len(labels.tags) > MOST_TAGS:
        raise UserError(f"a run takes at most {MOST_TAGS} tags, not {len(labels.tags)}")
    if len(labels.note) > LONGEST_NOTE or not labels.note.isprintable():
        raise UserError(f"a note is one printable line of at most {LONGEST_NOTE:,} characters")
    try:
        run_files.write_json(folder / NAME, {"tags": sorted({*labels.tags}), "note": labels.note})
    except OSError as error:
        raise UserError(f"cannot write in {folder}: {error.strerror}") from error
