"""Parse how a person names a run or a group of runs. Only the text is read; nothing is looked up. No torch.

    @last                    the newest run
    @best[:ENV[:VARIANT]]    the one with the best evaluation
    20260101-120000-Ca       an id, or its beginning
    runs/2026...             a folder
    group:NAME, group:@last  a group; @last-group is an older name of the latter
    hub:USER/REPO[@REVISION] a published run

RunDir.find, seed_group.find_group and publishing/hub_run.py then find the run.
"""

import os
from typing import Literal, NamedTuple

LAST, BEST = "@last", "@best"
HUB_PREFIX, GROUP_PREFIX = "hub:", "group:"


class Selector(NamedTuple):
    """The parts of a selector."""

    kind: Literal["last", "best", "id", "path", "group", "hub"]
    name: str
    """@best: the environment; group: its name or @last; hub: USER/REPO; otherwise the whole text"""
    detail: str = ""
    """@best: the variant; hub: the revision"""


def parse_selector(text: str) -> Selector:
    if text == "@last-group":
        return Selector("group", LAST)
    if text.startswith(GROUP_PREFIX):
        return Selector("group", text.removeprefix(GROUP_PREFIX))
    if text.startswith(HUB_PREFIX):
        repo, _, revision = text.removeprefix(HUB_PREFIX).partition("@")
        return Selector("hub", repo, revision)
    if text == BEST or text.startswith(f"{BEST}:"):
        env_id, _, variant = text.removeprefix(BEST).removeprefix(":").partition(":")
        return Selector("best", env_id, variant)
    if "/" in text or os.sep in text:
        return Selector("path", text)
    return Selector("last" if text == LAST else "id", text)


def names_group(text: str) -> bool:
    """Whether the text names a group rather than a run."""
    return parse_selector(text).kind == "group"


def names_published(text: str) -> bool:
    """Whether the text names a run on the Hub."""
    return parse_selector(text).kind == "hub"


def group_selectors(text: str) -> list[str]:
    """Return `group:A,group:B` as a list of selectors; `group:` may be omitted after the first."""
    group_names = [parse_selector(word.strip()).name for word in text.split(",") if word.strip()]
    return [f"{GROUP_PREFIX}{name}" for name in group_names]
