"""Makes the JSON Schema of an environment's YAML file, by which editors complete keys and mark mistakes.

It says of every key what it takes and what it means, from schema.py, fields.py and checks.py. Rules between keys are
not in it; only the loader checks those.
"""

from dataclasses import MISSING, fields
from math import inf
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from stride.config.checks import RANGES, Range
from stride.config.exploration import Exploration
from stride.config.fields import NUMBER, SET_BY_LOADER, hints, members, schedulable
from stride.config.manual import field_docs
from stride.config.network import Network
from stride.config.plateau import Plateau
from stride.config.raw import INHERIT, VARIANT_NAME
from stride.config.schedule import KINDS, SCHEDULE_PARTS, SHORT, FollowKL, Schedule, schedule_key
from stride.config.schema import ALGORITHMS
from stride.config.spec import Quantity, Spec

Json = dict[str, Any]
DIALECT = "http://json-schema.org/draft-07/schema#"  # the version that editors of YAML know
OWN_ALGORITHM: Json = {"type": "string", "pattern": r"^[\w.]+:\w+$"}  # a user's own algorithm, module:Agent
PART_TEXTS = {  # part of a schedule -> its description; {} is the name of the scheduled key
    "kind": "How {} changes: linear, cosine, exponential or warmup; null = constant.",
    "start_value": "{} until the start.",
    "end_value": "{} after the end.",
    "start": "When {} starts to change: in [0, 1] a fraction of max_timesteps, above 1 env steps.",
    "end": "When {} stops changing: in [0, 1] a fraction of max_timesteps, above 1 env steps.",
}


def schema() -> Json:
    """Return the complete schema of a file."""
    key_definitions = {name: keys_of(cls) for name, cls in ALGORITHMS.items()}
    all_keys: Json = {}
    for definitions in key_definitions.values():
        all_keys = {**definitions, **all_keys}
    blocks = {name: block(definitions, all_keys) for name, definitions in key_definitions.items()}
    references = {key: {"$ref": f"#/definitions/keys/{key}"} for key in all_keys}
    return {
        "$schema": DIALECT,
        "title": "An environment of Stride: keys for all its variants, and one block per variant",
        "type": "object",
        "properties": references | {"_base": {"$ref": "#/definitions/any"}} | {name: of_name(name) for name in blocks},
        "patternProperties": {"^_(?!base$)": {}},
        "additionalProperties": {"$ref": "#/definitions/variant"},
        "propertyNames": {"pattern": f"^_|^{VARIANT_NAME.pattern}$"},
        "definitions": {
            "keys": all_keys,
            "any": block(all_keys, all_keys),
            "variant": by_algorithm("#/definitions/any"),
            **blocks,
        },
    }


def keys_of(cls: type) -> Json:
    """Return key -> its schema, for each key that a config of this class may set, schedule keys included."""
    field_texts, definitions = texts_of(cls), {}
    for name, field_type in hints(cls).items():
        if name not in SET_BY_LOADER:
            definitions[name] = described(cls, name, field_type, field_texts[name])
    for name in schedulable(cls):
        for part, description in PART_TEXTS.items():
            accepted: Json = {"enum": [*KINDS, *SHORT, None]}
            if part != "kind":
                accepted = {"anyOf": [number(float, None), {"type": "null"}]}
            definitions[schedule_key(name, part)] = {"description": description.format(name), **accepted}
    return definitions


def block(definitions: Json, all_keys: Json) -> Json:
    """Return the schema of a block (a variant) with these keys.

    A key that all algorithms describe alike refers to the common definition in `all_keys`, to keep the file small."""
    properties: Json = {INHERIT: {"type": "string", "description": "The block of this file to inherit from."}}
    for key, value in definitions.items():
        properties[key] = {"$ref": f"#/definitions/keys/{key}"} if value == all_keys[key] else value
    return {"type": "object", "properties": properties, "additionalProperties": False}


def by_algorithm(otherwise: str) -> Json:
    """Return a schema that checks a block as one of the algorithm in algo_id; without algo_id as `otherwise`."""
    of_own = {"required": ["algo_id"], "properties": {"algo_id": OWN_ALGORITHM}}
    condition: Json = {"if": of_own, "then": {"type": "object"}, "else": {"$ref": otherwise}}
    for name in ALGORITHMS:
        is_named = {"required": ["algo_id"], "properties": {"algo_id": {"const": name}}}
        condition = {"if": is_named, "then": {"$ref": f"#/definitions/{name}"}, "else": condition}
    return condition


