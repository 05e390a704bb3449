"""One run at a glance: its learning curve, what else was measured, what was configured, where it ran."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields

from config.loader import from_plain, to_plain
from config.metrics import load_metrics
from config.schema import ALGORITHMS
from config.written import IDENTITY
from inspector.charts import Line, bound, draw, responsive
from inspector.markup import Markup, card, facts_row, join, note, table, tag
from inspector.runs import RunFacts
from inspector.table import badge
from report.history import TRAIN, VAL
from report.typography import score
from report.watch import read_alerts
from utils.run_facts import mapping, verdict, whole
from utils.user_error import UserError

MOST_CHARTS = 100
MOST_TEXT = 2000  # characters of a value
SMALL_AREAS = ("train/loss/", "train/policy/", "train/value/", "train/grad_norm/", "train/hyper/")


def overview(each: RunFacts) -> Markup:
    """The whole room."""
    return join([header(each), learning(each), alerts(each), multiples(each), configured(each), where(each)])


def header(each: RunFacts) -> Markup:
    line, (steps, best, last, _), config = each.brief, each.brief.tail, each.facts.get("config", {})
    budget, outcome = config.get("max_timesteps"), mapping(each.facts.get("outcome"))
    pairs = [
        ("status", badge(line.status)),
        ("env steps", f"{steps:,}" + (f" of {budget:,}" if isinstance(budget, int) and whole(budget) else "")),
        ("best return", "none yet" if best is None else score(best)),
        ("last return", "none yet" if last is None else score(last)),
        ("goal", bound(line.goal) or "none"),
        ("verdict", verdict(outcome) if line.status == "finished" and outcome else "none yet"),
        ("seed", each.facts.get("seed", "?")),
    ]
    about = tag("p", str(config.get("description", ""))[:MOST_TEXT], class_="about")
    wrong = each.fault or line.failure
    damage = [tag("p", wrong, class_="damage")] if wrong else []
    return join([tag("h2", line.variant), about, *damage, facts_row(pairs)])


def learning(each: RunFacts) -> Markup:
    lines = [Line("training", each.points(TRAIN), "c1"), Line("validation", each.points(VAL), "c0")]
    chart = responsive([line for line in lines if line.points], each.brief.goal)
    size = each.curves.sampled
    some = [note(f"metrics.csv has {size / 2**20:,.0f} MiB: the curves show rows from all over it")] if size else []
    return card("Episode return over env steps", chart, *some)


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
    declared, there = load_metrics(), each.curves.series.keys()
    names = [name for name in declared if name in there] + sorted(there - declared.keys())
    names = [name for name in names if name.startswith(SMALL_AREAS) or name not in declared]
    charts = []
    for name in names[:MOST_CHARTS]:
        title = declared[name].title if name in declared else name[:MOST_TEXT]
        meaning = declared[name].meaning if name in declared else "not declared in metrics.yaml"
        chart = draw([Line(title, each.points(name), "c2")])
        charts.append(tag("figure", tag("figcaption", title, title=f"{name[:MOST_TEXT]}: {meaning}"), chart))
    left = [note(f"and {len(names) - MOST_CHARTS} more")] if len(names) > MOST_CHARTS else []
    return card("Learning, in small", tag("div", *charts, class_="multiples"), *left) if charts else Markup("")


def differences(facts: Mapping[str, object]) -> dict[str, str]:
    """What of the config is not the algorithm's default, as one would write it."""
    config = from_plain(facts.get("config") or {}, "config.json")
    plain_config = to_plain(config)
    changed = {}
    for item in fields(ALGORITHMS[config.algo_id]):
        default = item.default_factory() if callable(item.default_factory) else item.default
        if item.name not in IDENTITY and (default is MISSING or getattr(config, item.name) != default):
            changed[item.name] = json.dumps(plain_config[item.name])
    return changed


def configured(each: RunFacts) -> Markup:
    try:
        changed = differences(each.facts)
    except UserError as error:
        return card("Config", note(str(error)))
    return card("Different from the defaults", table(("key", "value"), changed.items(), "pairs"))


def where(each: RunFacts) -> Markup:
    lines = [("run", each.run.id)]
    for key in ("command", "git_hash", "engine", "host", "versions"):
        value = each.facts.get(key, "")
        pairs = value.items() if isinstance(value, dict) else [(key, value)]
        lines += [(str(name)[:MOST_TEXT], str(text)[:MOST_TEXT]) for name, text in pairs if text != ""]
    return card("Where it ran", table(("what", "value"), lines, "pairs"))
