"""Loads a config from `ENV:VARIANT`, a user's file or a run's config.json, and turns a config into data for JSON.

Every config is made here. So all other code can trust that a config has only known keys, exact types and numbers in
range, and keeps all rules between keys.

How `train.py CartPole-v1:ppo gamma=0.98` becomes a config, step by step:

    parse_config_id      loader      "CartPole-v1:ppo" -> ("CartPole-v1", "ppo")
    file_of              loader      which YAML file: of the user's project, shipped, or of an installed package
    read_yaml            yaml_file   its text as plain data, sizes and duplicate keys checked
    EnvironmentFile      raw         base fields and blocks; check_key (fields) for every key
    .raw("ppo")          raw         Raw: base, inherited blocks, own block on top of each other
    apply_overrides      raw         "gamma=0.98" on top
    fold_schedules       raw         policy_lr_schedule, .._end -> one mapping
    convert              fields      each value as the type of its field
    Config(..), check    checks      ranges, sizes and rules between fields
    to_plain             loader      data for config.json; from_plain reads that back through the same steps"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

from stride.config.checks import check, check_version
from stride.config.fields import algorithms, cannot_schedule, check_algorithm, check_key, convert, hints, schedulable
from stride.config.foreign import algorithm_advice, atari_id
from stride.config.nearby import advice
from stride.config.plugins import NOBODY, Trust, check_names, package_folders
from stride.config.raw import EnvironmentFile, Raw, apply_overrides, fold_schedules, overlay
from stride.config.schedule import is_named
from stride.config.schema import ALGORITHMS, CHANGES, SCHEMA_VERSION, Config, REINFORCEConfig
from stride.config.sizes import check_whole_numbers
from stride.utils.places import current_project
from stride.utils.user_error import UserError, check_value, errors_in, nearest

ENVIRONMENTS = Path(__file__).parent / "environments"
FAMILY = re.compile("^(ALE|MinAtar|bsuite|VizDoom|Retro)-")  # names of files whose ids have a slash: ALE-Pong-v5.yaml
Migrations = Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]]
# Version n -> a function that turns a config's plain data of version n into that of n + 1, or raises UserError. Each
# needs a test with a config that was really written by version n.
MIGRATIONS: Migrations = {}


def config_folders() -> list[Path]:
    """Return the folders that are searched first for YAML files: the user's project's, then the shipped one."""
    user_project = current_project()
    return [user_project.configs, ENVIRONMENTS] if user_project else [ENVIRONMENTS]


def environment_files() -> dict[str, Path]:
    """Return file stem -> YAML file, of the user's project, shipped, and of installed packages.

    The stem is the environment's id with '-' for '/': ALE-Pong-v5. If two files have it, the first one counts."""
    return _files_in([*config_folders(), *package_folders()])


def shipped_files() -> dict[str, Path]:
    """Return file stem -> YAML file, only of the files that come with Stride."""
    return _files_in([ENVIRONMENTS])


def _files_in(folders: Sequence[Path]) -> dict[str, Path]:
    """Return file stem -> YAML file; if two have the same name, the one in the earlier folder."""
    files: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.yaml")):
            files.setdefault(path.stem, path)
    return files


def file_of(env_id: str) -> EnvironmentFile | None:
    """Return the YAML file of an environment, None if there is none; the user's project comes first."""
    file = own_file_of(env_id)
    if file:
        return file
    file_stem = env_id.replace("/", "-")
    path = _files_in(config_folders()).get(file_stem) or _files_in(package_folders()).get(file_stem)
    return EnvironmentFile.read(path) if path else None


def own_file_of(env_id: str) -> EnvironmentFile | None:
    """Return the user's project's file for an id with a module, `mypkg:Maze-v0`; None if there is none."""
    user_project = current_project()
    module, _, name = env_id.rpartition(":")
    if not (user_project and module and name):
        return None
    path = user_project.configs / f"{name.replace('/', '-')}.yaml"
    return EnvironmentFile.read(path) if path.is_file() else None


def id_in(file: EnvironmentFile, env_id: str) -> str:
    """Return the id that the file gives its environment.

    The module in `env_id` (`mypkg:Maze-v0`) is put before it, unless the file or the project already imports it."""
    user_project, module = current_project(), env_id.rpartition(":")[0]
    is_imported = ":" in file.env_id or (user_project and module in user_project.imports)
    return f"{module}:{file.env_id}" if module and not is_imported else file.env_id


