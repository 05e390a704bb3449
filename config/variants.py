"""The structure of an environment's YAML file: base fields, variant blocks, private blocks, inheritance.

Checks all names of blocks and keys, so that a mistake shows whichever variant is asked for; values come later."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stride.config.keys import check_algorithm, check_key, everyones_keys, is_field
from stride.config.plugins import algorithms, registered
from stride.config.schedule_keys import Raw, superseded
from stride.config.schema import ALGORITHMS
from stride.config.yaml_file import read_yaml
from stride.utils.user_error import UserError, nearest

INHERIT = "_inherit_"
LONGEST_CHAIN = 20
VARIANT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
Block = Mapping[str, Any]


@dataclass(frozen=True)
class EnvironmentFile:
    """One YAML file, taken apart."""

    path: Path
    base: Block
    blocks: Mapping[str, Block]  # variants and private blocks; both can be inherited from

    @classmethod
    def read(cls, path: Path) -> "EnvironmentFile":
        """The file with all its keys checked."""
        raw = read_yaml(path)
        base = _base(path.name, raw)
        blocks = {key: value for key, value in raw.items() if key not in base and isinstance(value, dict)}
        blocks.pop("_base", None)
        if not any(not name.startswith("_") for name in blocks) and isinstance(base.get("algo_id"), str):
            name = base["algo_id"].rpartition(":")[2]  # of one's own: without the module
            blocks[name] = {}  # a flat file is its own single variant
        file = cls(path, base, blocks)
        file._check()
        return file

    @property
    def variants(self) -> list[str]:
        return [name for name in self.blocks if not name.startswith("_")]

    @property
    def env_id(self) -> str:
        return str(self.base.get("env_id", self.path.stem))

    def checked_variant(self, variant: str) -> str:
        """The name, or a UserError with those there are."""
        names = [f"{self.env_id}:{name}" for name in self.variants]
        if not variant:
            raise UserError(f"{self.env_id!r} needs a variant: {', '.join(names)}")
        if variant not in self.variants:
            meant = nearest(variant, self.variants)
            raise UserError(f"{self.env_id} has no variant {variant!r} ({', '.join(names)}){meant}")
        return variant

    def chain(self, variant: str) -> list[str]:
        """The variant and those it inherits from, nearest first."""
        names = [variant]
        while INHERIT in (block := self.blocks[names[-1]]):
            where, parent = f"{self.path.name}:{names[-1]}", block[INHERIT]
            if not isinstance(parent, str) or parent not in self.blocks:
                meant = nearest(str(parent), self.blocks)
                raise UserError(f"{where}: {INHERIT} names no block of this file: {parent!r}{meant}")
            if parent in names:
                raise UserError(f"{where}: {INHERIT} goes in a circle: {' -> '.join([*names, parent])}")
            if len(names) == LONGEST_CHAIN:
                raise UserError(f"{where}: {INHERIT} goes on over more than {LONGEST_CHAIN} blocks, from {variant} on")
            names.append(parent)
        return names

    def algorithm(self, variant: str) -> str:
        """algo_id as given, else the first name of the chain that is an algorithm."""
        chain = self.chain(variant)
        for block in (*(self.blocks[name] for name in chain), self.base):
            if "algo_id" in block:
                return check_algorithm(block["algo_id"], f"{self.path.name}:{variant}")
        for name in chain:
            if name in ALGORITHMS:
                return name
        for name in chain:
            if name in registered("algorithms"):
                return check_algorithm(name, f"{self.path.name}:{variant}")
        meant = nearest(variant, [*algorithms(), *everyones_keys()])
        raise UserError(f"{self.path.name}:{variant}: needs algo_id ({', '.join(ALGORITHMS)}){meant}")

    def raw(self, variant: str) -> Raw:
        """Everything the variant says: base, then ancestors from the farthest, then its own block."""
        raw = Raw(dict(self.base), dict.fromkeys(self.base, self.path.name))
        for name in reversed(self.chain(variant)):
            block = {key: value for key, value in self.blocks[name].items() if key != INHERIT}
            raw = overlay(raw, Raw(block, dict.fromkeys(block, f"{self.path.name}:{name}")))
        return raw

    def _check(self) -> None:
        if not self.variants:
            raise UserError(f"{self.path.name} has no variant; add a block such as ppo: {{max_timesteps: 1e5}}")
        for name in self.variants:
            if not VARIANT_NAME.fullmatch(name):
                raise UserError(f"{self.path.name}: {name!r} cannot name a variant (letters, digits, '_', '-' and '.')")
            algo_id = self.algorithm(name)
            raw = self.raw(name)
            for key in raw.values:
                check_key(key, algo_id, raw.where[key])


def overlay(earlier: Raw, later: Raw, merge: bool = True) -> Raw:
    """`later` on top of `earlier`; mappings are merged entry by entry unless merge is false."""
    names = [key for key in later.values if isinstance(key, str)]  # a number as key is reported by check_key
    void = {gone for key in names for gone in superseded(key, later.values, earlier.values)} - {*names}
    values = {key: value for key, value in earlier.values.items() if key not in void}
    for key, value in later.values.items():
        values[key] = merged(values.get(key), value) if merge else value
    return Raw(values, {**earlier.where, **later.where})


def merged(earlier: object, later: object) -> object:
    """Two mappings as one, the later winning; anything else is replaced."""
    if not isinstance(earlier, Mapping) or not isinstance(later, Mapping):
        return later
    return {**earlier, **{key: merged(earlier.get(key), value) for key, value in later.items()}}


def _base(name: str, raw: Block) -> dict[str, Any]:
    """The fields on top of the file and those under `_base`."""
    under = raw.get("_base", {})
    if not isinstance(under, dict):
        raise UserError(f"{name}: _base holds fields, not {under!r}")
    if INHERIT in raw or INHERIT in under:
        raise UserError(f"{name}: {INHERIT} belongs inside a variant")
    blocks = {key for key, value in raw.items() if key.startswith("_") or isinstance(value, dict)}
    top = {key: value for key, value in raw.items() if is_field(key) or key not in blocks}
    for key, value in top.items():
        if key in under:
            raise UserError(f"{name}: {key} is given both on top and under _base")
        if value is None and key in ALGORITHMS:
            raise UserError(f"{name}: the variant {key!r} is empty; write {key}: {{}}")
    return {**under, **top}
