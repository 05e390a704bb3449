"""Makes the tab Overview of a run: status, alerts, learning curve and all its other metrics.

The cards with settings and machine, which the tab Config & Model shows, are here, too.
"""

from stride.config.diff import changed_keys, differing_rows
from stride.config.metrics import OWN_PREFIX, load_metrics, ordered
from stride.inspector.charts import Line, board, chart, clock, constant, goal_text
from stride.inspector.markup import Markup, card, facts_row, join, note, table, tag
from stride.inspector.runs import RunFacts
from stride.inspector.table import badge, moment, verdict_badge
from stride.runstore.dreams import MEANING, read_dreams
from stride.runstore.history import TRAIN, VAL
from stride.runstore.metrics_table import NAMES, SECONDS
from stride.runstore.run_brief import Labels
from stride.runstore.run_facts import whole
from stride.trainer_callbacks.watch import read_alerts
from stride.utils.typography import duration, optional, score, short
from stride.utils.user_error import UserError

MAX_CHARTS = 100  # small charts in one card
MAX_TEXT = 2000  # characters of a value
SMALL_AREAS = ("train/loss/", "train/policy/", "train/value/", "train/grad_norm/", "train/hyper/")  # of learning
MACHINE_AREAS = ("train/time/",)  # of speed, memory and time


def overview(run_facts: RunFacts) -> Markup:
    """Return the complete tab."""
    charts = (
        learning(run_facts),
        small_charts(run_facts, "Learning"),
        small_charts(run_facts, "Machine: speed, memory and use of time", MACHINE_AREAS),
    )
    page = board(run_facts.run.id, {"": clock(run_facts)}, *charts)
    return join([header(run_facts), alerts(run_facts), page, dreams(run_facts)])


def header(run_facts: RunFacts) -> Markup:
    """Return the variant, its description, the run's changes, labels and problems, and a row of facts."""
    brief = run_facts.brief
    tail = brief.tail
    config = run_facts.facts.get("config", {})
    budget = config.get("max_timesteps")
    of_budget = f" of {budget:,}" if isinstance(budget, int) and whole(budget) else ""
    name = NAMES["val" if tail.evaluated else "train"]
    details = {
        "status": join([badge(brief.status), " ", verdict_badge(brief.verdict)]),
        "test": optional(brief.test, score),
        f"best {name}": optional(tail.best, score) or "none yet",
        f"last {name}": optional(tail.last, score) or "none yet",
        "goal": goal_text(brief.goal) or "none",
        "env steps": f"{tail.steps:,}{of_budget}",
        "took": optional(brief.took, duration),
        "steps/s": optional(brief.speed, short),
        "seed": run_facts.facts.get("seed", "?"),
        "started": optional(brief.started, moment),
    }
    description = tag("p", str(config.get("description", ""))[:MAX_TEXT], class_="about")
    problems = [tag("p", text, class_="damage") for text in (run_facts.fault, brief.reason) if text]
    details_row = facts_row(detail for detail in details.items() if detail[1] != "")
    changes = tag("p", "changed for this run: ", tag("b", brief.changes), class_="about") if brief.changes else ""
    heading = tag("h2", brief.variant, data_run=run_facts.run.id)
    return join([heading, description, changes, _labels(brief.labels), *problems, details_row])


def _labels(labels: Labels) -> Markup:
    """Return the run's tags and note, which `stride runs tag` and `stride runs note` write."""
    words = [tag("span", word, class_="pill") for word in labels.tags]
    return tag("div", *words, tag("span", labels.note, class_="about"), class_="labels") if any(labels) else Markup("")


def learning(run_facts: RunFacts) -> Markup:
    """Return the chart of the return, in training and in evaluations."""
    lines = [Line(NAMES["train"], run_facts.points(TRAIN), "c1"), Line(NAMES["val"], run_facts.points(VAL), "c0")]
    sampled_bytes = run_facts.curves.sampled
    remark = f"metrics.csv has {sampled_bytes / 2**20:,.0f} MiB: the curves show a sample of its rows"
    remarks = [note(remark)] if sampled_bytes else []
    return tag("section", chart("Return", lines, run_facts.brief.goal), *remarks, class_="card")