def of_name(name: str) -> Json:
    """Return the schema of a block named like an algorithm, which it uses unless it has algo_id or inherits."""
    says_otherwise = {"anyOf": [{"required": [INHERIT]}, {"required": ["algo_id"]}]}
    own_block = {"$ref": f"#/definitions/{name}"}
    return {"if": says_otherwise, "then": by_algorithm("#/definitions/any"), "else": own_block}


def described(cls: type, name: str, hint: object, doc: str) -> Json:
    """Return the schema of one key, with its description and default."""
    limits = RANGES.get(name)
    default = next(item.default for item in fields(cls) if item.name == name)
    default_entry = {}
    if default is not MISSING and default is not None and name != "max_timesteps":
        default_entry = {"default": list(default) if isinstance(default, tuple) else default}
    accepted: Json = {"anyOf": [{"enum": [*ALGORITHMS]}, OWN_ALGORITHM]} if name == "algo_id" else taken(hint, limits)
    if name == "normalize_obs":  # true is accepted as another word for rolling
        accepted["enum"].append(True)
    return {"description": doc, **default_entry, **accepted}


def taken(hint: object, limits: Range | None = None) -> Json:
    """Return the schema of the values that fields.convert accepts for a type."""
    options = [option for member in members(hint) for option in options_of(member, limits)]
    return options[0] if len(options) == 1 else {"anyOf": options}


def options_of(member: Any, limits: Range | None) -> list[Json]:
    """Return the schemas of the ways to write a value of one type; numbers, for example, may be text ("1_000")."""
    origin, args = get_origin(member), get_args(member)
    if origin is Literal:
        return [{"enum": [*args]}]
    if origin is tuple:
        return listed(args, limits)
    if origin is dict:
        return [{"type": "object", **({"additionalProperties": taken(args[1])} if args[1] in (str, float) else {})}]
    if member in (int, float):
        return [
            number(member, limits),
            {"type": "string", "pattern": f"^{NUMBER.pattern}$"},
        ]  # for editors, 1_000 is text
    if member is Schedule:
        part_schemas = {"kind": {"enum": [*KINDS, *SHORT]}, **{part: number(float, None) for part in SCHEDULE_PARTS}}
        return [
            {"type": "string", "pattern": f"^({'|'.join(SHORT)})_{NUMBER.pattern}$"},
            {"type": "object", "required": ["kind"], "additionalProperties": False, "properties": part_schemas},
        ]
    if member is FollowKL:
        return [{"type": "string", "pattern": f"^kl_{NUMBER.pattern}$"}]
    if member in (Spec, Quantity, Plateau, Exploration, Network):
        return [of_class(member)]
    return [{"type": {bool: "boolean", str: "string", NoneType: "null"}[member]}]


def listed(args: tuple[Any, ...], limits: Range | None) -> list[Json]:
    """Return the schemas of a list, and of a single whole number or choice, which may stand without a list."""
    if args == (float, float):
        return [{"type": "array", "items": taken(float), "minItems": 2, "maxItems": 2}]
    item_schema = taken(args[0], limits)
    without_list = args[0] is int or get_origin(args[0]) is Literal
    return [{"type": "array", "items": item_schema}, *(options_of(args[0], limits) if without_list else [])]


def number(member: type, limits: Range | None) -> Json:
    """Return the schema of a number of this type; `limits` None: any."""
    definition: Json = {"type": "integer" if member is int else "number"}
    if limits:
        definition["exclusiveMinimum" if limits.above else "minimum"] = limits.low
        if limits.high != inf:
            definition["maximum"] = limits.high
    return definition


def of_class(cls: type) -> Json:
    """Return the schema of a mapping such as spec, from its dataclass."""
    field_texts, types = texts_of(cls), hints(cls)
    properties = {name: {"description": field_texts[name], **taken(types[name])} for name in types}
    required = {"required": ["name"]} if cls is Quantity else {}
    return {"type": "object", "properties": properties, "additionalProperties": False, **required}


def texts_of(cls: type) -> dict[str, str]:
    """Return field -> the text under it; an algorithm's own text replaces that of its base class."""
    field_texts: dict[str, str] = {}
    texts_by_class = field_docs()
    for base_class in reversed(cls.__mro__):
        field_texts |= texts_by_class.get(base_class, {})
    return field_texts
