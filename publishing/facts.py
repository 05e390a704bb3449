"""config.json as others get it: numbers, and names that the program itself has.

Every other text was written by a person: it is shown to whoever publishes, and read by the scanner.
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

CLOCK = ("env_steps", "iterations", "updates")
KEPT = ("git_hash", "engine", "env_backend")  # facts of the run that name neither place nor person
FORMS = {  # of what the program wrote itself
    "checkpoint": r"best|last|(?:epoch|step)=\d{1,20}",
    "git_hash": r"(?:[0-9a-f]{40}(?:\+changes)?)?",
    "versions": r"(?:\d[\w.+!-]{0,40})?",
    "engine": r"eager|fused_cpu|graphed|fused_gpu",
    "env_backend": r"fast|gym|ale|torch",
}
FREE = ("env_", "policy_kwargs", "spec.rewards")  # beginnings of places below config whose names a person chose
NAMED_MOST = 3  # findings that a refusal names
Names = Mapping[str, Any]


class WrittenText(NamedTuple):
    """A text that a person wrote, and where: config.spec.actions[1]."""

    place: str
    text: str
    shown: bool = True


def public_facts(loaded: LoadedRun) -> dict[str, Any]:
    """The config and those facts that play, the card and a leaderboard need."""
    # as it was trained: loading makes it playable, and has asked whether its names are trusted
    config = to_plain(from_plain(loaded.facts["config"], loaded.run.id, trust=EVERYBODY))
    versions = loaded.facts.get("versions")
    packages = versions if isinstance(versions, dict) else {}
    return {
        "env_id": loaded.config.env_id,
        "variant": loaded.config.variant,
        "seed": loaded.config.seed,
        "goal": loaded.goal,
        "checkpoint": loaded.checkpoint,
        "progress": {name: int(loaded.progress[name]) for name in CLOCK if name in loaded.progress},
        **{name: str(loaded.facts[name]) for name in KEPT if name in loaded.facts},
        "versions": {name: str(packages[name]) for name in ("python", *PACKAGES) if name in packages},
        "config": config,
    }


def written_texts(facts: Names) -> list[WrittenText]:
    """Every text of the facts that is not a number, nor a name that the program itself has."""
    public_names = known_names(facts["config"])
    return [text for text in _texts("", "", facts) if not _is_known(text, facts["config"], public_names)]


def findings(texts: Sequence[WrittenText], own: Sequence[Secret]) -> list[SecretFinding]:
    """The findings in all texts, none of which should be published."""
    return [finding for written in texts for finding in scan(written.place, written.text, own)]


def refuse(found: Sequence[SecretFinding]) -> None:
    """UserError with the first places; nothing if there are none."""
    if found:
        more = f"; and {len(found) - NAMED_MOST} more" if len(found) > NAMED_MOST else ""
        finding_texts = "; ".join(str(finding) for finding in found[:NAMED_MOST])
        raise UserError(
            f"nothing was published: {finding_texts}{more}; --allow-text publishes texts that you have read"
        )


def shown(texts: Sequence[WrittenText]) -> list[str]:
    """A line for each place; the entries of a list share one."""
    lines: dict[str, list[str]] = {}
    for written in texts:
        if written.shown:
            text = "".join(c if c.isprintable() else " " for c in written.text)
            lines.setdefault(re.sub(r"\[\d+\]", "", written.place), []).append(text)
    return [f"{place}: {' | '.join(collected)}" for place, collected in lines.items()]


def known_names(config: Names) -> dict[str, set[str]]:
    """Place -> the names that may stand there because they are ours or Gymnasium's."""
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
    """Texts with what they are called, and the names of whatever a person may have named."""
    if isinstance(value, dict):
        is_free = place.startswith(tuple(f"config.{beginning}" for beginning in FREE))
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
    """Whether a name may be part of a place that is shown."""
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_ ]{0,23}", key) is not None


def _is_known(each: WrittenText, config: Names, known: Mapping[str, set[str]]) -> bool:
    place = re.sub(r"\[\d+\]", "", each.place)
    value = each.text.removeprefix("id: ") if place == "config.env_wrappers.id" else each.text
    if place in known:
        return value in known[place]
    pattern = FORMS.get(place.split(".")[0])
    if pattern:
        return re.fullmatch(pattern, value) is not None
    first_part, field, *rest = (*place.split("."), "")
    return first_part == "config" and _is_named(field, rest, value, hints(ALGORITHMS[config["algo_id"]]))


def _is_named(field: str, rest: list[str], value: str, types: Names) -> bool:
    """Whether the schema says so: one of a few words, a device, the kind of a schedule; empty is nothing."""
    if not value:
        return True
    if rest == ["kind", ""]:
        return value in KINDS
    return value in _words(types[field]) or (field == "device" and DEVICE.fullmatch(value) is not None)


def _words(hint: object) -> set[Any]:
    """The words a field takes."""
    choices = get_args(hint)
    return {*choices} if get_origin(hint) is Literal else {word for argument in choices for word in _words(argument)}
