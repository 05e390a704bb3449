"""From `ENV:VARIANT` or a file, with overrides, to a checked config; and between configs and plain data.

The only entrance: whatever leaves here has known keys, exact types, valid ranges and rules kept."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, NamedTuple

from stride.config.checks import check, check_version
from stride.config.field_types import convert, hints, schedulable
from stride.config.keys import cannot_schedule, check_algorithm, check_key
from stride.config.migrations import migrate
from stride.config.overrides import apply_overrides
from stride.config.plugins import NOBODY, Trust, algorithms, check_names, package_folders
from stride.config.schedule import is_named
from stride.config.schedule_keys import Raw, fold
from stride.config.schema import ALGORITHMS, Config, REINFORCEConfig
from stride.config.sizes import check_whole_numbers
from stride.config.variants import EnvironmentFile, overlay
from stride.utils.places import current_project
from stride.utils.user_error import UserError, check_value, nearest

ENVIRONMENTS = Path(__file__).parent / "environments"


class ConfigId(NamedTuple):
    """`CartPole-v1:ppo` in its two parts."""

    env_id: str
    variant: str


def config_folders() -> list[Path]:
    """Where environments are looked for; the first that has a file of the name wins: one's own project, then ours."""
    own = current_project()
    return [*([own.configs] if own else []), ENVIRONMENTS]


def environment_files() -> dict[str, Path]:
    """File stem (the environment's id with '/' as '-') -> YAML file, each folder's in order."""
    found: dict[str, Path] = {}
    folders = [*config_folders(), *package_folders()]  # of two files of one name the shipped one is meant
    for path in (path for folder in folders for path in sorted(folder.glob("*.yaml"))):
        found.setdefault(path.stem, path)
    return found


def shipped_files() -> dict[str, Path]:
    """The same of those that everybody has."""
    return {path.stem: path for path in sorted(ENVIRONMENTS.glob("*.yaml"))}


def parse_config_id(text: str) -> ConfigId:
    """ENV:VARIANT, both parts required and known."""
    env_id, _, variant = text.partition(":")
    if ":" in variant and own_file_of(text.rpartition(":")[0]):
        env_id, _, variant = text.rpartition(":")
    if not env_id or (":" in variant and file_of(env_id)):
        raise UserError(f"{text!r} is not ENV:VARIANT, for example CartPole-v1:ppo")
    file = file_of(env_id)
    if file is None:
        raise _unknown(text)
    return ConfigId(env_id, file.checked_variant(variant))


def load_config(env_id: str, variant_id: str, overrides: Sequence[str] = ()) -> Config:
    """The config of a shipped variant with `key=value` overrides on top.

    What comes back has known keys, exact types, values in range and every rule between fields kept; UserError, one
    line that names file, block or override, for the first thing that is not. Not looked at here: whether the
    environment can be made, its policy exists, and memory suffices; their own doors say that before a run begins.
    """
    return _load(_known(env_id), variant_id, overrides, env_id)


def load_shipped(env_id: str, variant_id: str, overrides: Sequence[str] = ()) -> Config:
    """The same of what everybody has, whatever a project of one's own says of that environment."""
    path = shipped_files().get(env_id.replace("/", "-"))
    if path is None:
        raise _unknown(f"{env_id}:")
    return _load(EnvironmentFile.read(path), variant_id, overrides)


def load_variant(file: EnvironmentFile, variant: str) -> Config:
    """The same of a file that was read already."""
    return _load(file, variant, ())


def load_file(path: str | Path, variant: str = "", overrides: Sequence[str] = ()) -> Config:
    """The same from a file of one's own; the variant may be left out where there is only one."""
    file = EnvironmentFile.read(Path(path))
    if not variant and len(file.variants) == 1:
        variant = file.variants[0]
    return _load(file, variant, overrides)


def to_plain(config: Config) -> dict[str, Any]:
    """Data for config.json."""
    plain = _lists(asdict(config))
    assert isinstance(plain, dict)
    return plain


def from_plain(
    values: object, where: str = "config.json", overrides: Sequence[str] = (), trust: Trust = NOBODY
) -> Config:
    """The config back from to_plain's data, with every check of a YAML file, and overrides on top.

    Nothing is imported but the module of an algorithm that is trusted; what else a config names is imported by who
    makes worlds and agents of it: who has it from elsewhere asks `check_names` first.
    """
    if not isinstance(values, Mapping):
        raise UserError(f"{where}: a config is a mapping, not {values!r}")
    if values.get("algo_id") not in [*ALGORITHMS]:  # a list: it may be anything
        check_names({"algo_id": values.get("algo_id")}, trust, where)
    check_whole_numbers(values, where)
    try:
        values = migrate(values)
        check_version(values.get("schema_version"))
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    algo_id = check_algorithm(values.get("algo_id"), where)
    given = {key: value for key, value in values.items() if key != "variant"}
    for key in given:
        check_key(key, algo_id, where)
    raw, algo_id = apply_overrides(Raw(given, dict.fromkeys(given, where)), overrides, algo_id)
    raw = fold(_checked(raw), _defaults(algo_id))
    config = _build(raw, algo_id, str(values.get("variant", "")), where)
    _check_stop(config, {key: place for key, place in raw.where.items() if place != where})
    return config


