"""Make a config for an environment that has no settings of its own, as in `stride train Walker2d-v5:sac`.

Each algorithm has a file config/general/ALGORITHM.yaml with general settings, one block for each kind of task ("atari",
"continuous", ...). The kind of a task follows from its action and observation spaces. Reading them means making the
environment, which needs torch or Gymnasium; so callers pass a function `look` that does it. An algorithm that does not
fit the spaces is refused with the names of those that do.
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
SETTINGS_PREFIX = "general settings"  # the description of every config made here begins with this
CHOSEN_PREFIX = "; auto chose "  # stands in the description of a config that `ENV:auto` became
MAX_TABLE_STATES = 1 << 24  # largest number of states for which a table (q_learning) is offered
# Sides of an image in pixels, the smaller one of the two. From 84 on it is a picture, which is made grey and smaller;
# below 16 each pixel is a cell with a meaning, as in MiniGrid and MinAtar.
MIN_PICTURE_PIXELS = 84
MIN_IMAGE_PIXELS = 16
ENVIRONMENT_KEYS = (  # config keys that decide how an environment is made, whatever the algorithm is
    "env_kwargs", "env_wrappers", "frame_skip", "obs", "grayscale_obs", "resize_obs", "frame_stack", "action_mask",
    "max_episode_steps", "env_backend", "spec", "step_timeout", "workers", "on_worker_death",
)  # fmt: skip
# Start of an id -> the config values that its environments need, because their observations (dicts) fit no network.
# Compiled MiniGrid tasks do not need them: they return one image.
FAMILIES = {"MiniGrid-": {"env_wrappers": [{"id": "MiniGridFlat"}]}}
# The kinds of action that each algorithm can choose: "choice" = one of n (Discrete), "choices" = several of these at
# once (MultiDiscrete), "bounded" and "unbounded" = real numbers (Box) with and without finite bounds.
ACTIONS_OF = {
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

# block of a file of settings = kind of task -> its name in messages
KIND_NAMES = {
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
    """Seconds measured on this machine; `ENV:auto` chooses the algorithm by their ratio."""

    step: float  # one env step in one environment
    update: float  # one update of SAC with 256 x 2 units and a batch of 256, on the device of the config


class Task(NamedTuple):
    """The properties of an environment that decide which algorithms fit it, and which block of settings they get."""

    actions: str  # "choice", "choices", "bounded" or "unbounded", see ACTIONS_OF
    spaces_text: str  # the spaces in English, for messages
    states: int | None  # the number of different observations (Discrete); None where they cannot be counted
    image: int | None  # pixels of the smaller side of the smallest observed image; None without an image
    atari: bool = False  # whether it is a game of ale-py
    measure: Callable[[], Costs] | None = None  # measures the costs, in a second or two

    @property
    def kind(self) -> str:
        """Return the name of the settings block for this task, a key of KIND_NAMES."""
        is_continuous = self.actions in ("bounded", "unbounded")
        if self.image is None:
            return "continuous" if is_continuous else "tabular" if self.states is not None else "discrete"
        if self.atari and not is_continuous:
            return "atari"
        images = "images" if self.image >= MIN_PICTURE_PIXELS else "small_images"
        if is_continuous:
            return f"continuous_{images}"
        return "grids" if self.image < MIN_IMAGE_PIXELS else images

    def fits(self, algo_id: str) -> bool:
        """Return whether the algorithm can choose such actions; True for a user's own algorithm, of which we know none.

        A table also needs countable states, and not too many of them."""
        if algo_id == "q_learning" and (self.states is None or self.states > MAX_TABLE_STATES):
            return False
        return self.actions in ACTIONS_OF.get(algo_id, (self.actions,))


Look = Callable[[Config], Task]  # makes the environment of a config and describes it


def split(text: str) -> tuple[str, str]:
    """Split `ENV:ALGORITHM` into its two parts.

    Either part may name a module, as in `mypkg:Maze-v0:ppo` and `CartPole-v1:mypkg:MyAgent`."""
    env_id, _, algorithm = text.rpartition(":")
    env_part, _, module_name = env_id.rpartition(":")
    if algorithm not in (AUTO, *algorithms()) and env_part and DOTTED.fullmatch(f"{module_name}:{algorithm}"):
        return env_part, f"{module_name}:{algorithm}"
    return env_id, algorithm


def is_general(text: str) -> bool:
    """Return whether `ENV:ALGORITHM` asks for general settings.

    It does if the second part is an algorithm, and the environment's file has no variant of that name."""
    env_id, algorithm = split(text)
    choices = (AUTO, *algorithms())
    # CartPole-v1:ppo:x more likely has one word too many than an algorithm of a module that is called `ppo`
    is_algorithm = algorithm in choices or (is_dotted(algorithm) and algorithm.partition(":")[0] not in choices)
    if not env_id or not is_algorithm:
        return False
    file = file_of(env_id)
    return file is None or algorithm not in file.variants


