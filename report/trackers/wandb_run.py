"""The tracker for Weights & Biases: one W&B run for each run, online with an API key, else in files to send later."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stride.report.trackers.tracker import Details, Tracker
from stride.runstore import run_files
from stride.runstore.history import STEPS

SERVER_SECONDS = 20.0  # time for a server to answer at the beginning; rows wait meanwhile
MAX_ID, MAX_TAG = 128, 64  # characters that W&B accepts


class WandbRun(Tracker):
    """Writes to W&B. Its variables take precedence: WANDB_MODE, _PROJECT, _ENTITY, _DIR, _RUN_GROUP."""

    def begin(self, details: Details) -> None:
        import wandb

        options = init_options(details)
        try:
            self._run = wandb.init(**options)
        except wandb.Error as error:
            reason = " ".join(str(error).split())
            wandb.teardown()
            self._run = wandb.init(**options, mode="offline")
            self.remark = f"it could not reach the server, so it writes files ({reason[:120]})"
        # a resumed run repeats some env steps, so the axis of curves is env steps and not the number of calls
        self._run.define_metric(STEPS)
        self._run.define_metric("*", step_metric=STEPS)
        self.location = location_of(self._run)

    def row(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({STEPS: step, **values})

    def video(self, step: int, path: str) -> None:
        import wandb

        self._run.log({STEPS: step, "video": wandb.Video(path, format="mp4")})

    def alert(self, step: int, title: str, text: str) -> None:
        self._run.alert(title=title, text=f"{text} (at {step:,} env steps)")

    def end(self, details: Details | None) -> None:
        import wandb

        if details is None:
            self._run.finish(exit_code=1)
            return
        if details["curve"]:
            self._run.log({"curve": wandb.Html(run_files.read_bytes(Path(details["curve"])).decode(), inject=False)})
        results = {entry_name: value for entry_name, value in details.items() if entry_name not in ("curve", "report")}
        self._run.summary.update({entry_name: value for entry_name, value in results.items() if value is not None})
        self._run.finish(exit_code=0)


def init_options(details: Details) -> dict[str, Any]:
    """Return the arguments of wandb.init; in a W&B sweep its agent decides the id of the run."""
    import wandb

    options: dict[str, Any] = {}
    if not os.environ.get("WANDB_SWEEP_ID"):
        options = {"id": details["id"][:MAX_ID], "resume": "allow"}
    return {
        **options,
        "project": os.environ.get("WANDB_PROJECT") or details["project"].replace("/", "-"),
        "name": details["id"],
        "group": os.environ.get("WANDB_RUN_GROUP") or details["group"] or None,
        "job_type": details["config"]["algo_id"],
        "tags": [tag[:MAX_TAG] for tag in details["tags"]],
        "notes": details["notes"] or None,
        "config": details["config"],
        "dir": os.environ.get("WANDB_DIR") or details["logs"],
        # run.log has what is printed; what git knows beside the hash in the config stays private
        "settings": wandb.Settings(console="off", init_timeout=SERVER_SECONDS, disable_git=True, save_code=False),
    }


def location_of(run: Any) -> str:
    """Return the address of the run's page, or the command that sends its files."""
    if run.url:
        return str(run.url)
    return f"offline; send it: wandb sync {os.path.relpath(Path(run.dir).parent)}"
