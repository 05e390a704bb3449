"""`ENV:ALGORITHM` without a variant: the algorithm's general settings for a class of tasks, of config/general/*.yaml.

The class of a task follows from its spaces, which `look` reads; algorithms that do not fit are refused.
"""

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from stride.config.diff import differing, short
from stride.config.extras import COMPILED, ENVPOOL, extra_of, missing
from stride.config.fields import algorithms, check_algorithm
from stride.config.loader import compose, file_of, id_in, shipped_ids, to_plain
from stride.config.nearby import advice
from stride.config.plugins import DOTTED, TooEarlyError, check_module, is_dotted
from stride.config.raw import AUTO, EnvironmentFile, Raw, overlay
from stride.config.schema import Config
from stride.utils.places import TRAIN, current_project
from stride.utils.user_error import UserError

GENERAL = Path(__file__).parent / "general"
SETTINGS = "general settings"  # how the description of such a config begins
CHOSEN = "; auto chose "  # in the description of a config that `ENV:auto` became
LARGEST_TABLE = 1 << 24  # pairs of state and action that a table is offered for
PICTURE = 84  # pixels of the smaller side from which on an image is a picture, to be seen grey and small
GRID = 16  # below it each pixel is a cell with a meaning, as in MiniGrid and MinAtar
WORLD = ("env_kwargs", "env_wrappers", "frame_skip", "obs", "grayscale_obs", "resize_obs", "frame_stack", "action_mask",
         "max_episode_steps", "env_backend", "spec", "step_timeout", "workers", "on_worker_death")  # fmt: skip
# by how ids begin: what no network reads otherwise; compiled tasks show one picture
FAMILIES = {"MiniGrid-": {"env_wrappers": [{"id": "MiniGridFlat"}]}}
# the actions that each algorithm takes: one choice, several at once, numbers with bounds, numbers without
TAKES = {
    "ppo": ("choice", "choices", "bounded", "unbounded"),
    "reinforce": ("choice", "choices", "bounded", "unbounded"),
    "dqn": ("choice",),
    "pqn": ("choice",),
    "sac": ("bounded",),
    "td3": ("bounded",),
    "tqc": ("bounded",),
    "q_learning": ("choice",),
    "dreamer": ("choice", "choices", "bounded"),
    "planet": ("choice", "choices", "bounded"),
}

# the blocks of a file of settings, in English
KINDS = {
    "continuous": "continuous control",
    "discrete": "small discrete tasks",
    "tabular": "tasks with few states",
    "images": "images",
    "small_images": "small images",
    "grids": "grids of cells",
    "atari": "Atari games",
    "continuous_images": "continuous control from images",
    "continuous_small_images": "continuous control from small images",
}


class Costs(NamedTuple):
    """Measured seconds on this machine, by which `ENV:auto` chooses."""

    step: float  # of one env step in one environment
    update: float  # of an update of SAC with 256 x 2 units and a batch of 256, on the device of the config


class Task(NamedTuple):
    """The properties of an environment that decide which algorithms fit, and which settings."""

    actions: str  # choice, choices, bounded or unbounded
    spaces_text: str  # in English
    states: int | None  # the number of observations, where they can be counted
    image: int | None  # pixels of the smaller side of the smallest image observed
    atari: bool = False  # a game of ale-py
    measure: Callable[[], Costs] | None = None  # takes a second or two

    @property
    def kind(self) -> str:
        """The block of a file of settings: first by what is done, then by what is observed."""
        is_continuous = self.actions in ("bounded", "unbounded")
        if self.image is None:
            return "continuous" if is_continuous else "tabular" if self.states is not None else "discrete"
        if self.atari and not is_continuous:
            return "atari"
        images = "images" if self.image >= PICTURE else "small_images"
        if is_continuous:
            return f"continuous_{images}"
        return "grids" if self.image < GRID else images

    def fits(self, algo_id: str) -> bool:
        if algo_id == "q_learning" and (self.states is None or self.states > LARGEST_TABLE):
            return False
        return self.actions in TAKES.get(algo_id, (self.actions,))


Look = Callable[[Config], Task]


