"""Collects what is written for a config: an environment's YAML file, and overrides from the command line on top of it.

The values keep the types in which they were read; fields.py converts them later. loader.py calls these in order:

    EnvironmentFile.read      read a file and check the names of its base fields, variants and private blocks
    EnvironmentFile.raw       lay a variant's own block over the blocks it inherits from, and these over the base
    apply_overrides           put key=value on top, read by Hydra's grammar
    fold_schedules            make one mapping for policy_lr of policy_lr_schedule, policy_lr_schedule_end, ...

Each step takes and returns a Raw: the values, and for each key the place where it was written, for error messages."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_origin

from stride.config.fields import algorithms, check_algorithm, check_key, every_key, hints, is_field, members
from stride.config.foreign import algorithm_advice
from stride.config.plugins import registered
from stride.config.recipes import RECIPES
from stride.config.schedule import (
    KINDS,
    SCHEDULE_PARTS,
    FollowKL,
    Schedule,
    checked_kind,
    is_schedule,
    parse_schedule_key,
    peak_part,
    schedule_in,
    schedule_key,
)
from stride.config.schema import ALGORITHMS
from stride.config.yaml_file import read_yaml
from stride.utils.user_error import DEEPEST, UserError, errors_in, nearest

INHERIT = "_inherit_"
AUTO = "auto"  # in ENV:auto, config/auto.py chooses algorithm and settings; so no variant may have this name
VARIANT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
HYDRA_PREFIXES = ("++", "+", "~")  # Hydra adds or removes keys with them; our keys always exist
MAX_CHAIN = 20  # blocks that inherit from each other; longer chains take minutes
MAX_OVERRIDES = 200  # in one command
MAX_OVERRIDE_LETTERS = 10_000  # characters of one override
Block = Mapping[str, Any]  # the keys of one variant, or of one private block


class Raw(NamedTuple):
    """Values as they were written, and for each key the place where it was written.

    An example with one override and one key from a file:
        values   {"gamma": 0.98, "policy_lr": "lin_0.001"}
        where    {"gamma": "gamma=0.98", "policy_lr": "CartPole-v1.yaml:ppo"}
    """

    values: dict[str, Any]
    where: dict[str, str]


@dataclass(frozen=True)
class EnvironmentFile:
    """The YAML file of one environment."""

    path: Path
    base: Block  # keys at the top of the file, or under `_base`: they apply to every variant
    blocks: Mapping[str, Block]  # variants, and private blocks (`_name`) that variants inherit from

    @classmethod
    def read(cls, path: Path) -> "EnvironmentFile":
        """Read a file and check the names of all its blocks and keys, even those of variants that nobody asked for."""
        content = read_yaml(path)
        base = _base(path.name, content)
        blocks = {key: value for key, value in content.items() if key not in base and isinstance(value, dict)}
        blocks.pop("_base", None)
        if all(name.startswith("_") for name in blocks) and isinstance(base.get("algo_id"), str):
            blocks[base["algo_id"].rpartition(":")[2]] = {}  # a flat file is its own single variant
        file = cls(path, base, blocks)
        if not file.variants:
            raise UserError(f"{path.name} has no variant; add a block, for example ppo: {{max_timesteps: 1e5}}")
        for name in file.variants:
            if not VARIANT_NAME.fullmatch(name):
                raise UserError(f"{path.name}: {name!r} is not a variant name (use letters, digits, '_', '-' and '.')")
            if name == AUTO:
                raise UserError(f"{path.name}: no variant can be called auto, which chooses an algorithm")
            algo_id, raw = file.algorithm(name), file.raw(name)
            for key in raw.values:
                check_key(key, algo_id, raw.where[key])
        return file

    @property
    def variants(self) -> list[str]:
        return [name for name in self.blocks if not name.startswith("_")]

    @property
    def env_id(self) -> str:
        return str(self.base.get("env_id", self.path.stem))

    def checked_variant(self, variant: str) -> str:
        """Return the name if the file has this variant; UserError with the existing ones if not."""
        names = ", ".join(f"{self.env_id}:{name}" for name in self.variants)
        if not variant:
            raise UserError(f"{self.env_id!r} needs a variant: {names}")
        if variant not in self.variants:
            advice = algorithm_advice(variant, self.variants) or nearest(variant, self.variants)
            raise UserError(f"{self.env_id} has no variant {variant!r} ({names}){advice}")
        return variant

    def chain(self, variant: str) -> list[str]:
        """Return the variant and the blocks it inherits from, nearest first; UserError for a cycle or a missing one."""
        names = [variant]
        while INHERIT in (block := self.blocks[names[-1]]):
            location, parent = f"{self.path.name}:{names[-1]}: {INHERIT}", block[INHERIT]
            if not isinstance(parent, str) or parent not in self.blocks:
                advice = nearest(str(parent), self.blocks)
                raise UserError(f"{location}: this file has no block {parent!r}{advice}")
            if parent in names:
                raise UserError(f"{location} is a cycle: {' -> '.join([*names, parent])}")
            if len(names) == MAX_CHAIN:
                raise UserError(f"{location} chains more than {MAX_CHAIN} blocks, starting at {variant}")
            names.append(parent)
        return names

    def algorithm(self, variant: str) -> str:
        """Return the algorithm of a variant.

        It is the value of algo_id, in the variant's block, an inherited block or the base. Without algo_id, it is the
        first name in the chain of blocks that is an algorithm's: the variant `ppo` needs no algo_id. UserError if
        neither gives one."""
        chain, location = self.chain(variant), f"{self.path.name}:{variant}"
        for block in (*(self.blocks[name] for name in chain), self.base):
            if "algo_id" in block:
                return check_algorithm(block["algo_id"], location)
        for options in (ALGORITHMS, registered("algorithms")):
            for name in chain:
                if name in options:
                    return check_algorithm(name, location)
        advice = nearest(variant, [*algorithms(), *every_key()])
        raise UserError(f"{location}: needs algo_id ({', '.join(ALGORITHMS)}){advice}")

    def raw(self, variant: str) -> Raw:
        """Return what the file says of a variant: the base, inherited blocks on top, its own block last."""
        raw = overlay(Raw({}, {}), Raw(dict(self.base), dict.fromkeys(self.base, self.path.name)))
        for name in reversed(self.chain(variant)):
            block = {key: value for key, value in self.blocks[name].items() if key != INHERIT}
            raw = overlay(raw, Raw(block, dict.fromkeys(block, f"{self.path.name}:{name}")))
        return raw


def _base(file: str, content: Block) -> dict[str, Any]:
    """Return the keys at the top of the file and those under `_base`; UserError where a key is in both."""
    base_block = content.get("_base", {})
    if not isinstance(base_block, dict):
        raise UserError(f"{file}: _base must be a mapping of keys, not {base_block!r}")
    if INHERIT in content or INHERIT in base_block:
        raise UserError(f"{file}: {INHERIT} belongs inside a variant")
    base = dict(base_block)
    for key, value in content.items():
        if not is_field(key) and (key.startswith("_") or isinstance(value, dict)):
            continue  # a block
        if key in base_block:
            raise UserError(f"{file}: {key} is given both on top and under _base")
        if value is None and key in ALGORITHMS:
            raise UserError(f"{file}: the variant {key!r} is empty; write {key}: {{}}")
        base[key] = value
    return base


def overlay(earlier: Raw, later: Raw, merge: bool = True) -> Raw:
    """Put `later` on top of `earlier`; mappings are merged entry by entry unless `merge` is false.

    A key `recipe` in `later` is replaced by the recipe's values, which the other keys of `later` override. It also
    removes the values of an earlier recipe, unless they were changed after that recipe was written.
    """
    if "recipe" in later.values:
        replaced = RECIPES.get(str(earlier.values.get("recipe")), {})
        kept = {key: value for key, value in earlier.values.items() if key not in replaced or value != replaced[key]}
        earlier, later = Raw(kept, earlier.where), _expanded(later)
    values = dict(earlier.values)
    for key in later.values:
        if isinstance(key, str):  # check_key reports a key that is not text
            for replaced_key in _replaced_keys(key, later.values, earlier.values):
                values.pop(replaced_key, None)
    for key, value in later.values.items():
        values[key] = merged(earlier.values.get(key), value) if merge else value
    return Raw(values, {**earlier.where, **later.where})


def _expanded(raw: Raw) -> Raw:
    """Return `raw` with the values of its recipe added below its own values; unchanged if there is no such recipe."""
    recipe = raw.values["recipe"]
    if not isinstance(recipe, str) or recipe not in RECIPES:
        return raw
    values = {"recipe": recipe, **RECIPES[recipe]}
    for key, value in raw.values.items():
        values[key] = merged(values.get(key), value)
    return Raw(values, {**dict.fromkeys(values, raw.where["recipe"]), **raw.where})


def merged(earlier: object, later: object) -> object:
    """Merge two mappings, inner ones too; the later wins. If one of them is no mapping, return `later`."""
    if not isinstance(earlier, Mapping) or not isinstance(later, Mapping):
        return later
    return {**earlier, **{key: merged(earlier.get(key), value) for key, value in later.items()}}


def _replaced_keys(key: str, later: Block, earlier: Block) -> list[str]:
    """Return the keys of `earlier` that `key` in `later` makes void, so that no part of an old schedule stays.

    policy_lr=lin_0.001, for example, replaces policy_lr_schedule and all its parts; policy_lr=0.001 replaces only the
    part with the same meaning, policy_lr_schedule_start_value."""
    field, schedule_part = parse_schedule_key(key) or (key, "")
    all_parts = [schedule_key(field, name) for name in ("kind", *SCHEDULE_PARTS)]
    if schedule_part == "kind" and later[key] is None:
        return all_parts
    peak = peak_part(_kind_of(field, {**earlier, **later}))
    if schedule_part:
        return [field] if schedule_part == peak and not is_schedule(earlier.get(field)) else []
    replaces = later[key] is None or is_schedule(later[key]) or FollowKL.read(field, later[key])
    return all_parts if replaces else [schedule_key(field, peak)]


def _kind_of(field: str, values: Block) -> str:
    """Return the kind of schedule that is written for a field; without a schedule, a text that is no kind."""
    return str(values.get(f"{field}_schedule") or str(values.get(field)).partition("_")[0])


def apply_overrides(raw: Raw, overrides: Sequence[str], algo_id: str) -> tuple[Raw, str]:
    """Return `raw` with the overrides on top, and the algorithm, which an override algo_id=... may change.

    Hydra's other syntax (+, ++, ~, sweeps) is refused: it would add keys that nothing reads, or mean several runs.
    """
    if len(overrides) > MAX_OVERRIDES:
        raise UserError(f"{len(overrides):,} overrides are too many; write a file and give it with --config")
    texts = [_bare(text) for text in overrides]
    for text in texts:  # algo_id comes first, because it decides which keys exist
        if text.startswith("algo_id="):
            algo_id = check_algorithm(value_of(text), text)
    typed_values = Raw({}, {})
    earlier: dict[str, str] = {}  # key -> the override that set it
    for text in texts:
        key = text.partition("=")[0]
        _check_override_key(key, algo_id, text)
        for earlier_key in earlier:
            if key == earlier_key or key.startswith(f"{earlier_key}.") or earlier_key.startswith(f"{key}."):
                raise UserError(f"{text}: {earlier_key} is already given by {earlier[earlier_key]}")
        earlier[key] = text
        name, *path = key.split(".")
        value = value_of(text)
        if path:
            value = _nested(typed_values.values.get(name, raw.values.get(name)), path, value, text)
        typed_values.values[name] = value
        typed_values.where[name] = f"{typed_values.where[name]} {text}" if name in typed_values.where else text
    raw = overlay(raw, typed_values, merge=False)
    for name in raw.values:  # if the algorithm changed, the file may have keys that the new one does not have
        check_key(name, algo_id, raw.where[name])
    return raw, algo_id


def _bare(text: str) -> str:
    """Return an override without a leading `--`, which trackers' sweeps write; UserError if it is not key=value."""
    if len(text.splitlines()) > 1:
        raise UserError(f"{' '.join(text.split())}: an override must be one line")
    if len(text) > MAX_OVERRIDE_LETTERS or _depth(text) > DEEPEST or text.partition("=")[0].count(".") > DEEPEST:
        raise UserError(
            f"{text}: an override may have {MAX_OVERRIDE_LETTERS:,} characters and {DEEPEST} levels of nesting"
        )
    stripped = text.removeprefix("--").strip()
    for prefix in HYDRA_PREFIXES:
        if stripped.startswith(prefix):
            raise UserError(f"{text}: '{prefix}' is not needed; write key=value")
    if "=" not in stripped or stripped.startswith("="):
        raise UserError(f"{text!r} is not an override; write key=value, for example gamma=0.98")
    return stripped


