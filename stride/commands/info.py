"""Print what a report of a problem needs: versions and processor, and of a run its config and how it ended.

Lines that look like a secret, a path, an address or a person are left out. Read the rest before you post it.
"""

import platform
from collections.abc import Iterator
from importlib.metadata import version

from stride.commands.usage import parser_of
from stride.publishing.own_secrets import find_own
from stride.publishing.scanner import scan
from stride.runstore.run_brief import head_of
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import mapping
from stride.utils import entry
from stride.utils.provenance import git_hash, processor, provenance, versions
from stride.utils.user_error import printable

FREE_TEXT_LINES = ("run", "changes", "failure")  # may contain text that a person wrote, so they are scanned


def main(argv: list[str]) -> int:
    """Print the lines; return the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("run", metavar="RUN", nargs="?", help="also this run: @last, @best, an id, a folder")
    run = parser.parse_args(argv).run
    lines = [*machine_lines(), *(run_lines(RunDir.find(run)) if run else ())]
    secrets = find_own()
    for name, text in lines:
        findings = scan(name, text, secrets) if name in FREE_TEXT_LINES else ()
        shown = f"left out: it looks like a {findings[0].kind}" if findings else text
        print(printable(f"{name:<11} {shown}"))
    return 0


def machine_lines() -> Iterator[tuple[str, str]]:
    """Yield (name, text) of versions and processor."""
    host = provenance()["host"]
    yield "stride", f"{version('stride-rl')}, commit {commit(git_hash())}"
    yield "system", f"{host['system']}, {platform.release()}"
    yield "processor", f"{processor()}, {host['cpus']} cores"
    yield "versions", listed(versions())


def run_lines(run: RunDir) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of a run's config and outcome; its versions if they differ from today's."""
    brief, facts = head_of(run.path), run.facts()
    yield "run", f"{brief.variant}, seed {brief.seed}, {brief.status}" + (f", {brief.result}" if brief.result else "")
    yield "changes", brief.changes or "none"
    yield "config", f"hash {brief.settings or 'unknown'}"
    yield "engine", f"{facts.get('engine', 'unknown')}, {facts.get('env_backend', 'unknown')} environments"
    yield "commit", commit(brief.commit)
    if brief.reason:
        yield "failure", brief.reason
    before = {name: str(text) for name, text in mapping(facts.get("versions")).items()}
    if before != versions():
        yield "then", listed(before)


def commit(text: str) -> str:
    """Return a git commit's first ten digits, and whether the checkout was changed since (there is a `+`)."""
    code, changed, _ = text.partition("+")
    return code[:10] + (", changed since" if changed else "") if code else "unknown"


def listed(packages: dict[str, str]) -> str:
    return ", ".join(f"{name} {text or 'not installed'}" for name, text in packages.items())


if __name__ == "__main__":
    entry.run(main)
