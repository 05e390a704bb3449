"""Prints the variants that can be trained, for `--list-envs [TERM]`: a table, and details if only a few match.

`list_environments` returns the same rows for the Python interface.
"""

import math
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stride.config.bands import of_variant
from stride.config.extras import missing
from stride.config.general import GENERAL
from stride.config.loader import environment_files, load_variant
from stride.config.raw import EnvironmentFile
from stride.config.scenarios import installed_games
from stride.config.spec import Spec
from stride.runstore.run_brief import Brief
from stride.runstore.run_dir import run_lines
from stride.utils.user_error import UserError, nearest

MAX_DETAILED = 6  # matching variants up to which rewards, actions and spaces are printed, too
MIN_WIDTH = 80  # columns of the table, even on a narrower screen
OTHERS_LINE = "any other: ENV:ALGORITHM, such as dm_control/walker-walk:sac; ENV:auto chooses"
MUJOCO_GOALS = {  # Gymnasium's MuJoCo tasks -> the mean return that Gymnasium calls solved
    "Ant-v5": 6000.0, "HalfCheetah-v5": 4800.0, "Hopper-v5": 3800.0, "Humanoid-v5": None,
    "InvertedDoublePendulum-v5": 9100.0, "InvertedPendulum-v5": 950.0, "Pusher-v5": 0.0, "Reacher-v5": -3.75,
    "Swimmer-v5": 360.0, "Walker2d-v5": None,
}  # fmt: skip
MUJOCO_ALGORITHMS = ("ppo", "sac")  # listed for each of these tasks
COLUMNS = ("env:variant", "goal", "reached", "solved", "here")


class ListedVariant(NamedTuple):
    """One variant, with the texts of its row in the table."""

    env: str  # the environment as a user types it
    variant: str
    algorithm: str
    goal: str  # "475", or "none"
    description: str
    env_id: str  # as Gymnasium knows it, maybe with a module
    spec: Spec
    budget: int  # env steps


def list_environments(term: str = "") -> list[ListedVariant]:
    """Return the shipped variants that contain `term` in a column; capitals do not matter."""
    return _matching(shipped_rows(), term)


def shipped_rows() -> list[ListedVariant]:
    """Return the variants of all YAML files."""
    return [row for file_stem in environment_files() for row in _rows(file_stem)]


def _matching(rows: Sequence[ListedVariant], term: str) -> list[ListedVariant]:
    """Return the rows that contain the term; UserError with the nearest word if none does."""
    folded, matches = term.casefold(), []
    for row in rows:
        text = "\n".join((f"{row.env}:{row.variant}", row.algorithm, row.goal, row.description))
        if folded in text.casefold():
            matches.append(row)
    if not matches:
        options = dict.fromkeys(option for row in rows for option in (row.env, row.variant, row.algorithm))
        raise UserError(f"no environment or variant matches {term!r}{nearest(term, options)}")
    return matches


def general_rows() -> list[ListedVariant]:
    """Return rows for MuJoCo tasks that no file has variants for; they train with an algorithm's general settings."""
    settings = {
        algorithm: EnvironmentFile.read(GENERAL / f"{algorithm}.yaml").raw("continuous").values
        for algorithm in MUJOCO_ALGORITHMS
    }
    shipped, rows = environment_files(), []
    for body, threshold in MUJOCO_GOALS.items():
        goal_text, spec = "none" if threshold is None else f"{threshold:g}", Spec()
        listed_rows = _rows(body) if body in shipped else []
        for row in listed_rows[:1]:  # if the task has a file, its goal and spec say more
            goal_text, spec = row.goal, row.spec
        for algorithm in MUJOCO_ALGORITHMS:
            if algorithm not in [row.variant for row in listed_rows]:
                # cut off the tasks on which the settings were chosen: a search term must not match their names
                description = str(settings[algorithm]["description"]).partition(",")[0]
                budget = int(float(settings[algorithm]["max_timesteps"]))
                rows.append(ListedVariant(body, algorithm, algorithm, goal_text, description, body, spec, budget))
    return rows


def _rows(file_stem: str) -> list[ListedVariant]:
    file = EnvironmentFile.read(environment_files()[file_stem])
    rows = []
    for variant in file.variants:
        config = load_variant(file, variant)
        env_id, spec = config.env_id, config.spec
        env_name = env_id if env_id.replace("/", "-") == file_stem else file_stem  # as it is typed: without the module
        goal_text = "none" if spec.goal is None else f"{spec.goal:g}"
        text_columns = env_name, variant, config.algo_id, goal_text, config.description
        rows.append(ListedVariant(*text_columns, env_id, spec, config.max_timesteps))
    return rows


