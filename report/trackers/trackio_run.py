"""The tracker for Trackio: its database on this machine (TRACKIO_DIR), or a Space or server in its own variables."""

from collections.abc import Mapping
from pathlib import Path

from stride.report.trackers.tracker import Details, Tracker
from stride.runstore import run_files
from stride.runstore.history import STEPS


class TrackioRun(Tracker):
    """Writes to Trackio. Its own log of CPU and GPU is turned off, as metrics.csv has memory and times."""

    def begin(self, details: Details) -> None:
        import trackio

        project = details["project"].replace("/", "-")
        config = dict(details["config"])
        for name in ("tags", "notes"):
            if details[name]:
                config[name] = details[name]
        self._run = trackio.init(
            project=project,
            name=details["id"],
            group=details["group"] or None,
            config=config,
            resume="allow",
            embed=False,
            auto_log_cpu=False,
            auto_log_gpu=False,
        )
        self.location = f"trackio show --project {project}"

    def row(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({STEPS: step, **values}, step=step)

    def video(self, step: int, path: str) -> None:
        import trackio

        self._run.log({"video": trackio.Video(path)}, step=step)

    def alert(self, step: int, title: str, text: str) -> None:
        self._run.alert(title=title, text=f"{text} (at {step:,} env steps)")

    def end(self, details: Details | None) -> None:
        import trackio

        if details is not None and details["report"]:
            self._run.log({"report": trackio.Markdown(run_files.read_bytes(Path(details["report"])).decode())})
        trackio.finish()
