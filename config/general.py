"""`ENV:ALGORITHM` without a variant: the algorithm's general settings for a class of tasks, of config/general/*.yaml.

Which class a task is of is read off its spaces, by whoever can make worlds; algorithms that do not fit are refused.
"""

import json
import re
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from stride.config.diff import differing, short
from stride.config.extras import ENVPOOL, extra_of
from stride.config.fields import algorithms, check_algorithm
from stride.config.loader import compose, environment_files, file_of, id_in, to_plain
from stride.config.plugins import DOTTED, TooEarlyError, is_dotted
from stride.config.raw import EnvironmentFile, Raw, overlay
from stride.config.schema import ALGORITHMS, Config
from stride.utils.places import TRAIN
from stride.utils.project import project
from stride.utils.user_error import UserError, nearest

GENERAL = Path(__file__).parent / "general"
SETTINGS = "general settings"  # how the description of such a config begins
LARGEST_TABLE = 1 << 24  # pairs of state and action that a table is offered for
PICTURE = 84  # pixels of the smaller side from which on an image is a picture, to be seen grey and small
WORLD = ("env_kwargs", "env_wrappers", "frame_skip", "obs", "grayscale_obs", "resize_obs", "frame_stack", "action_mask",
         "max_episode_steps", "env_backend", "spec", "step_timeout", "workers", "on_worker_death")  # fmt: skip
# by how ids begin: what no network reads otherwise
FAMILIES = {"MiniGrid-": {"env_wrappers": [{"id": "MiniGridFlat"}]}}
# the actions that each algorithm takes: one choice, several at once, numbers with bounds, numbers without
TAKES = {
    "ppo": ("choice", "choices", "bounded", "unbounded"),
    "reinforce": ("choice", "choices", "bounded", "unbounded"),
    "dqn": ("choice",),
    "pqn": ("choice",),
    "sac": ("bounded",),
    "q_learning": ("choice",),
    "dreamer": ("choice", "choices", "bounded"),
    "planet": ("choice", "choices", "bounded"),
}


class Task(NamedTuple):
    """What decides which algorithms fit a world, and which settings."""

    actions: str  # choice, choices, bounded or unbounded
    said: str  # the spaces in words
    states: int | None  # how many observations there are, where they can be counted
    image: int | None  # pixels of the smaller side of the smallest image seen
    atari: bool = False  # a game of ale-py

    @property
    def kind(self) -> str:
        """The block of a file of settings."""
        if self.image is not None:
            large = "atari" if self.atari else "images"
            return large if self.image >= PICTURE else "small_images"
        if self.actions in ("bounded", "unbounded"):
            return "continuous"
        return "tabular" if self.states is not None else "discrete"

    def fits(self, algo_id: str) -> bool:
        if algo_id == "q_learning" and (self.states is None or self.states > LARGEST_TABLE):
            return False
        return self.actions in TAKES.get(algo_id, (self.actions,))


Look = Callable[[Config], Task]


def split(words: str) -> tuple[str, str]:
    """`ENV:ALGORITHM` in its two parts, where an id may name its module, and an algorithm, too."""
    env_id, _, name = words.rpartition(":")
    module = env_id.rpartition(":")[2]
    if name not in algorithms() and module != env_id and DOTTED.fullmatch(f"{module}:{name}"):
        return env_id.rpartition(":")[0], f"{module}:{name}"
    return env_id, name


def is_general(words: str) -> bool:
    """Whether `ENV:ALGORITHM` asks for general settings: an algorithm, and no variant of that name is there."""
    env_id, name = split(words)
    if not env_id or not (name in algorithms() or (is_dotted(name) and name.partition(":")[0] not in algorithms())):
        return False  # CartPole-v1:ppo:x rather is a word too many than an algorithm of a module `ppo`
    file = file_of(env_id)
    return file is None or name not in file.variants


def is_general_config(config: Config) -> bool:
    """Whether its settings are those of nobody in particular."""
    return config.description.startswith(SETTINGS)