def split(text: str) -> tuple[str, str]:
    """`ENV:ALGORITHM` in its two parts, either of which may name a module."""
    env_id, _, algorithm = text.rpartition(":")
    env_part, _, module_name = env_id.rpartition(":")
    if algorithm not in (AUTO, *algorithms()) and env_part and DOTTED.fullmatch(f"{module_name}:{algorithm}"):
        return env_part, f"{module_name}:{algorithm}"
    return env_id, algorithm


def is_general(text: str) -> bool:
    """Whether `ENV:ALGORITHM` asks for general settings: it names an algorithm, and no variant of that name exists."""
    env_id, algorithm = split(text)
    choices = (AUTO, *algorithms())
    # CartPole-v1:ppo:x is rather a word too many than an algorithm of a module `ppo`
    is_algorithm = algorithm in choices or (is_dotted(algorithm) and algorithm.partition(":")[0] not in choices)
    if not env_id or not is_algorithm:
        return False
    file = file_of(env_id)
    return file is None or algorithm not in file.variants


def is_general_config(config: Config) -> bool:
    """Whether its settings are the general ones of its algorithm."""
    return config.description.startswith(SETTINGS)


def settings_of(config: Config, chosen: Sequence[str] = ()) -> Config:
    """A config of general settings as its file says it, without what was changed for a run.

    `chosen`: the overrides that `ENV:auto` chose, which are settings, too."""
    algo_id, description = config.algo_id, config.description.partition(CHOSEN)[0]
    settings = _raw(_task_values(config.env_id), algo_id)
    if algo_id in TAKES:
        file = EnvironmentFile.read(GENERAL / f"{algo_id}.yaml")
        for kind in file.variants:
            if file.raw(kind).values.get("description") == description:
                settings = overlay(settings, file.raw(kind))
    has_budget = "max_timesteps" in settings.values
    settings = settings if has_budget else overlay(settings, _raw({"max_timesteps": 1 << 20}, algo_id))
    general = compose(settings, algo_id, chosen, config.variant, f"general/{algo_id}.yaml")
    return general if has_budget else replace(general, max_timesteps=config.max_timesteps)


def load_general(text: str, overrides: Sequence[str], look: Look | None) -> Config:
    """The config of an algorithm on any environment; `look` makes the environment of a config and describes it.

    UserError where the algorithm does not fit, or has no settings for such a task; TooEarlyError without `look`.
    """
    env_id, algo_id = split(text)
    variant = algo_id
    if look is None:
        check_module(env_id, env_id)
        check_module(algo_id, text)
        _check_id(env_id, text)
        raise TooEarlyError(text)
    if algo_id == AUTO:
        algo_id = _algorithm_in(overrides)
        if not algo_id:
            instead = f"here, name an algorithm: {env_id}:sac"
            raise UserError(f"{text} measures, and may choose otherwise the next time; {instead}")
    algo_id = check_algorithm(algo_id, text)
    values = _task_values(env_id)
    if algo_id not in TAKES:
        values["description"] = f"{SETTINGS}: the defaults of {algo_id}"
        return compose(_raw(values, text), algo_id, overrides, variant, text)
    task = look(world_config(text, overrides))
    _check_fit(env_id, algo_id, task)
    raw_config = overlay(_raw(values, text), EnvironmentFile.read(GENERAL / f"{algo_id}.yaml").raw(task.kind))
    return compose(raw_config, algo_id, overrides, variant, f"general/{algo_id}.yaml:{task.kind}")


def world_config(text: str, overrides: Sequence[str], more: Sequence[str] = ()) -> Config:
    """A config of any algorithm with the environment of `ENV:ALGORITHM`, as the overrides change it, for a look at it.

    `more`: other keys of which overrides count."""
    taken = (*WORLD, *more)
    about_worlds = [override for override in overrides if re.split("[=.]", override.lstrip("-"))[0].strip() in taken]
    values = {**_task_values(split(text)[0]), "max_timesteps": 1 << 20}
    return compose(_raw(values, text), "ppo", about_worlds, "ppo", text)


def is_undecided(text: str, overrides: Sequence[str]) -> bool:
    """Whether this is `ENV:auto` before an algorithm is chosen for it, by the override algo_id."""
    return is_general(text) and split(text)[1] == AUTO and not _algorithm_in(overrides)