def _known(env_id: str) -> EnvironmentFile:
    file = file_of(env_id)
    if file is None:
        raise _unknown(f"{env_id}:")
    return file


def _unknown(text: str) -> UserError:
    """What ENV:VARIANT should have been, where ENV is none of the shipped ones."""
    versioned = re.search(r"-v\d+$", text)  # then the whole of it is an id, and nothing was said to train it with
    env_id, _, name = (text, "", "") if versioned or ":" not in text else text.rpartition(":")
    meant = nearest(env_id.replace("/", "-"), environment_files()) or "; --list-envs shows them"
    way = f"{name!r} is no algorithm{nearest(name, algorithms())}" if name and name not in algorithms() else ""
    way = way or f"any other of Gymnasium's takes an algorithm: {env_id}:ppo"
    return UserError(f"no environment {env_id!r} among the shipped configs{meant}; {way}")


def own_file_of(env_id: str) -> EnvironmentFile | None:
    """The file of one's own project for `module:ENV`, None where there is none, or no module."""
    own, (module, _, name) = current_project(), env_id.rpartition(":")
    path = own.configs / f"{name.replace('/', '-')}.yaml" if own and module and name else None
    return EnvironmentFile.read(path) if path and path.is_file() else None


def id_in(file: EnvironmentFile, env_id: str) -> str:
    """What the file calls its environment; with the module that was named, where only that makes it known."""
    own, module = current_project(), env_id.rpartition(":")[0]
    known = not module or ":" in file.env_id or (own and module in own.imports)
    return file.env_id if known else f"{module}:{file.env_id}"


def file_of(env_id: str) -> EnvironmentFile | None:
    """Its file, of one's own project, shipped, or of an installed package; None where there is none."""
    if own := own_file_of(env_id):
        return own
    stem = env_id.replace("/", "-")
    near = {path.stem: path for folder in reversed(config_folders()) for path in folder.glob("*.yaml")}
    path = near.get(stem) or environment_files().get(stem)
    return EnvironmentFile.read(path) if path else None


def _load(file: EnvironmentFile, variant: str, overrides: Sequence[str], typed: str = "") -> Config:
    """`typed`: the environment as somebody named it, maybe with its module."""
    file.checked_variant(variant)
    stem, where = file.path.stem, f"{file.path.name}:{variant}"
    named = {"env_id": stem, "project_id": stem}
    raw = overlay(Raw(named, dict.fromkeys(named, where)), file.raw(variant))
    if ":" in typed:
        raw.values["env_id"] = id_in(file, typed)
    return compose(raw, file.algorithm(variant), overrides, variant, where)


def compose(raw: Raw, algo_id: str, overrides: Sequence[str], variant: str, where: str) -> Config:
    """The checked config of what was written, with overrides on top; `where` it says what has no place of its own."""
    raw, algo_id = apply_overrides(raw, overrides, algo_id)
    values = {**raw.values, "algo_id": algo_id}
    raw = fold(_checked(Raw(values, {**dict.fromkeys(values, where), **raw.where})), _defaults(algo_id))
    config = _build(raw, algo_id, variant, where)
    _check_stop(config, raw.where)
    if isinstance(config, REINFORCEConfig) and config.policy_targets == "returns" and "vf_coef" in raw.values:
        raise UserError(f"{raw.where['vf_coef']}: vf_coef does nothing without policy_targets: advantages")
    return config


def _check_stop(config: Config, written: Mapping[str, str]) -> None:
    """UserError where somebody wrote, in `written`, that evaluations stop the run, and there are none."""
    key = "early_stop_on_eval_threshold"
    if config.early_stop_on_eval_threshold is True and config.eval_freq_epochs is None and key in written:
        where = "" if written[key].startswith(key) else f"{written[key]}: "
        raise UserError(f"{where}{key}: true needs evaluation, but eval_freq_epochs is null")


def _checked(raw: Raw) -> Raw:
    """The same, nothing in it endless or impossible to write down."""
    for key, value in raw.values.items():
        try:
            check_value(key, value)
        except UserError as error:
            raise UserError(f"{raw.where[key]}: {error}") from error
    return raw


def _build(raw: Raw, algo_id: str, variant: str, where: str) -> Config:
    cls = ALGORITHMS[algo_id]
    types, scheduled = hints(cls), schedulable(cls)
    converted: dict[str, Any] = {}
    for key, value in raw.values.items():
        try:
            if isinstance(value, str) and is_named(value) and key not in scheduled and types[key] is not str:
                raise UserError(cannot_schedule(key, algo_id))
            converted[key] = convert(key, types[key], value)
        except UserError as error:
            raise UserError(f"{raw.where[key]}: {error}") from error
    # 0 and null both mean never; only one of them goes on from here
    for cadence in ("eval_freq_epochs", "video_freq_epochs"):
        if converted.get(cadence) == 0:
            converted[cadence] = None
    config = cls(**{**converted, "variant": variant})
    check(config, where)
    return config


def _defaults(algo_id: str) -> dict[str, Any]:
    return {item.name: item.default for item in fields(ALGORITHMS[algo_id]) if item.default is not MISSING}


def _lists(value: object) -> object:
    """Tuples as lists, as JSON returns them."""
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, list | tuple) else value
