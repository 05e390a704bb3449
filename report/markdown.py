"""Pieces of Markdown pages: tables, and commands to paste into a shell."""

from collections.abc import Iterable, Sequence


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    """A cell is one line, and a pipe in it ends none."""
    return " ".join(text.replace("|", "\\|").split())


def shell_commands(commands: Iterable[tuple[str, str]]) -> str:
    """Each below its title; empty ones are left out."""
    return "\n\n".join(f"{title}:\n\n```sh\n{command}\n```" for title, command in commands if command)
