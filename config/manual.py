"""Makes the manual of the config keys: for `--help`, and as Markdown for docs/config.md.

The text of a key is the string under its field in config/algorithms/, and the comment above a group of fields is the
title of its section; both are read from the source, because Python keeps neither.
"""

import ast
import inspect
import json
import textwrap
from dataclasses import MISSING, Field, fields
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from stride.config.checks import RANGES
from stride.config.exploration import Exploration
from stride.config.fields import hints, schedulable, takes
from stride.config.loader import to_plain
from stride.config.network import Network
from stride.config.plateau import Plateau
from stride.config.schedule import EXPONENTIAL_FALL, KL_FACTOR, KL_MAX_RATE, KL_MIN_RATE, KL_START_RATE, WARMUP_SHARE
from stride.config.schema import (
    BoundedConfig,
    Config,
    DQNConfig,
    DreamerConfig,
    PlaNetConfig,
    PolicyGradientConfig,
    PPOConfig,
    PQNConfig,
    QLearningConfig,
    REINFORCEConfig,
    ReplayConfig,
    RolloutConfig,
    SACConfig,
    TD3Config,
    TQCConfig,
    TransitionConfig,
    WorldModelConfig,
)
from stride.config.spec import Quantity, Spec

TITLES: dict[type, str] = {  # config class -> its heading in docs/config.md, in this order
    Config: "Every algorithm", RolloutConfig: "Algorithms that learn from rollouts",
    PolicyGradientConfig: "PPO and REINFORCE", PPOConfig: "PPO", REINFORCEConfig: "REINFORCE",
    ReplayConfig: "Algorithms that learn from a replay memory",
    TransitionConfig: "Algorithms that learn from single transitions", DQNConfig: "DQN",
    BoundedConfig: "Actor-critics for actions with bounds", SACConfig: "SAC", TQCConfig: "TQC", TD3Config: "TD3",
    QLearningConfig: "Tabular Q-learning", PQNConfig: "PQN",
    WorldModelConfig: "Algorithms that learn a world model", DreamerConfig: "Dreamer", PlaNetConfig: "PlaNet",
}  # fmt: skip
CLASSES: tuple[type, ...] = tuple(TITLES)
INTRODUCTION = """\
Generated from config/algorithms/ by `python -m lab.write_docs`; edit those files.

A config is a block of `config/environments/<env>.yaml` plus the keys above it: `python train.py CartPole-v1:ppo`.
Change any key on the command line: `python train.py CartPole-v1:ppo gamma=0.98 spec.goal=400 env_kwargs.gravity=5`.
Use your own file: `python train.py --config my.yaml`.

- Keys at the top of the file, or under `_base`, apply to every variant; every other block is a variant.
- `_inherit_: other` starts from another block. Names that start with `_` are private: anchors, or blocks to inherit.
- Mappings (`spec`, `plateau`, `exploration`, `env_kwargs`, `policy_kwargs`) are merged by key; the rest is replaced.
- `policy_kwargs: {cnn: small}` is for pictures of about 10 x 10, of bytes [channels, height, width] or numbers [height,
  width, channels]: convolutions of stride 1, one for each entry of `channels: [16]` (its filters), `kernel: 3` pixels
  wide and high, then `features`. MinAtar's network is `{cnn: small, features: 128}` with `hidden_dims: []`.
- Write numbers as 1e5 or 100_000. Only `true` and `false` are booleans; `null` means none.
- An unknown key, a wrong type or a number out of range is an error; nothing is ignored."""
PLATEAUS = """\
`plateau: {metric: val/roll/ep_rew/mean, patience: 5, scale: {policy_lr: 0.5}, then: stop}` halves the learning rate
when five evaluations in a row do not improve the return, and stops after the next five. The metric defines which
direction is better ([*up* or *down*](reference/metrics.md)); a metric without one, or of wall time, is refused. A
resumed run continues the count."""
EXPLORATION = """\
`exploration: {kind: rnd, coef: 0.5}` gives PPO and PQN intrinsic rewards for what is new to them, divided by the
running deviation of their discounted sum. PPO learns their value apart, by a network of its own, and adds the two
advantages. PQN adds them to the environment's reward: its action values are of both. Goals, evaluations and the
returns in reports stay raw. [When to take it](guides/exploration.md)."""
NETWORKS = """\
`critic: {hidden_dims: [512, 512], lr_scale: 2}` gives the critics of PPO, REINFORCE, SAC, TQC and TD3 what the actor
has not; a block `actor` the other way round. Where the observation is a dict, `actor.obs=[obs] critic.obs=[obs,state]`
says which parts each of them reads, for example what only a simulator knows."""
SCHEDULES = f"""\
A key marked *schedulable* may change during the run. `lin_0.001` falls linearly from 0.001 to 0, `cos_0.001` falls
along half a cosine, and `exp_0.001` falls by a constant factor to {EXPONENTIAL_FALL:.0%}. `warmup_0.001` rises from 0
to 0.001 during the first {WARMUP_SHARE:.0%} and stays there. The same with one key per part, here for `policy_lr`:

| key | meaning |
|---|---|
| `policy_lr_schedule` | linear, cosine, exponential or warmup; null = constant |
| `policy_lr_schedule_start_value` | value until the start; default `policy_lr` (warmup: 0) |
| `policy_lr_schedule_end_value` | value after the end; default 0 (warmup: `policy_lr`) |
| `policy_lr_schedule_start` | start: in [0, 1] a fraction of max_timesteps, above 1 env steps |
| `policy_lr_schedule_end` | end: in [0, 1] a fraction of max_timesteps, above 1 env steps |

A number given later, in a variant or an override, replaces the number and keeps a schedule written in parts.
`lin_...` replaces all earlier settings of the key.

PPO's `policy_lr` can also follow the KL divergence of its updates. With `kl_0.008` it begins at \
{KL_START_RATE:g}. After the
updates on each rollout, the approximate KL divergence of their minibatches from the policy before them is averaged (the
metric train/policy/approx_kl). Above 2 x 0.008 the rate is divided by {KL_FACTOR}, below 0.008 / 2 it is multiplied by
{KL_FACTOR}, and it stays between {KL_MIN_RATE:g} and {KL_MAX_RATE:g}. \
With `target_kl`, which must be 0.008 or more, only updates
up to the one that exceeded it count. Several processes average the divergence, so their rates are equal."""


