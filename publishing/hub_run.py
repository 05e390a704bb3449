"""Downloads a published run from the Hugging Face Hub and checks everything in it, because anybody can publish one.

Only known file names, limited sizes, plain JSON and tensors are accepted; code that it names is imported only if the
user trusts it. agents/trained/loading.py then builds the policy and compares it with the weights.
"""

import itertools
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from stride.config.loader import from_plain
from stride.config.plugins import NOBODY, Trust, check_names, is_dotted
from stride.config.schema import Config
from stride.config.sizes import check_foreign, check_whole_numbers
from stride.envs_gym.wrappers.registry import WRAPPERS
from stride.publishing.hub_client import Listed, check_repo, hub_errors, retried
from stride.publishing.hub_download import COMMIT, find_commit, list_commit, read_file
from stride.publishing.weights_file import read_weights
from stride.runstore.select import HUB_PREFIX, parse_selector
from stride.utils.user_error import UserError

WEIGHTS, FACTS = "model.safetensors", "config.json"
NEEDED_FILES = {WEIGHTS: 512 << 20, FACTS: 1 << 20}  # name -> largest size in bytes
PUBLISHED_FILES = {*NEEDED_FILES, "README.md", "results.json", "metrics.csv", "replay.mp4", "curve.svg"}
OTHER_FILES = {".gitattributes", "LICENSE"}  # files that the Hub or its users add
REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,99}")
ENV_ID = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)?")
WORD = re.compile(r"[A-Za-z0-9_.=+-]{1,100}")
FILE_OR_MODULE = re.compile(r"[/\\:]|^\.|\.xml$")  # an argument of an environment that could name a file or a module
MAX_DEPTH = 8  # levels of nesting in config.json


@dataclass(frozen=True)
class HubRun:
    """A published run at one commit of its repository; all of it has been checked."""

    repo: str  # user/name
    commit: str  # hash
    facts: dict[str, Any]  # content of config.json
    config: Config
    weights: dict[str, Tensor]  # the policy's state dict

    @property
    def pinned(self) -> str:
        """The selector that always means this commit, hub:user/name@commit."""
        return f"{HUB_PREFIX}{self.repo}@{self.commit}"


def fetch(selector: str, trust: Trust = NOBODY) -> HubRun:
    """Download and check the run that `hub:user/repo[@revision]` names.

    `trust`: modules of this machine that its config may name. UserError, one printable line, if it is not a published
    run or fails a check."""
    _, repo, revision = parse_selector(selector)
    check_repo(repo)
    if revision and (not REVISION.fullmatch(revision) or ".." in revision):
        raise UserError(f"{revision[:80]!r} is not a revision: a branch, a tag or a commit hash")
    try:
        return _fetch(repo, revision or "main", trust)
    except UserError as error:
        raise UserError("".join(c if c.isprintable() else " " for c in str(error))[:400]) from error


def _fetch(repo: str, revision: str, trust: Trust) -> HubRun:
    with hub_errors(repo):
        commit = retried(lambda: find_commit(repo, revision))
        if COMMIT.fullmatch(revision) and commit != revision:
            raise UserError(f"{repo}: commit {revision[:7]} was requested, but {commit[:7]} was returned")
        listed_files = retried(lambda: list_commit(repo, commit))
    where = f"{HUB_PREFIX}{repo}@{commit[:7]}"
    _check_names({name: list_item.size if list_item else None for name, list_item in listed_files.items()}, where)
    with hub_errors(repo):
        data = {
            name: _read(repo, commit, name, listed_files[name], byte_limit) for name, byte_limit in NEEDED_FILES.items()
        }
    facts = _facts(data[FACTS], f"{where}/{FACTS}")
    weights = read_weights(data[WEIGHTS], f"{where}/{WEIGHTS}")
    config = config_of(facts, len(data[WEIGHTS]), f"{where}/{FACTS}", trust)
    return HubRun(repo, commit, facts, config, weights)


