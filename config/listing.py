"""What there is to train, for `--list-envs [TERM]`: a line per shipped variant, and all about it where few are left."""

import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from stride.config.bands import of_variant
from stride.config.extras import missing
from stride.config.general import GENERAL
from stride.config.loader import environment_files, load_variant
from stride.config.raw import EnvironmentFile
from stride.config.scenarios import told_here
from stride.config.spec import Spec
from stride.runstore.run_brief import Brief
from stride.runstore.run_dir import run_lines
from stride.utils.user_error import UserError, nearest

FEW = 6  # variants of which everything is told
NARROWEST = 80
ANY = "any other: ENV:ALGORITHM, such as dm_control/walker-walk:sac or my:MyEnv-v0:ppo"
BODIES = {  # MuJoCo's of Gymnasium, and the mean return that it says solves them
    "Ant-v5": 6000.0, "HalfCheetah-v5": 4800.0, "Hopper-v5": 3800.0, "Humanoid-v5": None,
    "InvertedDoublePendulum-v5": 9100.0, "InvertedPendulum-v5": 950.0, "Pusher-v5": 0.0, "Reacher-v5": -3.75,
    "Swimmer-v5": 360.0, "Walker2d-v5": None,
}  # fmt: skip
USUAL = ("ppo", "sac")
HEAD = ("env:variant", "goal", "reached", "solved", "here")


class Row(NamedTuple):
    """One variant, in the words of the table."""

    env: str
    variant: str
    algorithm: str
    goal: str
    description: str
    env_id: str
    spec: Spec
    budget: int


def list_environments(term: str = "") -> list[Row]:
    """Rows whose environment, variant, algorithm or description contains `term`, in any case."""
    return _matching([row for stem in environment_files() for row in _rows(stem)], term)


def listed(term: str) -> list[Row]:
    """The same, with MuJoCo's bodies that no file names."""
    return _matching([*(row for stem in environment_files() for row in _rows(stem)), *general_rows()], term)


def _matching(rows: Sequence[Row], term: str) -> list[Row]:
    """Those that contain it; UserError with the nearest word where none does."""
    wanted = term.casefold()
    found = [row for row in rows if any(wanted in text.casefold() for text in (f"{row.env}:{row.variant}", *row[:5]))]
    if not found:
        options = dict.fromkeys(word for row in rows for word in (row.env, row.variant, row.algorithm))
        raise UserError(f"no environment or variant matches {term!r}{nearest(term, options)}")
    return found


def general_rows() -> list[Row]:
    """MuJoCo's bodies that no file names: the general settings of the algorithms that are usual there."""
    settings = {name: EnvironmentFile.read(GENERAL / f"{name}.yaml").raw("continuous").values for name in USUAL}
    shipped, rows = environment_files(), []
    for env, goal in BODIES.items():
        own = _rows(env) if env in shipped else []
        told = own[0].goal if own else "none" if goal is None else f"{goal:g}"  # its file says the goal of all
        spec = own[0].spec if own else Spec()
        for name in (name for name in USUAL if name not in [row.variant for row in own]):
            # without the tasks that its numbers were chosen on: a term shall not match those
            description = str(settings[name]["description"]).partition(",")[0]
            budget = int(float(settings[name]["max_timesteps"]))
            rows.append(Row(env, name, name, told, description, env, spec, budget))
    return rows


def _rows(stem: str) -> list[Row]:
    file = EnvironmentFile.read(environment_files()[stem])
    rows = []
    for variant in file.variants:
        config = load_variant(file, variant)
        env = config.env_id if config.env_id.replace("/", "-") == stem else stem  # what one types: without the module
        goal = "none" if config.spec.goal is None else f"{config.spec.goal:g}"
        words = (env, variant, config.algo_id, goal, config.description)
        rows.append(Row(*words, config.env_id, config.spec, config.max_timesteps))
    return rows


