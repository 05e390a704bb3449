"""The variants that can be trained, for `--list-envs [TERM]`: a line each, and all about it where few match."""

import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stride.config.bands import of_variant
from stride.config.extras import Extra, missing
from stride.config.general import GENERAL
from stride.config.loader import environment_files, load_variant
from stride.config.raw import EnvironmentFile
from stride.config.scenarios import installed_games
from stride.config.spec import Spec
from stride.runstore.run_dir import run_lines
from stride.utils.user_error import UserError, nearest

FEW = 6  # variants of which everything is printed
NARROWEST = 80
ANY = "any other: ENV:ALGORITHM, such as dm_control/walker-walk:sac or my:MyEnv-v0:ppo"
BODIES = {  # MuJoCo's of Gymnasium, and the mean return that it says solves them
    "Ant-v5": 6000.0, "HalfCheetah-v5": 4800.0, "Hopper-v5": 3800.0, "Humanoid-v5": None,
    "InvertedDoublePendulum-v5": 9100.0, "InvertedPendulum-v5": 950.0, "Pusher-v5": 0.0, "Reacher-v5": -3.75,
    "Swimmer-v5": 360.0, "Walker2d-v5": None,
}  # fmt: skip
USUAL = ("ppo", "sac")
HEAD = ("env:variant", "goal", "reached", "solved", "here")


class ListedVariant(NamedTuple):
    """One variant, as text of the table."""

    env: str
    variant: str
    algorithm: str
    goal: str
    description: str
    env_id: str
    spec: Spec
    budget: int


def list_environments(term: str = "") -> list[ListedVariant]:
    """Rows whose environment, variant, algorithm or description contains `term`, in any case."""
    return _matching([row for stem in environment_files() for row in _rows(stem)], term)


def _matching(rows: Sequence[ListedVariant], term: str) -> list[ListedVariant]:
    """The rows that contain the term; UserError with the nearest word where none does."""
    folded, matches = term.casefold(), []
    for row in rows:
        text = "\n".join((f"{row.env}:{row.variant}", row.algorithm, row.goal, row.description))
        if folded in text.casefold():
            matches.append(row)
    if not matches:
        options = dict.fromkeys(word for row in rows for word in (row.env, row.variant, row.algorithm))
        raise UserError(f"no environment or variant matches {term!r}{nearest(term, options)}")
    return matches


def general_rows() -> list[ListedVariant]:
    """MuJoCo's bodies that no file names: the general settings of the algorithms that are usual there."""
    settings = {name: EnvironmentFile.read(GENERAL / f"{name}.yaml").raw("continuous").values for name in USUAL}
    shipped, rows = environment_files(), []
    for env, threshold in BODIES.items():
        goal, spec = "none" if threshold is None else f"{threshold:g}", Spec()
        listed = _rows(env) if env in shipped else []
        for row in listed[:1]:  # the file of the body, which says more
            goal, spec = row.goal, row.spec
        for name in USUAL:
            if name not in [row.variant for row in listed]:
                # without the tasks that its numbers were chosen on: a term shall not match those
                description = str(settings[name]["description"]).partition(",")[0]
                budget = int(float(settings[name]["max_timesteps"]))
                rows.append(ListedVariant(env, name, name, goal, description, env, spec, budget))
    return rows


def _rows(stem: str) -> list[ListedVariant]:
    file = EnvironmentFile.read(environment_files()[stem])
    rows = []
    for variant in file.variants:
        config = load_variant(file, variant)
        env_id, spec = config.env_id, config.spec
        env = env_id if env_id.replace("/", "-") == stem else stem  # as it is typed: without the module
        goal = "none" if spec.goal is None else f"{spec.goal:g}"
        about = env, variant, config.algo_id, goal, config.description
        rows.append(ListedVariant(*about, env_id, spec, config.max_timesteps))
    return rows