class FieldText(NamedTuple):
    """The row of one field in the manual."""

    name: str
    section: str
    takes: str
    default: str
    doc: str


def field_docs() -> dict[type, dict[str, str]]:
    """Return class -> field -> the text under the field, for all config classes and blocks."""
    classes = (*CLASSES, Spec, Quantity, Plateau, Exploration, Network)
    return {cls: {name: doc for name, (doc, _) in _docs_of(cls).items()} for cls in classes}


def entries(cls: type) -> list[FieldText]:
    """Return the fields that a class itself declares, without those of its bases, in order."""
    types, schedulable_names = hints(cls), schedulable(cls)
    defaults = {item.name: _default(item) for item in fields(cls)} | {"max_timesteps": ""}  # 0 means not given
    rows = []
    for name, (doc, section) in _docs_of(cls).items():
        accepted = takes(types[name]).replace(" or a schedule", "")
        accepted += f", {RANGES[name]}" if name in RANGES and issubclass(cls, Config) else ""
        accepted += ", schedulable" if name in schedulable_names else ""
        rows.append(FieldText(name, section, accepted, defaults[name], doc))
    return rows


def help_text(config: Config, width: int = 100) -> str:
    """Return every key of a config for a terminal: its value in this config, what it takes, what it means."""
    rows: dict[str, FieldText] = {}  # an algorithm may describe a field differently from its base: the last text counts
    for cls in reversed(type(config).__mro__[:-1]):  # the last is `object`
        for row in entries(cls):
            rows[row.name] = row._replace(section=rows.get(row.name, row).section)
    current_values, section, lines = to_plain(config), "", []
    for row in rows.values():
        if row.section != section:
            lines += ["", row.section]
        section = row.section
        lines.append(f"  {row.name}={_typed(current_values[row.name])}  ({row.takes})")
        lines += textwrap.wrap(row.doc, width, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join(lines[1:])


def markdown() -> str:
    """Return the text of docs/config.md."""
    blocks = ["# Config", INTRODUCTION]
    for cls in CLASSES:
        blocks.append(f"## {TITLES[cls]}")
        rows = entries(cls)
        for section_title in dict.fromkeys(row.section for row in rows):
            if section_title not in ("", TITLES[cls]):
                blocks.append(f"### {section_title}")
            blocks.append(key_table([row for row in rows if row.section == section_title]))
    blocks += [
        "## The spec block",
        "Describes the environment for lists, play and inspector.",
        key_table(entries(Spec)),
    ]
    blocks += ["`observations` and continuous `actions` have one of these per number:", key_table(entries(Quantity))]
    blocks += ["## The plateau block", PLATEAUS, key_table(entries(Plateau))]
    blocks += ["## The exploration block", EXPLORATION, key_table(entries(Exploration))]
    blocks += ["## The actor and critic blocks", NETWORKS, key_table(entries(Network))]
    blocks += ["## Schedules", SCHEDULES, "## Metrics"]
    blocks.append("Every metric, its meaning and its alerts: [reference/metrics.md](reference/metrics.md).")
    return "\n\n".join(blocks) + "\n"


@cache
def _docs_of(cls: type) -> dict[str, tuple[str, str]]:
    """Return field -> (the text under it, the section comment above it), read from the source of its class."""
    source = textwrap.dedent(inspect.getsource(cls))
    # number of the line -> title, of each comment `    # Title`
    sections = {number: line[6:] for number, line in enumerate(source.splitlines(), 1) if line.startswith("    # ")}
    [node] = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    docs = {}
    for statement, next_statement in pairwise(node.body):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            field_text = ast.literal_eval(next_statement.value) if isinstance(next_statement, ast.Expr) else ""
            section = max((number for number in sections if number < statement.lineno), default=0)
            docs[statement.target.id] = field_text, sections.get(section, "")
    return docs


def _typed(value: object) -> str:
    """Return a value as text for --help; a schedule in words, a mapping shortened to {...}."""
    if isinstance(value, dict) and value.keys() == {"kind", "start_value", "end_value", "start", "end"}:
        return "{kind} from {start_value:g} to {end_value:g} over [{start:g}, {end:g}]".format(**value)
    return "{...}" if isinstance(value, dict) and value else json.dumps(value)


def _default(item: Field[object]) -> str:
    """Return the default of a field as text; all fields without a plain default are mappings."""
    value = item.default
    if value is MISSING:
        return "{}"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return str(list(value)) if isinstance(value, tuple) else str(value)


def key_table(rows: list[FieldText]) -> str:
    """Return a Markdown table of fields."""
    lines = ["| key | default | takes | meaning |", "|---|---|---|---|"]
    return "\n".join(lines + [f"| `{row.name}` | {row.default} | {row.takes} | {row.doc} |" for row in rows])
