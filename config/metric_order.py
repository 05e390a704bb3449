"""Which metrics are shown, and in which order: what decides comes first, area by area."""

from collections.abc import Iterable
from functools import cache

from stride.config.metrics import Metric, load_metrics

AREAS = ("val", "test", "roll", "loss", "policy", "value", "time")
# shown above the table: the clock, and how long it has taken
ABOVE_AREA, ABOVE_NAME = "clock", "train/time/seconds"


def area_of(name: str) -> str:
    """`loss` of train/loss/policy, `val` of val/roll/ep_rew/mean, "" of a name without a slash."""
    stage, _, rest = name.partition("/")
    if not rest:
        return ""
    return rest.partition("/")[0] if stage == "train" else stage


@cache
def metric_of(name: str) -> Metric:
    """The declared metric; of one that a loop of somebody's own named, that name as its title."""
    own = Metric(name, name.removeprefix("train/"), meaning="", unit="none", precision=3, table=True)
    return load_metrics().get(name, own)


def arranged(names: Iterable[str]) -> list[Metric]:
    """Those that belong into a table; what the console shows comes first, as a small screen ends before the rest."""
    places = {name: place for place, name in enumerate(load_metrics())}

    def order(metric: Metric) -> tuple[bool, int, str, int, str]:
        area = area_of(metric.name)
        rank = AREAS.index(area) if area in AREAS else len(AREAS)
        return not metric.table, rank, area, places.get(metric.name, len(places)), metric.name

    shown = (metric_of(name) for name in names if area_of(name) != ABOVE_AREA and name != ABOVE_NAME)
    return sorted(shown, key=order)


def console_metrics() -> list[Metric]:
    """Those that a training shows while it goes on."""
    return [metric for metric in arranged(load_metrics()) if metric.table]