def print_variants(term: str) -> int:
    """Print the variants that match `term`, what they reached in docs/results.md and on this machine; return 0."""
    game_lines = installed_games(term)  # one line for VizDoom's and stable-retro's games, which have no variants each
    try:
        rows = _matching([*shipped_rows(), *general_rows()], term)
    except UserError:
        if not game_lines:
            raise
        rows = []
    screen_width = max(MIN_WIDTH, shutil.get_terminal_size((MIN_WIDTH, 24)).columns)
    is_terminal = sys.stdout.isatty()
    lines = _table(rows, results_here(), screen_width if is_terminal else None) if rows else []
    if len(rows) <= MAX_DETAILED:
        for env_name in dict.fromkeys(row.env for row in rows):
            lines += _details(env_name, rows, screen_width)
    elif is_terminal:
        hint = f"--list-envs TERM shows rewards, actions and spaces of {MAX_DETAILED} or fewer matches"
        lines += ["", hint, OTHERS_LINE]
    print("\n".join([*lines, *game_lines]))
    return 0


def results_here() -> dict[str, str]:
    """Return ENV:VARIANT -> the best test of its shipped settings on this machine, else how its newest run ended."""
    newest: dict[str, str] = {}
    best: dict[str, tuple[float, str]] = {}  # the score and how it is shown
    for run_line in run_lines():  # the newest first
        variant, result = run_line.variant, _result(run_line) if run_line.result else run_line.status
        newest.setdefault(variant, f"{result}, changed" if run_line.changes else result)
        if run_line.test is not None and not run_line.changes:
            best[variant] = max(best.get(variant, (-math.inf, "")), (run_line.test, result))
    return newest | {variant: result for variant, (_, result) in best.items()}


def _result(run_line: Brief) -> str:
    return run_line.verdict if run_line.test is None else f"{run_line.test:.5g} {run_line.verdict}"


def evidence(row: ListedVariant) -> tuple[str, str]:
    """Return the score that a shipped variant reached, and how many seeds solved it: ("498.2", "19/20").

    The score is the interquartile mean over seeds of 100 fresh episodes each; ("unmeasured", "") if there is none."""
    measured = of_variant(row.env, row.variant)
    if measured is None or measured.reached is None:
        return "unmeasured", ""
    solved = f"{measured.seeds} seeds" if row.goal == "none" else f"{measured.solved}/{measured.seeds}"
    return f"{measured.reached:.4g}", solved


def _table(rows: Sequence[ListedVariant], last: Mapping[str, str], width: int | None) -> list[str]:
    """Return the aligned lines of the table; `*`, or `*1`, `*2`, .., marks environments whose package is missing.

    `last`: ENV:VARIANT -> the result on this machine. Descriptions are shown only if `width` is enough for all of them,
    or None (the output is a pipe).
    """
    cells, descriptions = [COLUMNS], ["description"]
    absent = list(dict.fromkeys(extra for row in rows if (extra := missing(row.env_id))))
    marks = {extra: f"*{number}" if len(absent) > 1 else " *" for number, extra in enumerate(absent, 1)}
    for row in rows:
        extra = missing(row.env_id)
        variant_name = f"{row.env}:{row.variant}{marks[extra] if extra else ''}"
        cells.append((variant_name, row.goal, *evidence(row), last.get(f"{row.env_id}:{row.variant}", "-")))
        descriptions.append(row.description)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if width is not None:  # a name that is too long for the first column gets its own line
        widths[0] = min(widths[0], width - sum(2 + figure for figure in widths[1:]))
    lines = []
    for name, *figures in cells:
        beside = name.ljust(widths[0]) if len(name) <= widths[0] else f"{name}\n{' ' * widths[0]}"
        lines.append("  ".join((beside, *map(str.ljust, figures, widths[1:]))))
    described = [f"{line}  {description}" for line, description in zip(lines, descriptions, strict=True)]
    shown_lines = described if width is None or max(map(len, described)) <= width else lines
    needed = [f"{mark.strip()} needs {extra.title}: {extra.cure}" for extra, mark in marks.items()]
    return [line.rstrip() for line in "\n".join(shown_lines).split("\n")] + ([""] if needed else []) + needed


def _details(env_name: str, rows: Sequence[ListedVariant], width: int) -> list[str]:
    """Return lines about one environment: task, reward, actions, observations, and its variants with budgets."""
    variants = [row for row in rows if row.env == env_name]
    spec = variants[0].spec
    return_texts = ["{:g} to {:g}".format(*spec.returns)] if spec.returns else []
    return_texts += [f"at most {spec.max_episode_steps:,} steps"] if spec.max_episode_steps else []
    entries = {
        "task": spec.description,
        "reward": "; ".join(spec.rewards.values()),
        "return": ", ".join(return_texts),
        "actions": spec.action_text(),
        "observes": spec.observation_text(),
    }
    for row in variants:
        entries[row.variant] = f"{row.description}; budget {row.budget:,} env steps"
    lines = ["", env_name, *([f"  {spec.source}"] if spec.source else [])]
    text_column = max(map(len, entries)) + 4
    wrapper = textwrap.TextWrapper(min(width, 120) - 1, break_long_words=False, break_on_hyphens=False)
    wrapper.subsequent_indent = " " * text_column
    for label_text, row_text in entries.items():
        wrapper.initial_indent = f"  {label_text}".ljust(text_column)
        lines += wrapper.wrap(row_text) if row_text else []
    return lines