def _algorithm_in(overrides: Sequence[str]) -> str:
    """The algorithm that an override names; "" where none does."""
    pairs = [override.lstrip("-").partition("=") for override in overrides]
    return next((value for key, _, value in pairs if key == "algo_id"), "")


def _task_values(env_id: str) -> dict[str, Any]:
    """The values of a config that follow from its environment alone."""
    file, short_id = file_of(env_id), env_id.rpartition(":")[2]
    values: dict[str, Any] = {"env_id": id_in(file, env_id) if file else env_id, "project_id": short_id}
    for prefix, settings in FAMILIES.items():
        if short_id.startswith(prefix) and not COMPILED.match(env_id):
            values |= settings
    if file and "spec" in file.base:
        values["spec"] = file.base["spec"]
    return values


def _raw(values: dict[str, Any], where: str) -> Raw:
    return Raw(values, dict.fromkeys(values, where))


def _check_id(env_id: str, text: str) -> None:
    """UserError for an id that nobody can have registered: a typo need not wait for torch, nor for Gymnasium."""
    extra, user_project = extra_of(env_id), current_project()
    own = ("Bandit", "MinAtar/", "popgym-")  # how ids begin of compiled worlds that Gymnasium has not
    if is_dotted(env_id) or env_id.startswith(own) or (extra and extra.registers) or file_of(env_id):
        return
    if "gymnasium" in sys.modules or entry_points(group="gymnasium.envs") or (user_project and user_project.imports):
        return  # a module, a plug-in or a project may register anything
    registered_ids = gymnasium_ids()
    if registered_ids and env_id not in registered_ids:
        is_envpool = env_id.startswith("envpool/")
        hint = f": {ENVPOOL}" if is_envpool else advice(env_id, [*registered_ids, *shipped_ids()])
        raise UserError(f"{text}: no environment {env_id!r} is shipped or registered with Gymnasium{hint}")
    if registered_ids and extra and missing(env_id):
        raise UserError(extra.need(env_id))


def gymnasium_ids() -> list[str]:
    """The ids that Gymnasium registers, read from its source: importing it takes a third of a second."""
    module_spec = find_spec("gymnasium")
    if not module_spec or not module_spec.origin:
        return []
    source = Path(module_spec.origin).parent / "envs" / "__init__.py"
    return re.findall(r'\bid="([^"]+)"', source.read_text(encoding="utf-8")) if source.is_file() else []


KEEP = "these are general settings; save them to your own file:"


def to_keep(config: Config) -> list[str]:
    """A YAML file of three lines with the settings of such a config, whatever becomes of the general ones."""
    settings = {}
    for key, value in differing(to_plain(config)).items():
        if key != "seed":
            settings[key] = (short(value) or value) if isinstance(value, dict) else value
    if config.spec.goal is not None:
        settings["spec"] = {"goal": config.spec.goal}
    if is_dotted(config.algo_id):
        settings["algo_id"] = config.algo_id
    settings_text = ", ".join(f"{key}: {json.dumps(value)}" for key, value in settings.items())
    algorithm = config.algo_id.rpartition(":")[2].lower()  # a class is NStep, a variant is nstep
    settings_line = f"{algorithm}: {{{settings_text}}}"
    return [f"# my.yaml, for: {TRAIN} --config my.yaml", f"env_id: {config.env_id}", settings_line]


def _check_fit(env_id: str, algo_id: str, task: Task) -> None:
    """UserError where the algorithm cannot act there, or nobody has chosen settings; it names those that fit."""
    fitting = [algorithm for algorithm in TAKES if task.fits(algorithm) and _has_settings(algorithm, task.kind)]
    others = f"only {fitting[0]} has" if len(fitting) == 1 else f"{', '.join(fitting)} have"
    if not task.fits(algo_id):
        raise UserError(f"{algo_id} does not fit {env_id}: {task.spaces_text}; {others} general settings for it")
    if not _has_settings(algo_id, task.kind):
        missing_text = f"{algo_id} has no general settings for {KINDS[task.kind]} ({env_id})"
        raise UserError(f"{missing_text}: write your own variant; {others} general settings")


def _has_settings(algo_id: str, kind: str) -> bool:
    settings_path = GENERAL / f"{algo_id}.yaml"
    return settings_path.is_file() and kind in EnvironmentFile.read(settings_path).variants