def _depth(text: str) -> int:
    """Return how deep brackets are nested in a text; brackets inside quotes count, too, which does no harm."""
    depth = deepest = 0
    for character in text:
        depth += (character in "[{(") - (character in "]})")
        deepest = max(deepest, depth)
    return deepest


def _check_override_key(key: str, algo_id: str, text: str) -> None:
    """Raise UserError unless the algorithm has the key; a key with dots (spec.goal) must begin with a mapping's."""
    name, *path = key.split(".")
    check_key(name.strip(), algo_id, text)
    if name != name.strip():
        raise UserError(f"{text}: no spaces around '='; write {name.strip()}=value")
    mapping_fields = [
        field for field, hint in hints(ALGORITHMS[algo_id]).items() if any(map(_has_parts, members(hint)))
    ]
    if path and name not in mapping_fields:
        raise UserError(f"{text}: {name} has no sub-keys; only {', '.join(mapping_fields)} have")
    if not all(path):
        raise UserError(f"{text}: the key ends in a dot or has an empty part")


def _has_parts(member: Any) -> bool:
    """Return whether `key.part=value` may set a part of this type; a schedule's parts have their own keys."""
    return get_origin(member) is dict or (is_dataclass(member) and member is not Schedule)


def value_of(text: str) -> Any:
    """Return the value of `key=value` in the types of Hydra's grammar: number, boolean, null, list, mapping, text."""
    from hydra.core.override_parser.overrides_parser import OverridesParser  # 0.1 s, so only if there is an override
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(text)
        several = override.is_sweep_override()
        value = None if several else override.value()
    except (HydraException, ValueError, OverflowError) as error:  # the last two: of a number with thousands of digits
        raise UserError(f"{text}: cannot be read: {' '.join(str(error).split())}") from error
    if override.package is not None:
        raise UserError(f"{text}: '@' is not supported here")
    if several:
        is_seed = text.startswith("seed=")
        advice = "use --seed 1,2,3" if is_seed else "lists are written [1,2] and text with a comma in quotes"
        raise UserError(f"{text}: several values for one run; {advice}")
    return value


