"""Implement `stride runs explain`: what config/metrics.yaml says about a metric, when it is alarming, what helps."""

from stride.config.metrics import KEY, Metric, load_metrics
from stride.runstore.metrics_table import VAL
from stride.utils.user_error import UserError, nearest

RETURN = ("return", "reward", "ep_rew", "score")  # short names for the return of evaluations


def explained(name: str) -> list[str]:
    """Return the lines about one metric; without a name one line for each metric."""
    if not name:
        return [f"{metric.name:<36} {metric.meaning}" for metric in load_metrics().values()]
    metric = find_metric(name)
    text_lines = [
        f"{metric.name}: {metric.title}",
        f"  meaning   {metric.meaning}",
        f"  unit      {metric.unit}",
        f"  better    {metric.better or 'neither more nor less'}",
    ]
    for alert_rule in metric.alerts:
        text_lines.append(f"  alarming  {alert_rule.words()}: {alert_rule.means}")
        text_lines.append("  tip       " + "; ".join(KEY.sub(r"\1", advice) for advice in alert_rule.tries))
    if not metric.alerts:
        text_lines.append("  alarming  only if it is not a number")
    return text_lines


def explained_data(name: str) -> list[dict[str, object]]:
    """Return one metric, or all without a name, as data for --json."""
    metrics = [find_metric(name)] if name else load_metrics().values()
    return [
        {
            "name": metric.name,
            "title": metric.title,
            "meaning": metric.meaning,
            "unit": metric.unit,
            "better": metric.better,
            "alerts": [
                {"when": alert_rule.words(), "means": alert_rule.means, "tries": [*alert_rule.tries]}
                for alert_rule in metric.alerts
            ],
        }
        for metric in metrics
    ]


def find_metric(name: str) -> Metric:
    """Find a metric by its name or by an unambiguous end of it: `approx_kl`; UserError with the nearest name."""
    metrics = load_metrics()
    name = VAL if name in RETURN else name
    if name in metrics:
        return metrics[name]
    matches = [full_name for full_name in metrics if full_name.endswith(f"/{name}")]
    if len(matches) > 1:
        raise UserError(f"{name!r} matches {len(matches)} metrics: {', '.join(matches)}; give more of the name")
    if not matches:
        short_names = [full_name.rpartition("/")[2] for full_name in metrics]
        suggestion = nearest(name, [*metrics, *short_names])
        raise UserError(f"no metric {name[:60]!r}{suggestion}; stride runs explain lists all")
    return metrics[matches[0]]
