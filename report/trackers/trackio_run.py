"""Trackio: its own database on this machine (TRACKIO_DIR), or the Space or server that its own variables name."""

from collections.abc import Mapping
from pathlib import Path

from stride.report.trackers.tracker import Facts, Tracker
from stride.runstore import run_files
from stride.runstore.history import STEPS


class TrackioRun(Tracker):
    """What it logs of the machine is left out: our rows hold memory and times."""

    def begin(self, facts: Facts) -> None:
        import trackio

        project = facts["project"].replace("/", "-")
        kept = {"tags": facts["tags"], "notes": facts["notes"]}
        self._run = trackio.init(
            project=project,
            name=facts["id"],
            group=facts["group"] or None,
            config={**facts["config"], **{name: value for name, value in kept.items() if value}},
            resume="allow",
            embed=False,
            auto_log_cpu=False,
            auto_log_gpu=False,
        )
        self.where = f"trackio show --project {project}"

    def row(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({STEPS: step, **values}, step=step)

    def video(self, step: int, path: str) -> None:
        import trackio

        self._run.log({"video": trackio.Video(path)}, step=step)

    def alert(self, step: int, title: str, text: str) -> None:
        self._run.alert(title=title, text=f"{text} (at {step:,} env steps)")

    def end(self, facts: Facts | None) -> None:
        import trackio

        if facts is not None and facts["report"]:
            self._run.log({"report": trackio.Markdown(run_files.read_bytes(Path(facts["report"])).decode())})
        trackio.finish()