def is_general_config(config: Config) -> bool:
    """Return whether a config was made from general settings, which its description says."""
    return config.description.startswith(SETTINGS_PREFIX)


def settings_of(config: Config, chosen: Sequence[str] = ()) -> Config:
    """Return the general settings that a run's config started from, without the changes made for that run.

    `chosen`: the overrides that `ENV:auto` chose, which count as settings, not as changes. Where the settings have no
    budget (a user's own algorithm), the result keeps the budget of `config`."""
    algo_id, description = config.algo_id, config.description.partition(CHOSEN_PREFIX)[0]
    settings = _raw(_task_values(config.env_id), algo_id)
    if algo_id in ACTIONS_OF:
        file = EnvironmentFile.read(GENERAL / f"{algo_id}.yaml")
        for kind in file.variants:
            if file.raw(kind).values.get("description") == description:
                settings = overlay(settings, file.raw(kind))
    has_budget = "max_timesteps" in settings.values
    settings = settings if has_budget else overlay(settings, _raw({"max_timesteps": 1 << 20}, algo_id))
    general = compose(settings, algo_id, chosen, config.variant, f"general/{algo_id}.yaml")
    return general if has_budget else replace(general, max_timesteps=config.max_timesteps)


def load_general(text: str, overrides: Sequence[str], look: Look | None) -> Config:
    """Return the config for `ENV:ALGORITHM`: general settings for this kind of task, with the overrides on top.

    `look`: makes the environment of a config and describes it. Without it (None: a caller that has not imported torch
    yet) the names are checked as far as possible, then TooEarlyError asks the caller to come back with `look`.
    UserError if the algorithm does not fit the environment, or has no settings for its kind of task.
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
    if algo_id not in ACTIONS_OF:
        values["description"] = f"{SETTINGS_PREFIX}: the defaults of {algo_id}"
        return compose(_raw(values, text), algo_id, overrides, variant, text)
    task = look(world_config(text, overrides))
    _check_fit(env_id, algo_id, task)
    raw_config = overlay(_raw(values, text), EnvironmentFile.read(GENERAL / f"{algo_id}.yaml").raw(task.kind))
    return compose(raw_config, algo_id, overrides, variant, f"general/{algo_id}.yaml:{task.kind}")


def world_config(text: str, overrides: Sequence[str], more: Sequence[str] = ()) -> Config:
    """Return a config that describes only the environment of `ENV:ALGORITHM`, for a `look` at its spaces.

    Overrides of ENVIRONMENT_KEYS and of the keys in `more` are applied, others are left out. The algorithm (ppo) and
    the budget have no meaning: a config needs some."""
    used_keys = (*ENVIRONMENT_KEYS, *more)
    used_overrides = []
    for override in overrides:
        key = re.split("[=.]", override.lstrip("-"))[0].strip()
        if key in used_keys:
            used_overrides.append(override)
    values = {**_task_values(split(text)[0]), "max_timesteps": 1 << 20}
    return compose(_raw(values, text), "ppo", used_overrides, "ppo", text)


def is_undecided(text: str, overrides: Sequence[str]) -> bool:
    """Return whether this is `ENV:auto` and no override says algo_id=..., so that an algorithm must still be chosen."""
    return is_general(text) and split(text)[1] == AUTO and not _algorithm_in(overrides)


def _algorithm_in(overrides: Sequence[str]) -> str:
    """Return the value of the override `algo_id=...`; "" if there is none."""
    pairs = [override.lstrip("-").partition("=") for override in overrides]
    return next((value for key, _, value in pairs if key == "algo_id"), "")


def _task_values(env_id: str) -> dict[str, Any]:
    """Return the config values that follow from the environment alone: ids, wrappers of its family, its spec."""
    file, short_id = file_of(env_id), env_id.rpartition(":")[2]
    values: dict[str, Any] = {"env_id": id_in(file, env_id) if file else env_id, "project_id": short_id}
    for prefix, settings in FAMILIES.items():
        if short_id.startswith(prefix) and not COMPILED.match(env_id):
            values |= settings
    if file and "spec" in file.base:
        values["spec"] = file.base["spec"]
    return values


def _raw(values: dict[str, Any], where: str) -> Raw:
    """Return values that were all written in one place, `where`."""
    return Raw(values, dict.fromkeys(values, where))


def _check_id(env_id: str, text: str) -> None:
    """Raise UserError for an id that cannot be registered anywhere, without importing torch or Gymnasium.

    So a typo is reported at once, not after seconds of imports. Any id that a module might register is accepted."""
    extra, user_project = extra_of(env_id), current_project()
    compiled_prefixes = ("Bandit", "MinAtar/", "popgym-")  # compiled environments that Gymnasium does not have
    if is_dotted(env_id) or env_id.startswith(compiled_prefixes) or (extra and extra.registers) or file_of(env_id):
        return
    # an imported module, a plug-in or a project may have registered, or will register, any id
    if "gymnasium" in sys.modules or entry_points(group="gymnasium.envs") or (user_project and user_project.imports):
        return
    registered_ids = gymnasium_ids()
    if registered_ids and env_id not in registered_ids:
        is_envpool = env_id.startswith("envpool/")
        hint = f": {ENVPOOL}" if is_envpool else advice(env_id, [*registered_ids, *shipped_ids()])
        raise UserError(f"{text}: no environment {env_id!r} is shipped or registered with Gymnasium{hint}")
    if registered_ids and extra and missing(env_id):
        raise UserError(extra.need(env_id))


def gymnasium_ids() -> list[str]:
    """Return the ids that Gymnasium registers, read from its source: importing it takes a third of a second.

    Empty where Gymnasium, or its source file, is not found."""
    module_spec = find_spec("gymnasium")
    if not module_spec or not module_spec.origin:
        return []
    source = Path(module_spec.origin).parent / "envs" / "__init__.py"
    return re.findall(r'\bid="([^"]+)"', source.read_text(encoding="utf-8")) if source.is_file() else []


KEEP_ADVICE = "these are general settings; save them to your own file:"


def to_keep(config: Config) -> list[str]:
    """Return the three lines of a YAML file that keeps the settings of a config, even if the general ones change."""
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
    """Raise UserError if the algorithm does not fit the task, or has no settings for it; it names those that do."""
    fitting = [algorithm for algorithm in ACTIONS_OF if task.fits(algorithm) and _has_settings(algorithm, task.kind)]
    others = f"only {fitting[0]} has" if len(fitting) == 1 else f"{', '.join(fitting)} have"
    if not task.fits(algo_id):
        raise UserError(f"{algo_id} does not fit {env_id}: {task.spaces_text}; {others} general settings for it")
    if not _has_settings(algo_id, task.kind):
        missing_text = f"{algo_id} has no general settings for {KIND_NAMES[task.kind]} ({env_id})"
        raise UserError(f"{missing_text}: write your own variant; {others} general settings")


def _has_settings(algo_id: str, kind: str) -> bool:
    """Return whether config/general/ALGORITHM.yaml has a block for this kind of task."""
    settings_path = GENERAL / f"{algo_id}.yaml"
    return settings_path.is_file() and kind in EnvironmentFile.read(settings_path).variants