def alerts(run_facts: RunFacts) -> Markup:
    """Return a card with every alert so far, ended ones included, and what to try; nothing if there was none."""
    try:
        all_alerts = read_alerts(run_facts.run)
    except UserError as error:
        return card("Alerts", note(str(error)))
    items = []
    for alert in all_alerts:
        prefix = "" if alert.open else "ended: "
        items.append(tag("li", f"{prefix}{alert.sentence()}. {alert.means} {alert.tip}"))
    return card("Alerts", tag("ul", *items), kind="alerts") if items else Markup("")


def small_charts(run_facts: RunFacts, heading: str, areas: tuple[str, ...] = ()) -> Markup:
    """Return a card with a small chart for each metric whose name begins with one of `areas`; constant ones as a table.

    Without `areas`: SMALL_AREAS, and metrics that metrics.yaml does not declare last."""
    declared = load_metrics()
    measured = run_facts.curves.curves.keys()
    metrics = ordered(
        name
        for name in measured - {SECONDS}
        if name.startswith(areas or SMALL_AREAS) or (not areas and name not in declared)
    )
    charts = []
    constants = []
    for metric in metrics[:MAX_CHARTS]:
        title = metric.title[:MAX_TEXT]
        points = run_facts.points(metric.name)
        unknown = "of its algorithm" if metric.name.startswith(OWN_PREFIX) else "not declared in metrics.yaml"
        meaning = f"{metric.name[:MAX_TEXT]}: {metric.meaning or unknown}"
        value = constant(points)
        if value is None:
            charts.append(chart(title, [Line(title, points, "c2")], small=True, about=meaning))
        else:
            constants.append((title, f"{value:g}", meaning))
    remarks = []
    if len(metrics) > MAX_CHARTS:
        remarks.append(note(f"and {len(metrics) - MAX_CHARTS} more"))
    if constants:
        summary = f"{len(constants)} did not change: {', '.join(title for title, *_ in constants)}"
        constants_table = table(("metric", "value", "meaning"), constants, "pairs")
        remarks.append(tag("details", tag("summary", summary), constants_table))
    if not charts and not remarks:
        return Markup("")
    grid = tag("div", *charts, class_="multiples")
    if areas:
        return tag("details", tag("summary", heading), grid, *remarks, class_="card")
    return card(heading, grid, *remarks)


def dreams(run_facts: RunFacts) -> Markup:
    """Return a table of the errors of a world model's predictions; nothing if the run stored none."""
    try:
        dream_errors = read_dreams(run_facts.run)
    except UserError as error:
        return card("Dreams", note(str(error)))
    if dream_errors is None:
        return Markup("")
    return card("Dreams", table(*dream_errors.table(), "numbers"), note(MEANING))


def configured(run_facts: RunFacts) -> Markup:
    """Return a card with the settings that are not defaults; those changed for this run are bold."""
    try:
        table_rows = differing_rows(run_facts.facts)
    except UserError as error:
        return card("Config", note(str(error)))
    changed = changed_keys(run_facts.facts)
    rows: list[tuple[object, ...]] = []
    for key, value, default in table_rows:
        rows.append((tag("b", key), tag("b", value), default) if key in changed else (key, value, default))
    remark = [note("bold: changed for this run")] if changed else []
    return card("Different from the defaults", table(("key", "value", "default"), rows, "pairs"), *remark)


def environment(run_facts: RunFacts) -> Markup:
    """Return a card with the run's command, code, versions and machine."""
    table_rows = [("run", run_facts.run.id)]
    for key in ("command", "git_hash", "engine", "device", "host", "versions"):
        value = run_facts.facts.get(key, "")
        details = value if isinstance(value, dict) else {key: value}
        for detail, text in details.items():
            if text != "":
                table_rows.append((str(detail)[:MAX_TEXT], str(text)[:MAX_TEXT]))
    return card("Where it ran", table(("what", "value"), table_rows, "pairs"))