def load_general(words: str, overrides: Sequence[str], look: Look | None) -> Config:
    """The config of an algorithm on any environment; `look` makes a world of a config and says what it is.

    UserError where the algorithm does not fit, or has no settings for such a task; TooEarlyError where nobody can look.
    """
    env_id, algo_id = split(words)
    if look is None:
        _check_known(env_id, words)
        raise TooEarlyError(words)
    algo_id = check_algorithm(algo_id, words)
    shipped = file_of(env_id)
    said: dict[str, object] = {
        "env_id": id_in(shipped, env_id) if shipped else env_id,
        "project_id": env_id.rpartition(":")[2],
    }
    for start, ways in FAMILIES.items():
        said |= ways if env_id.rpartition(":")[2].startswith(start) else {}
    said |= {"spec": shipped.base["spec"]} if shipped and "spec" in shipped.base else {}
    about = Raw(said, dict.fromkeys(said, words))
    if algo_id not in TAKES:
        about = _with(about, "description", f"{SETTINGS}: the defaults of {algo_id}")
        return compose(about, algo_id, overrides, algo_id, words)
    task = look(_bare(about, overrides, words))
    _check_fit(env_id, algo_id, task)
    raw = EnvironmentFile.read(GENERAL / f"{algo_id}.yaml").raw(task.kind)
    return compose(overlay(about, raw), algo_id, overrides, algo_id, f"general/{algo_id}.yaml:{task.kind}")


def _check_known(env_id: str, words: str) -> None:
    """UserError for an id that nobody can have registered: a typo need not wait for torch, nor for Gymnasium."""
    extra = extra_of(env_id)
    late = env_id.startswith("Bandit") or (extra is not None and extra.registers)  # there only once it is asked for
    plain = not is_dotted(env_id) and not late and not file_of(env_id)
    own = project()
    if not plain or "gymnasium" in sys.modules or entry_points(group="gymnasium.envs") or (own and own.imports):
        return  # a module, a plug-in or a project may register anything
    known = gymnasium_ids()
    if known and env_id not in known:
        old = env_id.startswith("envpool/")
        meant = f": {ENVPOOL}" if old else nearest(env_id, [*known, *environment_files()])
        raise UserError(f"{words}: no environment {env_id!r}, neither shipped nor registered with Gymnasium{meant}")


def gymnasium_ids() -> list[str]:
    """Those that Gymnasium registers itself, read off its source: importing it takes a third of a second."""
    found = find_spec("gymnasium")
    file = Path(found.origin).parent / "envs" / "__init__.py" if found and found.origin else None
    return re.findall(r'\bid="([^"]+)"', file.read_text(encoding="utf-8")) if file and file.is_file() else []


def _bare(about: Raw, overrides: Sequence[str], words: str) -> Config:
    """As much of a config as it takes to make a world: what the overrides say of worlds."""
    asked = [text for text in overrides if text.lstrip("-").partition("=")[0].split(".")[0].strip() in WORLD]
    return compose(_with(about, "max_timesteps", 1 << 20), "ppo", asked, "ppo", words)


def _with(raw: Raw, key: str, value: object) -> Raw:
    return Raw({**raw.values, key: value}, {**raw.where, key: next(iter(raw.where.values()))})


KEEP = "these settings are anybody's; a file of your own keeps them:"


def to_keep(config: Config) -> list[str]:
    """A YAML file of three lines that says what such a config says, whatever becomes of the general settings."""
    plain = to_plain(config)
    said = {key: short(value) or value if isinstance(value, dict) else value for key, value in differing(plain).items()}
    said |= {"spec": {"goal": config.spec.goal}} if config.spec.goal is not None else {}
    said |= {"algo_id": config.algo_id} if is_dotted(config.algo_id) else {}
    said.pop("seed", None)
    block = ", ".join(f"{key}: {json.dumps(value)}" for key, value in said.items())
    name = config.algo_id.rpartition(":")[2]
    return [f"# my.yaml, for: {TRAIN} --config my.yaml", f"env_id: {config.env_id}", f"{name}: {{{block}}}"]


def _check_fit(env_id: str, algo_id: str, task: Task) -> None:
    """UserError where the algorithm cannot act there, or nobody has chosen settings; it names those that fit."""
    fitting = [name for name in ALGORITHMS if name in TAKES and task.fits(name) and _has(name, task.kind)]
    ways = f"general settings fit of {', '.join(fitting)}"
    if not task.fits(algo_id):
        raise UserError(f"{algo_id} does not fit {env_id}: {task.said}; {ways}")
    if not _has(algo_id, task.kind):
        kind = task.kind.replace("_", " ")
        raise UserError(f"{algo_id} has no general settings for {kind} ({env_id}): write a variant of your own; {ways}")


def _has(algo_id: str, kind: str) -> bool:
    path = GENERAL / f"{algo_id}.yaml"
    return path.is_file() and kind in EnvironmentFile.read(path).variants