def print_variants(term: str) -> int:
    """The shipped variants, what they reached in docs/results.md and what the last run of each came to here."""
    found_here = told_here(term)  # of families that have more worlds than variants
    try:
        rows = listed(term)
    except UserError:
        if not found_here:
            raise
        rows = []
    here = last_runs()
    width = max(NARROWEST, shutil.get_terminal_size((NARROWEST, 24)).columns)
    lines = _table(rows, here, width if sys.stdout.isatty() else None) if rows else []
    if len(rows) <= FEW:
        lines += [line for env in dict.fromkeys(row.env for row in rows) for line in _details(env, rows, width)]
    elif sys.stdout.isatty():
        lines += ["", f"--list-envs TERM: {FEW} or fewer are told whole, with rewards, actions and spaces", ANY]
    print("\n".join([*lines, *found_here]))
    return 0


def last_runs() -> dict[str, str]:
    """ENV:VARIANT -> how its newest run on this machine ended, in a word or two."""
    last: dict[str, str] = {}
    for line in run_lines():  # the newest first
        last.setdefault(line.variant, _standing(line))
    return last


def _standing(line: Brief) -> str:
    if not line.result:
        return line.status
    return line.verdict if line.test is None else f"{line.test:.5g} {line.verdict}"


def evidence(row: Row) -> tuple[str, str]:
    """What the shipped variant reached (IQM of 100 fresh episodes a seed), and how many seeds solved it."""
    result = of_variant(row.env, row.variant)
    if result is None or result.reached is None:
        return "not measured", ""
    return f"{result.reached:.4g}", f"{result.seeds} seeds" if row.goal == "none" else f"{result.solved}/{result.seeds}"


def _table(rows: Sequence[Row], here: Mapping[str, str], width: int | None) -> list[str]:
    """Aligned lines; `*` marks what is not installed. The description stands behind where the width is enough for all,
    or where nobody looks at a width (None, a pipe).
    """
    absent = {row.env: extra for row in rows if (extra := missing(row.env_id))}
    cells = [HEAD]
    for row in rows:
        mark = " *" if row.env in absent else ""
        name = f"{row.env}:{row.variant}"
        cells += [(name + mark, row.goal, *evidence(row), here.get(f"{row.env_id}:{row.variant}", "-"))]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for line, description in zip(cells, ("description", *(row.description for row in rows)), strict=True):
        lines.append(("  ".join(cell.ljust(each) for cell, each in zip(line, widths, strict=True)), description))
    wide = width is None or max(len(text) + 2 + len(description) for text, description in lines) <= width
    shown = [f"{text}  {description}" if wide else text for text, description in lines]
    needed = [f"* needs {extra.title}: {extra.cure}" for extra in dict.fromkeys(absent.values())]
    return [line.rstrip() for line in shown] + ([""] if needed else []) + needed


def _details(env: str, rows: Sequence[Row], width: int) -> Iterator[str]:
    """The task of an environment and what each of its variants is."""
    own = [row for row in rows if row.env == env]
    spec = own[0].spec
    limit = f"{spec.max_episode_steps:,} steps at most" if spec.max_episode_steps else ""
    returns = "{:g} to {:g}".format(*spec.returns) if spec.returns else ""
    told = {
        "task": spec.description,
        "reward": "; ".join(spec.rewards.values()),
        "return": ", ".join(filter(None, (returns, limit))),
        "actions": ", ".join(one if isinstance(one, str) else one.name for one in spec.actions),
        "observes": ", ".join(one.name for one in spec.observations),
        **{row.variant: f"{row.description}; {row.budget:,} env steps at most" for row in own},
    }
    yield from ("", env)
    if spec.source:
        yield f"  {spec.source}"
    column = max(map(len, told)) + 4
    for label, words in told.items():
        if words:
            yield from textwrap.wrap(
                words, min(width, 120) - 1, initial_indent=f"  {label}".ljust(column), subsequent_indent=" " * column,
                break_long_words=False, break_on_hyphens=False,
            )  # fmt: skip