def print_variants(term: str) -> int:
    """Print the shipped variants, what they reached in docs/results.md and how the last run of each ended here."""
    games = installed_games(term)  # of families that have more worlds than variants
    try:
        rows = _matching([*(row for stem in environment_files() for row in _rows(stem)), *general_rows()], term)
    except UserError:
        if not games:
            raise
        rows = []
    width = max(NARROWEST, shutil.get_terminal_size((NARROWEST, 24)).columns)
    is_terminal = sys.stdout.isatty()
    lines = _table(rows, last_runs(), width if is_terminal else None) if rows else []
    if len(rows) <= FEW:
        for env in dict.fromkeys(row.env for row in rows):
            lines += _details(env, rows, width)
    elif is_terminal:
        lines += ["", f"--list-envs TERM: {FEW} or fewer are shown with rewards, actions and spaces", ANY]
    print("\n".join([*lines, *games]))
    return 0


def last_runs() -> dict[str, str]:
    """ENV:VARIANT -> how its newest run on this machine ended, in a word or two."""
    last: dict[str, str] = {}
    for line in run_lines():  # the newest first
        result = line.verdict if line.test is None else f"{line.test:.5g} {line.verdict}"
        last.setdefault(line.variant, result if line.result else line.status)
    return last


def evidence(row: ListedVariant) -> tuple[str, str]:
    """The score that the shipped variant reached (IQM of 100 fresh episodes a seed), and how many seeds solved it."""
    result = of_variant(row.env, row.variant)
    if result is None or result.reached is None:
        return "not measured", ""
    return f"{result.reached:.4g}", f"{result.seeds} seeds" if row.goal == "none" else f"{result.solved}/{result.seeds}"


def _table(rows: Sequence[ListedVariant], last: Mapping[str, str], width: int | None) -> list[str]:
    """Aligned lines; `*` marks what is not installed. The description is shown where the width is enough for all of
    them, or where there is no width (None, a pipe).
    """
    absent: dict[Extra, None] = {}  # in order
    cells, descriptions = [HEAD], ["description"]
    for row in rows:
        extra = missing(row.env_id)
        if extra:
            absent[extra] = None
        name = f"{row.env}:{row.variant}{' *' if extra else ''}"
        cells.append((name, row.goal, *evidence(row), last.get(f"{row.env_id}:{row.variant}", "-")))
        descriptions.append(row.description)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(map(str.ljust, line, widths)) for line in cells]
    wide = [f"{line}  {description}" for line, description in zip(lines, descriptions, strict=True)]
    shown = wide if width is None or max(map(len, wide)) <= width else lines
    needed = [f"* needs {extra.title}: {extra.cure}" for extra in absent]
    return [line.rstrip() for line in shown] + ([""] if needed else []) + needed


def _details(env: str, rows: Sequence[ListedVariant], width: int) -> list[str]:
    """The task of an environment, and its variants."""
    variants = [row for row in rows if row.env == env]
    spec = variants[0].spec
    returns = ["{:g} to {:g}".format(*spec.returns)] if spec.returns else []
    returns += [f"{spec.max_episode_steps:,} steps at most"] if spec.max_episode_steps else []
    entries = {
        "task": spec.description,
        "reward": "; ".join(spec.rewards.values()),
        "return": ", ".join(returns),
        "actions": ", ".join(action if isinstance(action, str) else action.name for action in spec.actions),
        "observes": ", ".join(quantity.name for quantity in spec.observations),
    }
    for row in variants:
        entries[row.variant] = f"{row.description}; {row.budget:,} env steps at most"
    lines = ["", env, *([f"  {spec.source}"] if spec.source else [])]
    column = max(map(len, entries)) + 4
    wrapper = textwrap.TextWrapper(min(width, 120) - 1, break_long_words=False, break_on_hyphens=False)
    wrapper.subsequent_indent = " " * column
    for label, text in entries.items():
        wrapper.initial_indent = f"  {label}".ljust(column)
        lines += wrapper.wrap(text) if text else []
    return lines
