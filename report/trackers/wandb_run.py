"""Weights & Biases: a run of theirs for each of ours, online where there is a key, else in files to send later."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stride.report.trackers.tracker import Facts, Tracker
from stride.runstore import run_files
from stride.runstore.history import STEPS

PATIENCE = 20.0  # seconds for a server to answer at the beginning; rows wait meanwhile
SHORT = 128  # the most characters of a run's id and of a tag there
TAG = 64


class WandbRun(Tracker):
    """What W&B's own variables say goes first: WANDB_MODE, WANDB_PROJECT, WANDB_ENTITY, WANDB_DIR, WANDB_RUN_GROUP."""

    def begin(self, facts: Facts) -> None:
        import wandb

        options = options_of(facts)
        try:
            self._run = wandb.init(**options)
        except wandb.Error as error:
            reason = " ".join(str(error).split())
            wandb.teardown()
            self._run = wandb.init(**options, mode="offline")
            self.remark = f"no server was reached, so it writes files ({reason[:120]})"
        # rows of a resumed run repeat a stretch: the axis is our clock, not a count of calls
        self._run.define_metric(STEPS)
        self._run.define_metric("*", step_metric=STEPS)
        self.where = where(self._run)

    def row(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({STEPS: step, **values})

    def video(self, step: int, path: str) -> None:
        import wandb

        self._run.log({STEPS: step, "video": wandb.Video(path, format="mp4")})

    def alert(self, step: int, title: str, text: str) -> None:
        self._run.alert(title=title, text=f"{text} (at {step:,} env steps)")

    def end(self, facts: Facts | None) -> None:
        import wandb

        if facts is None:
            self._run.finish(exit_code=1)
            return
        if facts["curve"]:
            self._run.log({"curve": wandb.Html(run_files.read_bytes(Path(facts["curve"])).decode(), inject=False)})
        told = {name: value for name, value in facts.items() if name not in ("curve", "report") and value is not None}
        self._run.summary.update(told)
        self._run.finish(exit_code=0)


def options_of(facts: Facts) -> dict[str, Any]:
    """The arguments of wandb.init; in a sweep the run is the agent's."""
    import wandb

    sweep = bool(os.environ.get("WANDB_SWEEP_ID"))
    named = {} if sweep else {"id": facts["id"][:SHORT], "resume": "allow"}
    return {
        **named,
        "project": os.environ.get("WANDB_PROJECT") or facts["project"].replace("/", "-"),
        "name": facts["id"],
        "group": os.environ.get("WANDB_RUN_GROUP") or facts["group"] or None,
        "job_type": facts["config"]["algo_id"],
        "tags": [tag[:TAG] for tag in facts["tags"]],
        "notes": facts["notes"] or None,
        "config": facts["config"],
        "dir": os.environ.get("WANDB_DIR") or facts["logs"],
        # what we print is in run.log; what git knows beside the hash in the config is nobody's business
        "settings": wandb.Settings(console="off", init_timeout=PATIENCE, disable_git=True, save_code=False),
    }


def where(run: Any) -> str:
    """A page, or what is typed to send the files."""
    if run.url:
        return str(run.url)
    return f"offline; send it: wandb sync {os.path.relpath(Path(run.dir).parent)}"
