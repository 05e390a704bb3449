"""Make a W&B workspace (dashboard) for the runs of a project: an overview, then a section for each area of metrics.

It follows from metrics.yaml alone, byte by byte, so sending it twice changes nothing.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from stride.config.metrics import Metric, load_metrics
from stride.runstore.history import STEPS

NAME, VIEW = "Stride", "nw-stride-v"  # the title of the page, and the name by which W&B finds it again
OVERVIEW = "Overview"
RETURNS = ("train/roll/ep_rew/mean", "val/roll/ep_rew/mean", "test/roll/ep_rew/mean")
MAX_HIDDEN_RUNS = 200  # runs of a project to hide if only the newest should be shown
AREAS = {
    "roll": "Episodes", "loss": "Losses", "return": "Returns", "advantage": "Advantages", "grad_norm": "Gradients",
    "hyper": "Hyperparameters", "dream": "Dreams",
}  # fmt: skip


def sections() -> dict[str, list[Metric]]:
    """Return the metrics of each section: some in the overview, and each declared metric once in its area."""
    overview: list[Metric] = []
    areas: dict[str, list[Metric]] = {}
    for metric in load_metrics().values():
        if metric.table and metric.name not in RETURNS:
            overview.append(metric)
        area = metric.name.split("/")[1]
        areas.setdefault(AREAS.get(area, area.capitalize()), []).append(metric)
    return {OVERVIEW: overview, **areas}


def workspace(entity: str, project: str, hidden: Sequence[str] = ()) -> Any:
    """Make the page as an object of wandb-workspaces, without sending it. `hidden`: ids of runs not to show."""
    import wandb_workspaces.reports.v2 as panels
    import wandb_workspaces.workspaces as pages

    def chart(section: str, title: str, names: tuple[str, ...], is_fraction: bool) -> Any:
        limits = (0, 1) if is_fraction else (None, None)
        return _with_id(panels.LinePlot(title=title, x=STEPS, y=[*names], range_y=limits), f"{section}/{names}")

    all_sections = []
    for section, metrics in sections().items():
        charts = [chart(section, "Return", RETURNS, False)] if section == OVERVIEW else []
        charts += [chart(section, metric.title, (metric.name,), metric.unit == "fraction") for metric in metrics]
        all_sections.append(pages.Section(name=section, panels=charts, is_open=section == OVERVIEW))
    videos = [_with_id(panels.MediaBrowser(media_keys=[key]), key) for key in ("video", "curve")]
    all_sections.append(pages.Section(name="Videos", panels=videos))
    run_settings = {run_id: pages.RunSettings(disabled=True) for run_id in hidden}
    page = pages.Workspace(
        entity=entity,
        project=project,
        name=NAME,
        sections=all_sections,
        settings=pages.WorkspaceSettings(x_axis=STEPS),
        runset_settings=pages.RunsetSettings(run_settings=run_settings),
    )
    page._internal_name = VIEW  # without a name each call would make another page
    return page


def _with_id(panel: Any, description: str) -> Any:
    """Give the panel an id that depends only on its description, and not on chance."""
    panel._id = hashlib.sha256(description.encode()).hexdigest()[:11]
    return panel


def as_json(page: Any) -> str:
    """Return the JSON text to send."""
    return str(page._to_model().model_dump_json(by_alias=True, exclude_none=True, indent=1))
