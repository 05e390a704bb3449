"""What a metric means, when it is alarming and what one tries then: what config/metrics.yaml says of it."""

from stride.config.metrics import KEY, Metric, load_metrics
from stride.utils.user_error import UserError, nearest


def explained(word: str) -> list[str]:
    """All about one metric; a line of each where none is named."""
    if not word:
        return [f"{each.name:<36} {each.meaning}" for each in load_metrics().values()]
    metric = meant(word)
    lines = [f"{metric.name}: {metric.title}", f"  meaning   {metric.meaning}", f"  unit      {metric.unit}"]
    lines.append(f"  better    {metric.better or 'neither more nor less'}")
    for rule in metric.alerts:
        lines.append(f"  alarming  {rule.words()}: {rule.means}")
        lines.append("  tip       " + "; ".join(KEY.sub(r"\1", each) for each in rule.tries))
    if not metric.alerts:
        lines.append("  alarming  never, but where it is no number")
    return lines


def told(word: str) -> list[dict[str, object]]:
    """The same for programs."""
    found = [meant(word)] if word else [*load_metrics().values()]
    return [
        {
            "name": each.name, "title": each.title, "meaning": each.meaning, "unit": each.unit, "better": each.better,
            "alerts": [{"when": rule.words(), "means": rule.means, "tries": [*rule.tries]} for rule in each.alerts],
        }
        for each in found
    ]  # fmt: skip


def meant(word: str) -> Metric:
    """A metric by its name, or by an end of it that no other has; UserError with the nearest."""
    metrics = load_metrics()
    found = [name for name in metrics if name == word] or [name for name in metrics if name.endswith(f"/{word}")]
    if len(found) > 1:
        raise UserError(f"{word!r} ends {len(found)} metrics: {', '.join(found)}")
    if not found:
        ends = {name.rpartition("/")[2]: name for name in metrics}
        raise UserError(f"no metric {word[:60]!r}{nearest(word, [*metrics, *ends])}; explain without a name lists all")
    return metrics[found[0]]