def parse_config_id(text: str) -> tuple[str, str]:
    """Split ENV:VARIANT into its two parts; UserError if either is missing or unknown."""
    env_id, _, variant = text.partition(":")
    if ":" in variant and own_file_of(text.rpartition(":")[0]):
        env_id, _, variant = text.rpartition(":")
    file = file_of(env_id)
    if not env_id or (":" in variant and file):
        raise UserError(f"{text!r} is not ENV:VARIANT, for example CartPole-v1:ppo")
    if file is None:
        raise _no_environment(text)
    return env_id, file.checked_variant(variant)


def load_config(env_id: str, variant_id: str, overrides: Sequence[str] = ()) -> Config:
    """Return the config of a variant with `key=value` overrides on top.

    UserError, one line that names the file, block or override, for the first unknown key, wrong type, number out of
    range or broken rule. Not checked here: whether the environment can be made, its policy exists and memory suffices.
    That is checked where they are made, before a run begins.
    """
    file = file_of(env_id)
    if file is None:
        raise _no_environment(f"{env_id}:")
    return load_variant(file, variant_id, overrides, env_id)


def load_shipped(env_id: str, variant_id: str, overrides: Sequence[str] = ()) -> Config:
    """Return the config of a variant that comes with Stride, even if the user's project has a file for that id."""
    path = shipped_files().get(env_id.replace("/", "-"))
    if path is None:
        raise _no_environment(f"{env_id}:")
    return load_variant(EnvironmentFile.read(path), variant_id, overrides)


def load_file(path: str | Path, variant: str = "", overrides: Sequence[str] = ()) -> Config:
    """Return the config of a variant in a user's file; `variant` may be left out if the file has only one."""
    file = EnvironmentFile.read(Path(path))
    if not variant and len(file.variants) == 1:
        variant = file.variants[0]
    return load_variant(file, variant, overrides)


def load_variant(file: EnvironmentFile, variant: str, overrides: Sequence[str] = (), typed_id: str = "") -> Config:
    """Return the config of a variant of this file; `typed_id`: the environment's id as the user typed it."""
    file.checked_variant(variant)
    file_stem, where = file.path.stem, f"{file.path.name}:{variant}"
    raw = overlay(
        Raw({"env_id": file_stem, "project_id": file_stem}, {"env_id": where, "project_id": where}), file.raw(variant)
    )
    if ":" in typed_id:
        raw.values["env_id"] = id_in(file, typed_id)
    return compose(raw, file.algorithm(variant), overrides, variant, where)


def to_plain(config: Config) -> dict[str, Any]:
    """Return a config as data for config.json; `from_plain` reads it back."""
    return {key_name: _lists(value) for key_name, value in asdict(config).items()}


def from_plain(
    values: object, where: str = "config.json", overrides: Sequence[str] = (), trust: Trust = NOBODY
) -> Config:
    """Return the config from to_plain's data, with every check of a YAML file, and overrides on top.

    `trust`: an algorithm of the user's own (`module:Agent`) is imported only if its module is trusted. Nothing else is
    imported here: code that makes environments and agents of a config from elsewhere calls `check_names` first.
    """
    if not isinstance(values, Mapping):
        raise UserError(f"{where}: a config must be a mapping, not {values!r}")
    if values.get("algo_id") not in list(ALGORITHMS):  # a list, because the value may be a type that cannot be hashed
        check_names({"algo_id": values.get("algo_id")}, trust, where)
    check_whole_numbers(values, where)
    with errors_in(where):
        values = migrate(values)
        check_version(values.get("schema_version"))
    algo_id = check_algorithm(values.get("algo_id"), where)
    variant = str(values.pop("variant", ""))
    for key in values:
        check_key(key, algo_id, where)
    return compose(Raw(values, dict.fromkeys(values, where)), algo_id, overrides, variant, where, stored=True)


def migrate(
    values: Mapping[str, object],
    migrations: Migrations = MIGRATIONS,
    newest: int = SCHEMA_VERSION,
    changes: Mapping[int, str] = CHANGES,
) -> dict[str, Any]:
    """Return a copy of an older run's config with the keys of version `newest`; UserError if a migration is missing."""
    plain, version = dict(values), values.get("schema_version")
    if isinstance(version, bool) or not isinstance(version, int) or version > newest:
        return plain  # check_version refuses it
    for old_version in range(version, newest):
        if old_version not in migrations:
            changes_since = "; ".join(f"{later}: {change}" for later, change in changes.items() if later > old_version)
            raise UserError(
                f"schema_version is {old_version}, but this Stride reads {newest}; changes since: {changes_since}"
            )
        plain = {**migrations[old_version](dict(plain)), "schema_version": old_version + 1}
    return plain


