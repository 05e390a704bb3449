"""What a group leaves beside its runs: report.md, curve.svg and runs.csv in runs/groups/NAME.

Written when the group's command ends, however it ends, and again when it goes on; nothing is measured here.
"""

import csv
import io
import math
import os
import sys
from statistics import median

from stride.report.group import Group, Seed, band_of, caution, curve_of, middle, read_group
from stride.report.markdown import markdown_table, shell_commands
from stride.runstore import run_files
from stride.runstore.seed_group import Ending, Watcher
from stride.utils.curve import CLASSES, bands_svg, group_svg
from stride.utils.places import PLAY, TRAIN
from stride.utils.statistics import iqm
from stride.utils.typography import area_chart, duration, plain, score
from stride.utils.user_error import UserError, one_line

COLUMNS = ("group", "env_id", "variant", "part", "seed", "run", "verdict", "status", "goal", "test_mean", "test_std",
           "test_episodes", "val_best", "env_steps", "seconds", "why")  # fmt: skip


class GroupPage(Watcher):
    """Told the end before whoever shows where the report lies."""

    def end(self, group: str, ending: Ending | None) -> None:
        """What the disk refuses costs the report, not the exit code: every run is whole in its own folder."""
        if ending is None:
            return
        try:
            write_group(read_group(group))
        except (OSError, UserError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            print(f"the report of the group is not written: {why}", file=sys.stderr)


def write_group(group: Group) -> None:
    """The curve and the table before the page that links to them."""
    run_files.make_folder(group.folder)
    run_files.sweep(group.folder)
    run_files.write_text(group.folder / "curve.svg", picture(group))
    run_files.write_text(group.folder / "runs.csv", runs_csv(group))
    run_files.write_text(group.folder / "report.md", report(group))


def picture(group: Group) -> str:
    """The seeds and their middle; of several parts the middle of each, of many those of the best."""
    parts = group.parts
    if len(parts) > 1:
        best = sorted(parts, key=lambda part: -iqm(part.tested) if part.tested else math.inf)[: len(CLASSES)]
        bands = {part.label: band_of([*map(curve_of, part.seeds)]) for part in parts if part in best}
        which = f"the best {len(best)} of {group.title}" if len(best) < len(parts) else group.title
        return bands_svg(f"{which}, median and middle half", {k: v for k, v in bands.items() if v.mean}, None)
    curves = [curve for curve in map(curve_of, group.seeds) if curve]
    return group_svg(f"{group.title}, {_seeds(len(curves))}", curves, band_of(curves), group.goal)


def runs_csv(group: Group) -> str:
    """A row per seed in the order asked for; an empty cell is a value that there is not."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for each in group.seeds:
        known, run = each.facts or group.facts, each.run.id if each.run else ""
        cells = [group.name, known.get("env_id"), known.get("variant"), each.label, each.seed, run, each.verdict]
        cells += [each.facts.get("status"), known.get("goal"), each.mean, each.deviation, each.episodes or None]
        cells += [each.best, each.env_steps, each.seconds, " ".join(each.why.split())]
        rows.writerow(["" if cell is None else cell for cell in cells])
    return text.getvalue()


def report(group: Group) -> str:
    """report.md."""
    description = (group.facts.get("config") or {}).get("description", "")
    several = len(group.parts) > 1
    seeds = [
        one_line(str(description)),
        "![Episode reward over env steps: each seed, their median and the middle half](curve.svg)",
        "Bold: the median of the seeds, in their middle half. A seed that has ended stays at its last value.",
        _chart(group),
    ]
    variants = [
        "![Episode reward over env steps: the median of each variant and its middle half](curve.svg)",
        "## Variants",
        _variants(group),
    ]
    parts = [
        f"**{_verdict(group)}**",
        f"# {group.title}, {f'{len(group.seeds)} runs' if several else _seeds(len(group.seeds))}",
        *(variants if several else seeds),
        "## Runs" if several else "## Seeds",
        _seed_table(group),
        "The same for a program: [runs.csv](runs.csv).",
        *([] if several else ["## Together", _together(group)]),
        *_unfinished(group),
        "## Next",
        commands(group),
        "## Where it ran",
        _where(group),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _verdict(group: Group) -> str:
    """The first line: how many solved it, and what the seeds come to."""
    count = len(group.seeds)
    if len(group.parts) > 1:
        open_ = f", {len(group.unfinished)} unfinished" if group.unfinished else ""
        return f"{group.solved} of {count} runs of {len(group.parts)} variants solved{group.few}{open_}."
    head = f"{group.solved} of {_seeds(count)} solved{group.few}" if group.goal is not None else _seeds(count)
    open_ = f", {len(group.unfinished)} unfinished" if group.unfinished else ""
    goal = "" if group.goal is None else f", goal {plain(group.goal)}"
    came = f"; {middle(group.tested)}" if group.tested else "; none was tested"
    return f"{head}{open_}{goal}{came}."


def _seeds(count: int) -> str:
    return f"{count} seed{'' if count == 1 else 's'}"


def _chart(group: Group) -> str:
    """The median once more in text, for readers of a terminal."""
    middle_curve = band_of([curve_of(each) for each in group.seeds]).mean
    if len(middle_curve) < 2:
        return ""
    return f"```text\n{area_chart([point.x for point in middle_curve], [point.y for point in middle_curve])}\n```"


def _seed_table(group: Group) -> str:
    rows = []
    for each in group.seeds:
        run = f"[{each.run.id}]({os.path.relpath(each.run.report, group.folder.resolve())})" if each.run else ""
        rows.append((each.name, each.verdict_words, tested(each), _number(each.best), _whole(each.env_steps),
                     "" if each.seconds is None else duration(each.seconds), run))  # fmt: skip
    first = "run" if len(group.parts) > 1 else "seed"
    return markdown_table(
        (
            first,
            "verdict",
            "test, mean ± deviation",
            "best validation",
            "env steps",
            "time",
            "run" if first == "seed" else "folder",
        ),
        rows,
    )


def _variants(group: Group) -> str:
    rows = []
    for part in group.parts:
        goal = "" if part.goal is None else f"{part.solved} of {len(part.seeds)}{part.few}, goal {plain(part.goal)}"
        rows.append((part.label, str(len(part.seeds)), goal, middle(part.tested) if part.tested else "none was tested"))
    return markdown_table(("variant", "runs", "solved", "tests"), rows)


def tested(seed: Seed) -> str:
    """`500.0 ± 0.00 over 100`"""
    if seed.mean is None:
        return ""
    around = "" if seed.deviation is None else f" ± {score(seed.deviation)}"
    return f"{score(seed.mean)}{around} over {seed.episodes}"


def _together(group: Group) -> str:
    means, rows = group.tested, []
    if means:
        rows.append(("test means", middle(means)))
        rows.append(("lowest, median, highest", f"{score(min(means))}, {score(median(means))}, {score(max(means))}"))
    if group.goal is not None:
        rows.append(("solved", f"{group.solved} of {len(group.seeds)}{group.few}, goal {plain(group.goal)}"))
    done = [each for each in group.seeds if each.finished]
    steps, seconds = (
        [value for each in done if (value := getattr(each, name)) is not None] for name in ("env_steps", "seconds")
    )
    if steps:
        rows.append(("env steps, median (most)", f"{median(steps):,.0f} ({max(steps):,})"))
    if seconds:
        rows.append(("time, median (longest)", f"{duration(median(seconds))} ({duration(max(seconds))})"))
    why = caution(len(means))
    interval = "IQM: the mean of the middle half of the seeds; its 95 % interval is a bootstrap over the seeds."
    if not rows:
        return ""
    note = f"{why[:1].upper()}{why[1:]}." if why else interval
    return f"{markdown_table(('what', 'value'), rows)}\n\n{note}"


def _unfinished(group: Group) -> list[str]:
    if not group.unfinished:
        return []
    rows = [(each.name, each.verdict, each.why) for each in group.unfinished]
    return ["## Unfinished", markdown_table(("seed", "state", "why"), rows)]


def commands(group: Group) -> str:
    """Exact lines to paste into a shell."""
    best = max(
        (each for each in group.seeds if each.run and each.mean is not None),
        key=lambda each: each.mean or 0.0,
        default=None,
    )
    commit, plus, _ = str(group.facts.get("git_hash", "")).partition("+")
    checkout = f"git checkout {commit}{'  # and what was changed since' if plus else ''}\n" if commit else ""
    lines = [
        ("Go on with what is unfinished", f"{TRAIN} --resume group:{group.name}" if group.unfinished else ""),
        ("Compare its seeds, or with another group", f"{PLAY} --run-id group:{group.name}\n"
         f"{PLAY} --run-id group:{group.name},group:OTHER"),
        ("Play the best", f"{PLAY} --run-id {best.run.id}" if best and best.run else ""),
        ("Repeat it", f"{checkout}{group.command}" if group.words else ""),
    ]  # fmt: skip
    return shell_commands(lines)


def _where(group: Group) -> str:
    """Only where every run says the same: else each says its own in its report."""
    rows = []
    for key in ("git_hash", "versions", "host"):
        said = {str(_plain(each.facts[key])) for each in group.seeds if key in each.facts}
        if said:
            rows.append((key, said.pop() if len(said) == 1 else f"{len(said)} different ones: see the runs"))
    return markdown_table(("what", "value"), rows) if rows else "Nothing is known of it."


def _plain(value: object) -> object:
    return ", ".join(f"{name} {each}" for name, each in value.items()) if isinstance(value, dict) else value


def _number(value: float | None) -> str:
    return "" if value is None else score(value)


def _whole(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
