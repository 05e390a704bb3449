"""A page of W&B for the runs of a project, made of metrics.yaml: what matters first, then a section for each area.

The same metrics give the same page, to the byte: whoever sends it twice changes nothing.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from stride.config.metrics import Metric, load_metrics
from stride.runstore.history import STEPS

NAME, VIEW = "Stride", "nw-stride-v"  # as people see it, as W&B finds it again
FIRST = "Overview"
RETURNS = ("train/roll/ep_rew/mean", "val/roll/ep_rew/mean", "test/roll/ep_rew/mean")
MOST = 200  # runs of a project that are hidden where only the newest is to be seen
AREAS = {
    "roll": "Episodes", "loss": "Losses", "return": "Returns", "advantage": "Advantages", "grad_norm": "Gradients",
    "hyper": "Hyperparameters", "dream": "Dreams",
}  # fmt: skip


class Panel(NamedTuple):
    """A chart over env steps."""

    title: str
    metrics: tuple[str, ...]
    share: bool  # from 0 to 1


class Section(NamedTuple):
    """Panels under a heading; the first stands open."""

    name: str
    panels: tuple[Panel, ...]


def sections() -> list[Section]:
    """Every declared metric once, but those of the overview, which have their area, too."""
    metrics = load_metrics()
    returns = Panel("Return", RETURNS, False)
    shown = [_panel(each) for each in metrics.values() if each.table and each.name not in RETURNS]
    areas: dict[str, list[Panel]] = {}
    for metric in metrics.values():
        area = metric.name.split("/")[1]
        areas.setdefault(AREAS.get(area, area.capitalize()), []).append(_panel(metric))
    rest = [Section(name, tuple(panels)) for name, panels in areas.items()]
    return [Section(FIRST, (returns, *shown)), *rest]


def _panel(metric: Metric) -> Panel:
    return Panel(metric.title, (metric.name,), metric.unit == "fraction")


def workspace(entity: str, project: str, hidden: Sequence[str] = ()) -> Any:
    """The page as wandb-workspaces knows it; nothing is sent. `hidden`: ids of runs."""
    import wandb_workspaces.reports.v2 as panels
    import wandb_workspaces.workspaces as pages

    made = []
    for section in sections():
        lines = [
            _named(
                panels.LinePlot(
                    title=panel.title, x=STEPS, y=[*panel.metrics], range_y=(0, 1) if panel.share else (None, None)
                ),
                f"{section.name}/{panel.metrics}",
            )
            for panel in section.panels
        ]
        made.append(pages.Section(name=section.name, panels=lines, is_open=section.name == FIRST))
    films = [_named(panels.MediaBrowser(media_keys=[key]), key) for key in ("video", "curve")]
    made.append(pages.Section(name="Videos", panels=films))
    page = pages.Workspace(
        entity=entity,
        project=project,
        name=NAME,
        sections=made,
        settings=pages.WorkspaceSettings(x_axis=STEPS),
        runset_settings=pages.RunsetSettings(run_settings={each: pages.RunSettings(disabled=True) for each in hidden}),
    )
    page._internal_name = VIEW  # a name of our own: by chance it would be another page each time
    return page


def _named(panel: Any, what: str) -> Any:
    """The same id for the same panel, for the same reason."""
    panel._id = hashlib.sha256(what.encode()).hexdigest()[:11]
    return panel


def as_json(page: Any) -> str:
    """What is sent."""
    return str(page._to_model().model_dump_json(by_alias=True, exclude_none=True, indent=1))