def _check_names(sizes: dict[str, int | None], where: str) -> None:
    """Raise UserError unless all files are ones that publishing writes, none is missing and none is too large.

    `sizes`: name -> bytes, None for a folder."""
    for name, file_size in sizes.items():
        if name not in PUBLISHED_FILES | OTHER_FILES or file_size is None:
            raise UserError(f"{where} has {name[:80]!r}, which run_publish.py does not write: nothing was loaded")
    for name, byte_limit in NEEDED_FILES.items():
        if name not in sizes:
            raise UserError(f"{where} has no {name}: it is not a published run")
        if (sizes[name] or 0) > byte_limit:
            raise UserError(f"{where}/{name} has {sizes[name]:,} bytes, more than the limit of {byte_limit:,}")


def _read(repo: str, commit: str, name: str, listed: Listed | None, byte_limit: int) -> bytes:
    assert listed is not None
    return retried(lambda: read_file(repo, commit, name, listed, byte_limit))


def _facts(data: bytes, where: str) -> dict[str, Any]:
    """Return config.json as plain data; UserError unless it has the entries that a published run has.

    Texts must be printable, numbers finite, and no key may begin with '_'."""
    try:
        facts = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not valid JSON") from error
    if not isinstance(facts, dict) or not isinstance(facts.get("config"), dict):
        raise UserError(f"{where} has no config")
    _check_plain(facts, where, 0)
    check_whole_numbers(facts, where)
    progress = facts.get("progress")
    if not isinstance(progress, dict) or type(progress.get("env_steps")) is not int:
        raise UserError(f"{where} does not have env_steps")
    for name in ("checkpoint", "variant"):
        if not isinstance(facts.get(name), str) or not WORD.fullmatch(facts[name]):
            raise UserError(f"{where}: {name} is not a name")
    return facts


def _check_plain(value: object, where: str, depth: int) -> None:
    """Raise UserError for data that is nested too deep, has special keys, control characters or infinite numbers."""
    if depth > MAX_DEPTH:
        raise UserError(f"{where} is nested too deeply")
    if isinstance(value, dict):
        for key in value:
            if key.startswith("_"):
                raise UserError(f"{where}: {key[:40]!r} is not a config key; names of code are never loaded")
            _check_plain(key, where, depth + 1)
    for list_item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_plain(list_item, where, depth + 1)
    if isinstance(value, str) and not value.replace("\n", "").replace("\t", "").isprintable():
        raise UserError(f"{where} has a text with control characters")
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{where} has a number that is not finite")


def config_of(facts: Mapping[str, object], file_size: int, where: str, trust: Trust = NOBODY) -> Config:
    """Return the config in the facts, after every check of a YAML file and those for a config from elsewhere.

    `file_size`: of the weights in bytes; layers that would need more weights than that are refused."""
    check_names(facts["config"], trust, where)
    config = from_plain(facts["config"], where, trust=trust)
    if not ENV_ID.fullmatch(config.env_id.rpartition(":")[2]):
        raise UserError(f"{where}: env_id {config.env_id[:60]!r} is not the name of an environment")
    if not WORD.fullmatch(config.variant):
        raise UserError(f"{where}: variant is not a name")
    for wrapper in config.env_wrappers:  # a wrapper with a module was checked by check_names above
        if wrapper.get("id") not in WRAPPERS and not is_dotted(str(wrapper.get("id"))):
            raise UserError(
                f"{where}: env_wrappers {str(wrapper)[:60]} is not registered; known: {', '.join(WRAPPERS)}"
            )
    for name, text in _texts(config.env_kwargs):
        if FILE_OR_MODULE.search(text):
            raise UserError(f"{where}: env_kwargs.{name} {text[:60]!r} looks like a file or a module")
    check_foreign(config, where)
    layer_widths = config.hidden_dims
    numbers = sum(a * b for a, b in itertools.pairwise(layer_widths)) + sum(layer_widths)
    if len(layer_widths) > 64 or 4 * numbers > file_size:
        raise UserError(f"{where}: hidden_dims {str(list(layer_widths))[:60]} need more weights than {WEIGHTS} has")
    return config


def _texts(value: object, name: str = "") -> list[tuple[str, str]]:
    """Return (name, text) for every text inside a value; the name is the key nearest to it."""
    if isinstance(value, dict):
        return [inner_text for key, list_item in value.items() for inner_text in _texts(list_item, str(key))]
    if isinstance(value, list | tuple):
        return [inner_text for list_item in value for inner_text in _texts(list_item, name)]
    return [(name, value)] if isinstance(value, str) else []
