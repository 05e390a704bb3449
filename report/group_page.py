"""Write the files of a group: report.md, curve.svg and runs.csv in runs/groups/NAME.

They are written when the group's command ends, for any reason, and again after it is continued. Nothing is measured
here.
"""

import csv
import io
import math
import os
import sys
from statistics import median

from stride.report.group import Group, Seed, band_of, caution, curve_of, middle, read_group
from stride.report.ledger.table import joined_pairs
from stride.report.page import joined, markdown_table, shell_commands, text_chart
from stride.runstore import run_files
from stride.runstore.seed_group import Ending, Watcher
from stride.utils.curve import CLASSES, bands_svg, group_svg
from stride.utils.places import PLAY, TRAIN
from stride.utils.statistics import iqm
from stride.utils.typography import duration, optional, plain, score
from stride.utils.user_error import UserError, one_line

COLUMNS = ("group", "env_id", "variant", "part", "seed", "run", "verdict", "status", "goal", "test_mean", "test_std",
           "test_episodes", "val_best", "env_steps", "seconds", "why")  # fmt: skip
INTERVAL_NOTE = "IQM: the mean of the middle half of the seeds; its 95 % interval is a bootstrap over the seeds."


class GroupPage(Watcher):
    """The watcher that writes these files at the end; it comes before the console, which prints the page's path."""

    def end(self, group: str, ending: Ending | None) -> None:
        """Write the files. An error of the disk is printed and not raised: every run is complete in its own folder."""
        if ending is None:
            return
        try:
            write_group(read_group(group))
        except (OSError, UserError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            print(f"the report of the group was not written: {why}", file=sys.stderr)


def write_group(group: Group) -> None:
    """Write curve.svg and runs.csv, then report.md, which links to both."""
    run_files.make_folder(group.folder)
    run_files.sweep(group.folder)
    run_files.write_text(group.folder / "curve.svg", curve_picture(group))
    run_files.write_text(group.folder / "runs.csv", runs_csv(group))
    run_files.write_text(group.folder / "report.md", report(group))


def curve_picture(group: Group) -> str:
    """Return an SVG with the curves of the seeds and their median.

    For a group of several variants: the median of each, or of the best ones if there are too many.
    """
    parts = group.parts
    if len(parts) == 1:
        curves = {f"seed {seed_result.seed}": curve_of(seed_result) for seed_result in group.seeds}
        curves = {name: curve for name, curve in curves.items() if curve}
        title = f"{group.title}, {_count(len(curves), 'seed')}"
        return group_svg(title, curves, band_of([*curves.values()]), group.goal)
    best = sorted(parts, key=lambda part: -iqm(part.tested) if part.tested else math.inf)[: len(CLASSES)]
    bands = {}
    for part in parts:
        band = band_of([*map(curve_of, part.seeds)])
        if part in best and band.mean:
            bands[part.label] = band
    title = f"the best {len(best)} of {group.title}" if len(best) < len(parts) else group.title
    return bands_svg(f"{title}, median and middle half", bands, None)


def runs_csv(group: Group) -> str:
    """Return the text of runs.csv: a row per seed in the order of the group; a missing value is an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for seed_result in group.seeds:
        facts = seed_result.facts or group.facts
        run_id = seed_result.run.id if seed_result.run else ""
        cells = [
            group.name, facts.get("env_id"), facts.get("variant"), seed_result.label, seed_result.seed, run_id,
            seed_result.verdict, seed_result.facts.get("status"), facts.get("goal"), seed_result.mean,
            seed_result.deviation, seed_result.episodes or None, seed_result.best, seed_result.env_steps,
            seed_result.seconds, " ".join(seed_result.why.split()),
        ]  # fmt: skip
        writer.writerow(cells)  # None is an empty cell
    return text.getvalue()


def report(group: Group) -> str:
    """Return the text of report.md."""
    several = len(group.parts) > 1
    size = f"{len(group.seeds)} runs" if several else _count(len(group.seeds), "seed")
    sections = [f"**{_verdict(group)}**", f"# {group.title}, {size}"]
    if several:
        sections += [
            "![Return over env steps: median and middle half of each variant](curve.svg)",
            "## Variants",
            _variants(group),
            "## Runs",
        ]
    else:
        description = (group.facts.get("config") or {}).get("description", "")
        sections += [
            one_line(str(description)),
            "![Return over env steps: each seed, median and middle half](curve.svg)",
            "Bold: the median of the seeds. Shaded: their middle half. A finished seed keeps its last value.",
            _chart(group),
            "## Seeds",
        ]
    sections += [_seed_table(group, several), "For programs: [runs.csv](runs.csv)."]
    if not several:
        sections += ["## Together", _together(group)]
    if group.unfinished:
        table_rows = [(seed_result.name, seed_result.verdict, seed_result.why) for seed_result in group.unfinished]
        sections += ["## Unfinished", markdown_table(("seed", "state", "why"), table_rows)]
    sections += ["## Next", commands(group), "## Where it ran", _environment(group)]
    return joined(sections)


def _verdict(group: Group) -> str:
    """Return the first line: how many seeds solved the task, and the statistics of all."""
    count = len(group.seeds)
    unfinished = f", {len(group.unfinished)} unfinished" if group.unfinished else ""
    if len(group.parts) > 1:
        return f"{group.solved} of {count} runs of {len(group.parts)} variants solved{group.few}{unfinished}."
    seeds = _count(count, "seed")
    result = middle(group.tested) if group.tested else "none was tested"
    if group.goal is None:
        return f"{seeds}{unfinished}; {result}."
    return f"{group.solved} of {seeds} solved{group.few}{unfinished}, goal {plain(group.goal)}; {result}."


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _chart(group: Group) -> str:
    """Draw the median as text, for readers in a terminal."""
    median_curve = band_of([*map(curve_of, group.seeds)]).mean
    return text_chart(median_curve) if len(median_curve) > 1 else ""


def _seed_table(group: Group, several: bool) -> str:
    table_rows = []
    for seed_result in group.seeds:
        run = seed_result.run
        link = f"[{run.id}]({os.path.relpath(run.report, group.folder.resolve())})" if run else ""
        cells = (seed_result.name, seed_result.verdict_words, tested(seed_result), *measured(seed_result), link)
        table_rows.append(cells)
    numbers = ("verdict", "test, mean ± deviation", "best evaluation", "env steps", "time")
    return markdown_table(("run", *numbers, "folder") if several else ("seed", *numbers, "run"), table_rows)


def measured(seed_result: Seed) -> tuple[str, str, str]:
    """Return best evaluation, env steps and duration as texts; "" for unknown ones."""
    best = optional(seed_result.best, score)
    return best, optional(seed_result.env_steps, "{:,}".format), optional(seed_result.seconds, duration)


def _variants(group: Group) -> str:
    table_rows = []
    for part in group.parts:
        tests = middle(part.tested) if part.tested else "none was tested"
        table_rows.append((part.label, str(len(part.seeds)), _solved(part), tests))
    return markdown_table(("variant", "runs", "solved", "tests"), table_rows)


def _solved(group: Group) -> str:
    """Return `3 of 5, goal 475`; "" without a goal."""
    if group.goal is None:
        return ""
    return f"{group.solved} of {len(group.seeds)}{group.few}, goal {plain(group.goal)}"


def tested(seed_result: Seed) -> str:
    """Return mean, deviation and episodes of a seed's test: `500.0 ± 0.00 over 100`; "" without a test."""
    if seed_result.mean is None:
        return ""
    return f"{plus_minus(seed_result)} over {seed_result.episodes}"


def plus_minus(seed_result: Seed) -> str:
    """Return mean and deviation of a seed's test: `500.0 ± 0.00`; "" without a test."""
    mean = optional(seed_result.mean, score)
    return mean if seed_result.deviation is None else f"{mean} ± {score(seed_result.deviation)}"


def _together(group: Group) -> str:
    means = group.tested
    table_rows = []
    if means:
        table_rows.append(("test means", middle(means)))
        extremes = (min(means), median(means), max(means))
        table_rows.append(("lowest, median, highest", ", ".join(map(score, extremes))))
    if group.goal is not None:
        table_rows.append(("solved", _solved(group)))
    finished = [seed_result for seed_result in group.seeds if seed_result.finished]
    middle_steps, middle_seconds = middle_texts(group)
    if middle_steps:
        most = max(seed_result.env_steps or 0 for seed_result in finished)
        table_rows.append(("env steps, median (most)", f"{middle_steps} ({most:,})"))
    if middle_seconds:
        longest = max(seed_result.seconds or 0.0 for seed_result in finished)
        table_rows.append(("time, median (longest)", f"{middle_seconds} ({duration(longest)})"))
    if not table_rows:
        return ""
    warning = caution(len(means))
    note = f"{warning[0].upper()}{warning[1:]}." if warning else INTERVAL_NOTE
    return f"{markdown_table(('what', 'value'), table_rows)}\n\n{note}"


def middle_texts(group: Group) -> tuple[str, str]:
    """Return median env steps and median time of the seeds that finished, as texts; "" if unknown."""
    finished = [seed_result for seed_result in group.seeds if seed_result.finished]
    steps = [seed_result.env_steps for seed_result in finished if seed_result.env_steps is not None]
    seconds = [seed_result.seconds for seed_result in finished if seed_result.seconds is not None]
    return f"{median(steps):,.0f}" if steps else "", duration(median(seconds)) if seconds else ""


def commands(group: Group) -> str:
    """Return the section of shell commands: continue, compare, play the best run, repeat."""
    best_id = ""
    best_mean = -math.inf
    for seed_result in group.seeds:
        if seed_result.run and seed_result.mean is not None and seed_result.mean > best_mean:
            best_id = seed_result.run.id
            best_mean = seed_result.mean
    commit, is_changed, _ = str(group.facts.get("git_hash", "")).partition("+")
    checkout = f"git checkout {commit}{'  # plus the uncommitted changes' if is_changed else ''}\n" if commit else ""
    selector = f"group:{group.name}"
    return shell_commands([
        ("Continue unfinished runs", f"{TRAIN} --resume {selector}" if group.unfinished else ""),
        ("Compare its seeds, or two groups",
         f"{PLAY} --run-id {selector}\n{PLAY} --run-id {selector},group:OTHER"),
        ("Play the best run", f"{PLAY} --run-id {best_id}" if best_id else ""),
        ("Repeat it", f"{checkout}{group.command}" if group.words else ""),
    ])  # fmt: skip


def _environment(group: Group) -> str:
    """Return the table of code, versions and machine; if runs differ it refers to their own reports."""
    table_rows = []
    for key in ("git_hash", "versions", "host"):
        known_texts = {joined_pairs(seed_result.facts[key]) for seed_result in group.seeds if key in seed_result.facts}
        if len(known_texts) > 1:
            table_rows.append((key, f"{len(known_texts)} different values: see the runs"))
        elif known_texts:
            table_rows.append((key, known_texts.pop()))
    return markdown_table(("what", "value"), table_rows) if table_rows else "Not recorded."