def _nested(earlier: object, path: list[str], value: object, text: str) -> dict[str, Any]:
    """Return a copy of the mapping `earlier` with `value` at `path`: ["a", "b"] sets {"a": {"b": value}}."""
    entries = dict(earlier) if isinstance(earlier, Mapping) else {}
    name, *remaining = path
    if remaining:
        inner_mapping = entries.get(name)
        if inner_mapping is not None and not isinstance(inner_mapping, Mapping):
            raise UserError(f"{text}: {name} is {inner_mapping!r}, which has no sub-keys")
        value = _nested(inner_mapping, remaining, value, text)
    entries[name] = value
    return entries


def fold_schedules(raw: Raw, defaults: Mapping[str, object]) -> Raw:
    """Return `raw` without schedule keys; each field with a schedule has a mapping that Schedule.parse takes.

    `defaults`: field -> the default that its schedule starts from if no value is written."""
    folded = Raw({}, dict(raw.where))
    written: dict[str, dict[str, Any]] = {}  # field -> its parts: {"policy_lr": {"kind": "linear", "end": 0.5}}
    for key, value in raw.values.items():
        field, schedule_part = parse_schedule_key(key) or (key, "")
        if schedule_part:
            written.setdefault(field, {})[schedule_part] = value
            folded.where[field] = raw.where[key]
        else:
            folded.values[key] = value
    for field, parts in written.items():
        with errors_in(folded.where[field]):
            value = _folded(field, parts, folded.values.get(field), defaults[field])
        if value is not None:
            folded.values[field] = value
    return folded


