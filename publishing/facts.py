"""Makes config.json of a published run, and finds in it the texts that a person wrote.

Numbers and names that the program itself defines are safe to publish. Every other text was written by a person and may
contain secrets: so it is shown to the user before publishing, and scanned (scanner.py).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args, get_origin

import gymnasium

from stride.agents.networks.policies import POLICIES
from stride.agents.trained.loading import LoadedRun
from stride.config.checks import DEVICE
from stride.config.fields import hints
from stride.config.loader import from_plain, shipped_files, to_plain
from stride.config.plugins import EVERYBODY
from stride.config.raw import EnvironmentFile
from stride.config.schedule import KINDS
from stride.config.schema import ALGORITHMS
from stride.envs_gym.wrappers.registry import WRAPPERS
from stride.publishing.own_secrets import Secret
from stride.publishing.scanner import SecretFinding, scan
from stride.utils.provenance import PACKAGES
from stride.utils.user_error import UserError

CLOCK_KEYS = ("env_steps", "iterations", "updates")
KEPT_FACTS = ("git_hash", "engine", "env_backend")  # facts of the run that name no place and no person
FORM_OF = {  # fact -> pattern of the values that the program itself writes
    "checkpoint": r"best|last|(?:epoch|step)=\d{1,20}",
    "git_hash": r"(?:[0-9a-f]{40}(?:\+changes)?)?",
    "versions": r"(?:\d[\w.+!-]{0,40})?",
    "engine": r"eager|fused_cpu|graphed|fused_gpu",
    "env_backend": r"fast|gym|ale|torch",
}
FREE_PREFIXES = (
    "env_",
    "policy_kwargs",
    "spec.rewards",
)  # beginnings of places below config whose names a person chose
MAX_SHOWN = 3  # findings that a message names
Names = Mapping[str, Any]


class WrittenText(NamedTuple):
    """A text in the facts that a person may have written."""

    place: str  # config.spec.actions[1]
    text: str
    shown: bool = True  # whether the user should read it; False for numbers under a name that a person chose


def public_facts(loaded: LoadedRun) -> dict[str, Any]:
    """Return the facts to publish: the config, and what `play`, the card and leaderboards need."""
    # The config as it was trained, because `loaded.config` is changed for playing. Everything is trusted here, because
    # load_run has already checked the names in it.
    config = to_plain(from_plain(loaded.facts["config"], loaded.run.id, trust=EVERYBODY))
    versions = loaded.facts.get("versions")
    packages = versions if isinstance(versions, dict) else {}
    return {
        "env_id": loaded.config.env_id,
        "variant": loaded.config.variant,
        "seed": loaded.config.seed,
        "goal": loaded.goal,
        "checkpoint": loaded.checkpoint,
        "progress": {name: int(loaded.progress[name]) for name in CLOCK_KEYS if name in loaded.progress},
        **{name: str(loaded.facts[name]) for name in KEPT_FACTS if name in loaded.facts},
        "versions": {name: str(packages[name]) for name in ("python", *PACKAGES) if name in packages},
        "config": config,
    }


def written_texts(facts: Names) -> list[WrittenText]:
    """Return all texts of the facts that a person may have written: not those that the program itself defines."""
    public_names = known_names(facts["config"])
    return [text for text in _texts("", "", facts) if not _is_known(text, facts["config"], public_names)]


def findings(texts: Sequence[WrittenText], own: Sequence[Secret]) -> list[SecretFinding]:
    """Return what the scanner finds in all texts; `own`: secrets of this machine."""
    return [finding for written in texts for finding in scan(written.place, written.text, own)]


def refuse(found: Sequence[SecretFinding]) -> None:
    """Raise UserError with the first findings, if there are any."""
    if found:
        more = f"; and {len(found) - MAX_SHOWN} more" if len(found) > MAX_SHOWN else ""
        finding_texts = "; ".join(str(finding) for finding in found[:MAX_SHOWN])
        raise UserError(
            f"nothing was published: {finding_texts}{more}; --allow-text publishes texts that you have read"
        )


def shown(texts: Sequence[WrittenText]) -> list[str]:
    """Return a line for each text that the user should read; the entries of a list share one."""
    lines: dict[str, list[str]] = {}
    for written in texts:
        if written.shown:
            text = "".join(c if c.isprintable() else " " for c in written.text)
            lines.setdefault(re.sub(r"\[\d+\]", "", written.place), []).append(text)
    return [f"{place}: {' | '.join(collected)}" for place, collected in lines.items()]


def known_names(config: Names) -> dict[str, set[str]]:
    """Return place -> the names that are public there, because Stride or Gymnasium defines them."""
    shipped_names, env_id = shipped_files(), str(config["env_id"])
    file = shipped_names.get(env_id.replace("/", "-"))
    gym_names = {name for name, spec in gymnasium.registry.items() if str(spec.entry_point).startswith("gymnasium.")}
    env_names = gym_names | ({env_id} if file else set())
    variants = {*(EnvironmentFile.read(file).variants if file else ()), *ALGORITHMS}
    return {
        "env_id": env_names, "config.env_id": env_names, "variant": variants, "config.variant": variants,
        "config.algo_id": {*ALGORITHMS}, "config.policy": {*POLICIES}, "config.project_id": env_names,
        "config.env_wrappers.id": {*WRAPPERS},
    }  # fmt: skip


def _texts(place: str, name: str, value: object) -> Iterator[WrittenText]:
    """Yield all texts inside `value`, and the keys of mappings whose keys a person chose.

    `place`: where the value is, config.env_kwargs; `name`: its key, if a person chose it, else ""."""
    if isinstance(value, dict):
        is_free = place.startswith(tuple(f"config.{beginning}" for beginning in FREE_PREFIXES))
        for key, item in value.items():
            subplace = f"{place}.{key}" if place else key
            if is_free and not _is_plain(key):
                yield WrittenText(f"a name in {place}", key)
            yield from _texts(place if is_free and not _is_plain(key) else subplace, key if is_free else "", item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(f"{place}[{index}]", name, item)
    elif isinstance(value, str) or (name and not isinstance(value, bool)):
        yield WrittenText(place, f"{name}: {value}" if name else str(value), isinstance(value, str))


def _is_plain(key: str) -> bool:
    """Return whether a key is simple enough to be shown as part of a place."""
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_ ]{0,23}", key) is not None


def _is_known(written: WrittenText, config: Names, known: Mapping[str, set[str]]) -> bool:
    """Return whether the program itself defines this text: a known name, or a value of a known form or field."""
    place = re.sub(r"\[\d+\]", "", written.place)
    value = written.text.removeprefix("id: ") if place == "config.env_wrappers.id" else written.text
    if place in known:
        return value in known[place]
    pattern = FORM_OF.get(place.split(".")[0])
    if pattern:
        return re.fullmatch(pattern, value) is not None
    first_part, field, *rest = (*place.split("."), "")
    return first_part == "config" and _is_named(field, rest, value, hints(ALGORITHMS[config["algo_id"]]))


def _is_named(field: str, rest: list[str], value: str, types: Names) -> bool:
    """Return whether the schema defines the value: a choice of the field, a device, a kind of schedule, or empty."""
    if not value:
        return True
    if rest == ["kind", ""]:
        return value in KINDS
    return value in _words(types[field]) or (field == "device" and DEVICE.fullmatch(value) is not None)


def _words(hint: object) -> set[Any]:
    """Return the choices of a field's type, all values of its Literals."""
    choices = get_args(hint)
    return {*choices} if get_origin(hint) is Literal else {word for argument in choices for word in _words(argument)}