def compose(raw: Raw, algo_id: str, overrides: Sequence[str], variant: str, where: str, stored: bool = False) -> Config:
    """Return the checked config of the values in `raw`, with overrides on top.

    `where`: the name in errors that concern no single key. `stored`: the values come from a run's config.json, which
    has every key; so a key in it does not mean that a person wrote it.
    """
    raw, algo_id = apply_overrides(raw, overrides, algo_id)
    if _is_typed(raw, "eval_freq_steps") and not _is_typed(raw, "eval_freq_epochs"):
        raw.values["eval_freq_epochs"] = "auto"  # replaces the variant's value; only one of the two keys may be set
    raw.values["algo_id"] = algo_id
    raw.where.setdefault("algo_id", where)
    for key, value in raw.values.items():
        with errors_in(raw.where[key]):
            check_value(key, value)
    defaults = {
        config_field.name: config_field.default
        for config_field in fields(ALGORITHMS[algo_id])
        if config_field.default is not MISSING
    }
    raw = fold_schedules(raw, defaults)
    config = _build(raw, algo_id, variant, where)
    # true is the default, so without evaluation it is an error only if a person wrote it for this run
    key = "early_stop_on_eval_threshold"
    location = raw.where.get(key, where)
    is_written = key in raw.where and not (stored and location == where)
    if config.early_stop_on_eval_threshold is True and config.eval_freq_epochs is None and is_written:
        prefix = "" if location.startswith(key) else f"{location}: "
        raise UserError(f"{prefix}{key}: true needs evaluation, but eval_freq_epochs is null")
    ignores_values = isinstance(config, REINFORCEConfig) and config.policy_targets == "returns"
    if ignores_values and "vf_coef" in raw.values and not stored:
        raise UserError(f"{raw.where['vf_coef']}: vf_coef has no effect without policy_targets: advantages")
    return config


def _is_typed(raw: Raw, key: str) -> bool:
    """Return whether an override sets the key, to something else than null."""
    return raw.where.get(key, "").startswith(f"{key}=") and raw.values[key] is not None


def _build(raw: Raw, algo_id: str, variant: str, where: str) -> Config:
    """Return the config, after each value got the type of its field and `check` found no broken rule."""
    config_class = ALGORITHMS[algo_id]
    field_types, scheduled = hints(config_class), schedulable(config_class)
    converted: dict[str, Any] = {"variant": variant}
    for key, value in raw.values.items():
        with errors_in(raw.where[key]):
            if isinstance(value, str) and is_named(value) and key not in scheduled and field_types[key] is not str:
                raise UserError(cannot_schedule(key, algo_id))
            converted[key] = convert(key, field_types[key], value)
    for key in ("eval_freq_epochs", "eval_freq_steps", "video_freq_epochs"):
        if converted.get(key) == 0:  # 0 and null both mean never; a config stores only null
            converted[key] = None
    if converted.get("eval_freq_steps") and converted.get("eval_freq_epochs") is None:
        converted["eval_freq_epochs"] = "auto"  # null would mean no evaluation, but eval_freq_steps asks for it
    config = config_class(**converted)
    check(config, where)
    return config


def _no_environment(text: str) -> UserError:
    """Return the error for an ENV:VARIANT whose ENV has no file, with suggestions."""
    env_id, name = text, ""
    if ":" in text and not re.search(r"-v\d+$", text):  # a text that ends in a version is an id with a module
        env_id, _, name = text.rpartition(":")
    hint = advice(env_id, shipped_ids()) or "; --list-envs shows them"
    if atari_id(env_id):
        return UserError(f"no environment {env_id!r}{hint}")
    choices = algorithms()
    if name and name not in choices:
        reason = f"{name!r} is not an algorithm{algorithm_advice(name, choices) or nearest(name, choices)}"
    else:
        reason = f"for any other Gymnasium environment, give an algorithm: {env_id}:ppo"
    return UserError(f"there is no shipped config for {env_id!r}{hint}; {reason}")


def shipped_ids() -> list[str]:
    """Return the ids of environments that have a file: "ALE/Pong-v5" for ALE-Pong-v5.yaml."""
    return [FAMILY.sub(r"\1/", stem) for stem in environment_files()]


def _lists(value: object) -> object:
    """Return a value as JSON gives it back: tuples become lists, and subclasses of str (FollowKL) plain text."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, list | tuple) else value