def _folded(field: str, parts: dict[str, object], value: object, default: object) -> object:
    """Return the value of a field for which parts of a schedule are written.

    `parts`: {"kind": "linear", "end": 0.5}, from the schedule keys. `value`: what is written for the field itself, a
    number, a schedule in short form or None. UserError if they contradict each other."""
    if "kind" in parts and parts["kind"] is None:
        if len(parts) > 1:
            raise UserError(f"{field}_schedule is null, so its other keys would have no effect")
        return _without_schedule(value)
    earlier_schedule = schedule_in(field, value)
    if earlier_schedule is None and "kind" not in parts:
        raise UserError(f"{schedule_key(field, next(iter(parts)))} needs {field}_schedule ({', '.join(KINDS)})")
    kind = checked_kind(parts.get("kind", earlier_schedule.kind if earlier_schedule else None))
    if earlier_schedule is not None and earlier_schedule.kind == kind:
        return {**asdict(earlier_schedule), **parts}
    peak, constant = peak_part(kind), _without_schedule(earlier_schedule or value)
    if constant is not None and parts.get(peak, constant) != constant:
        conflict = f"{field} {constant} and {schedule_key(field, peak)} {parts[peak]}"
        raise UserError(f"{conflict} contradict each other; give only one")
    peak_value = parts.get(peak, default) if constant is None else constant
    if peak_value is None:
        raise UserError(f"{field}_schedule needs {schedule_key(field, peak)}")
    return {peak: peak_value, **parts, "kind": kind}


def _without_schedule(value: object) -> object:
    """Return the number that a field keeps when its schedule is removed; other values unchanged."""
    schedule = value if isinstance(value, Schedule) else schedule_in("schedule", value)
    if schedule is None:
        return value
    return schedule.end_value if schedule.kind == "warmup" else schedule.start_value
