"""One run at a glance: its learning curve, what else was measured, what was configured, where it ran."""

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from config.loader import from_plain, to_plain
from config.metrics import Metric, load_metrics
from config.schema import ALGORITHMS
from inspector.charts import Line, draw, responsive
from inspector.markup import Markup, card, facts_row, join, note, table, tag
from inspector.runs import RunFacts
from trainer_callbacks.history import TRAIN, VAL
from trainer_callbacks.report import IDENTITY, points
from trainer_callbacks.typography import number, plain, score
from utils.user_error import UserError

SMALL_AREAS = ("train/loss/", "train/policy/", "train/value/", "train/grad_norm/", "train/hyper/")


def overview(each: RunFacts) -> Markup:
    """The whole room."""
    return join([header(each), learning(each), alerts(each), multiples(each), configured(each), where(each)])


def header(each: RunFacts) -> Markup:
    returns, facts = each.returns, each.facts
    config = facts.get("config", {})
    budget = config.get("max_timesteps") if isinstance(config, dict) else None
    steps = f"{each.env_steps:,}" + (f" of {budget:,}" if isinstance(budget, int) else "")
    pairs = [
        ("status", tag("span", each.status, class_=f"badge {each.status}")),
        ("env steps", steps),
        ("best return", score(max(returns)) if returns else "none yet"),
        ("last return", score(returns[-1]) if returns else "none yet"),
        ("goal", "none" if each.goal is None else plain(each.goal)),
        ("seed", facts.get("seed", "?")),
    ]
    about = str(config.get("description", "")) if isinstance(config, dict) else ""
    return join([tag("h2", each.variant), tag("p", about, class_="about"), facts_row(pairs)])


def learning(each: RunFacts) -> Markup:
    lines = [Line("training", points(each.rows, TRAIN), "c1"), Line("validation", points(each.rows, VAL), "c0")]
    return card("Episode return over env steps", responsive([line for line in lines if line.points], each.goal))


def alerts(each: RunFacts) -> Markup:
    """Metrics whose last value is outside what metrics.yaml calls healthy."""
    last: dict[str, float] = {}
    for row in each.rows:
        last.update(row)
    lines = [_alarm(metric, last[name]) for name, metric in load_metrics().items() if name in last]
    lines = [line for line in lines if line]
    return card("Alerts", tag("ul", *(tag("li", line) for line in lines)), kind="alerts") if lines else Markup("")


def _alarm(metric: Metric, value: float) -> str:
    shown = number(value, metric.precision)
    if math.isnan(value):
        return "" if metric.nan else f"{metric.title} is not a number"
    if metric.low is not None and value < metric.low:
        return f"{metric.title} is {shown}, below {metric.low:g}: {metric.meaning}"
    if metric.high is not None and value > metric.high:
        return f"{metric.title} is {shown}, above {metric.high:g}: {metric.meaning}"
    return ""


def multiples(each: RunFacts) -> Markup:
    """A small chart for each measurement of learning, declared ones first, others under their own name."""
    declared, there = load_metrics(), {name for row in each.rows for name in row}
    names = [name for name in declared if name in there] + sorted(there - declared.keys())
    charts = []
    for name in names:
        if name.startswith(SMALL_AREAS) or name not in declared:
            title = declared[name].title if name in declared else name
            meaning = declared[name].meaning if name in declared else "not declared in metrics.yaml"
            chart = draw([Line(title, points(each.rows, name), "c2")])
            charts.append(tag("figure", tag("figcaption", title, title=f"{name}: {meaning}"), chart))
    return card("Learning, in small", tag("div", *charts, class_="multiples")) if charts else Markup("")


def differences(facts: Mapping[str, Any]) -> dict[str, str]:
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
        lines += [(str(name), str(text)) for name, text in pairs if text != ""]
    return card("Where it ran", table(("what", "value"), lines, "pairs"))
