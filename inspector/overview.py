"""One run at a glance: its learning curve, what else was measured, what was configured, where it ran."""

from stride.config.diff import differing_rows
from stride.config.metrics import load_metrics, metric_of
from stride.inspector.charts import Line, board, bound, chart, clock, constant
from stride.inspector.markup import Markup, card, facts_row, join, note, table, tag
from stride.inspector.runs import RunFacts
from stride.inspector.table import badge, moment, verdict_badge
from stride.runstore.dreams import MEANING, read_dreams
from stride.runstore.history import TRAIN, VAL
from stride.runstore.run_facts import whole
from stride.trainer_callbacks.watch import read_alerts
from stride.utils.typography import duration, score, short
from stride.utils.user_error import UserError

MOST_CHARTS = 100
MOST_TEXT = 2000  # characters of a value
SMALL_AREAS = ("train/loss/", "train/policy/", "train/value/", "train/grad_norm/", "train/hyper/")


def overview(each: RunFacts) -> Markup:
    """The whole room."""
    charts = board(each.run.id, {"": clock(each)}, learning(each), multiples(each))
    return join([header(each), alerts(each), charts, dreams(each), configured(each), where(each)])


def header(each: RunFacts) -> Markup:
    line, tail, config = each.brief, each.brief.tail, each.facts.get("config", {})
    budget = config.get("max_timesteps")
    of = "" if tail.evaluated else " of training"
    pairs = [
        ("status", join([badge(line.status), " ", verdict_badge(line.verdict)])),
        ("test return", None if line.test is None else score(line.test)),
        (f"best return{of}", "none yet" if tail.best is None else score(tail.best)),
        (f"last return{of}", "none yet" if tail.last is None else score(tail.last)),
        ("goal", bound(line.goal) or "none"),
        ("env steps", f"{tail.steps:,}" + (f" of {budget:,}" if isinstance(budget, int) and whole(budget) else "")),
        ("took", None if line.took is None else duration(line.took)),
        ("steps/s", None if line.speed is None else short(line.speed)),
        ("seed", each.facts.get("seed", "?")),
        ("started", None if line.started is None else moment(line.started)),
    ]
    about = tag("p", str(config.get("description", ""))[:MOST_TEXT], class_="about")
    wrong = [tag("p", text, class_="damage") for text in (each.fault, line.reason) if text]
    shown = [(name, value) for name, value in pairs if value is not None]
    return join([tag("h2", line.variant), about, *wrong, facts_row(shown)])


def learning(each: RunFacts) -> Markup:
    lines = [Line("training", each.points(TRAIN), "c1"), Line("evaluation", each.points(VAL), "c0")]
    size = each.curves.sampled
    some = [note(f"metrics.csv has {size / 2**20:,.0f} MiB: the curves show rows from all over it")] if size else []
    return tag("section", chart("Episode return", lines, each.brief.goal), *some, class_="card")


def alerts(each: RunFacts) -> Markup:
    """What was alarming so far and what one may try; what is not the case any more, too."""
    try:
        found = read_alerts(each.run)
    except UserError as error:
        return card("Alerts", note(str(error)))
    lines = [
        tag("li", f"{'' if alert.open else 'over: '}{alert.sentence()}. {alert.means} {alert.tip}") for alert in found
    ]
    return card("Alerts", tag("ul", *lines), kind="alerts") if lines else Markup("")


def multiples(each: RunFacts) -> Markup:
    """A small chart for each measurement of learning, declared ones first, others under their own name."""
    declared, there = load_metrics(), each.curves.curves.keys()
    names = [name for name in declared if name in there and name.startswith(SMALL_AREAS)]
    names += sorted(there - declared.keys())
    charts, still = [], []
    for name in names[:MOST_CHARTS]:
        metric = metric_of(name)
        title, points = metric.title[:MOST_TEXT], each.points(name)
        about = f"{name[:MOST_TEXT]}: {metric.meaning or 'not declared in metrics.yaml'}"
        value = constant(points)
        if value is None:
            charts.append(chart(title, [Line(title, points, "c2")], small=True, about=about))
        else:
            still.append((title, f"{value:g}", about))
    left = [note(f"and {len(names) - MOST_CHARTS} more")] if len(names) > MOST_CHARTS else []
    if still:
        told = f"{len(still)} that did not change: {', '.join(title for title, *_ in still)}"
        left.append(tag("details", tag("summary", told), table(("metric", "value", "meaning"), still, "pairs")))
    return card("Learning", tag("div", *charts, class_="multiples"), *left) if charts or left else Markup("")


def dreams(each: RunFacts) -> Markup:
    """How far a world model's dreams stray, where a run has come to its end with one."""
    try:
        found = read_dreams(each.run)
    except UserError as error:
        return card("Dreams", note(str(error)))
    if found is None:
        return Markup("")
    return card("Dreams", table(*found.table(), "numbers"), note(MEANING))


def configured(each: RunFacts) -> Markup:
    try:
        rows = differing_rows(each.facts)
    except UserError as error:
        return card("Config", note(str(error)))
    return card("Different from the defaults", table(("key", "value", "default"), rows, "pairs"))


def where(each: RunFacts) -> Markup:
    lines = [("run", each.run.id)]
    for key in ("command", "git_hash", "engine", "device", "host", "versions"):
        value = each.facts.get(key, "")
        pairs = value.items() if isinstance(value, dict) else [(key, value)]
        lines += [(str(name)[:MOST_TEXT], str(text)[:MOST_TEXT]) for name, text in pairs if text != ""]
    return card("Where it ran", table(("what", "value"), lines, "pairs"))
