"""The sink that sends numbers to a tracker (W&B, TensorBoard, Trackio) through a bounded queue and its own thread.

The training only appends to the queue, and no error of a tracker ends a run. The thread never writes to the terminal:
`end`, in the thread that trains, logs what the person should know. run.log gets errors at once.
"""

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from threading import Event as Flag
from threading import Thread

from stride.config.loader import to_plain
from stride.config.schema import Config
from stride.report.trackers.tracker import ALERT, BEGIN, END, MAX_MESSAGES, ROW, VIDEO, Details, Tracker, TrackerQueue
from stride.runstore.history import STEPS, Event
from stride.runstore.outcome import UNENDED, Header, Outcome
from stride.runstore.run_dir import RunDir
from stride.runstore.run_log import NOTE
from stride.trainer_callbacks.sink import Sink
from stride.utils.user_error import UserError, describe_error
from stride.utils.video_file import VideoError

PATIENCE = 5.0  # seconds that the end of a training waits for a tracker
HURRY = 0.3  # seconds that it waits after a signal or an error: SIGKILL may be the next signal

log = logging.getLogger("stride")


class AsyncTracker(Sink):
    """Sends to one tracker; there is one sink for each, so that a tracker that hangs does not delay the others."""

    def __init__(self, tracker: Tracker, run: RunDir, env_steps: int = 0, most: int = MAX_MESSAGES) -> None:
        """`env_steps`: env steps at which a resumed run continues. `most`: size of the queue of messages."""
        self._tracker = tracker
        self._run = run
        self._steps = env_steps
        self._queue = TrackerQueue(most)
        self._trouble = ""
        self._finished = Flag()  # set when everything was delivered, or an error ended the deliveries

    def begin(self, header: Header, config: Config) -> None:
        self._queue.send({"call": BEGIN, "details": run_details(self._run, header, config, self._steps)})
        Thread(target=self._deliver, name=f"to {self._tracker.title}", daemon=True).start()

    def row(self, row: Mapping[str, float]) -> None:
        self._steps = int(row.get(STEPS, self._steps))
        self._queue.send({"call": ROW, "step": self._steps, "values": dict(row)})

    def media(self, video: Path) -> None:
        self._queue.send({"call": VIDEO, "step": self._steps, "path": str(video)})

    def alert(self, event: Event) -> None:
        if event.begins:
            alert = event.alert
            text = f"{event.sentence().removeprefix('! ')} {alert.means} {alert.tip}".strip()
            self._queue.send({"call": ALERT, "step": event.env_steps, "title": alert.title, "text": text})

    def end(self, outcome: Outcome | None) -> None:
        self._queue.send({"call": END, "details": outcome and outcome_details(self._run, outcome)})
        is_hurried = outcome is None or outcome.reason in UNENDED
        is_complete = self._finished.wait(HURRY if is_hurried else PATIENCE)
        tracker = self._tracker
        problems = [tracker.remark, self._trouble]
        if self._queue.dropped_rows:
            problems.append(f"it was too slow: {self._queue.dropped_rows:,} rows were dropped")
        if not is_complete:
            problems.append("it is slow: the remaining uploads continue in the background")
        if tracker.location:
            log.info(f"{tracker.title}: {tracker.location}")
        if any(problems):
            log.warning(f"{tracker.title}: {'; '.join(filter(None, problems))}; metrics.csv has every row")

    def _deliver(self) -> None:
        """Deliver one message after the other until the end or the first error; runs in its own thread."""
        try:
            while True:
                message = self._queue.get()
                self._tracker.receive(message)
                if message["call"] == END:
                    break
        except (OSError, UserError, VideoError) as error:  # a full disk, a lost process, a damaged video
            self._trouble = f"stopped after an error, {describe_error(error)}"
            log.log(NOTE, f"{self._tracker.title}: {self._trouble}")
        finally:
            self._finished.set()


def run_details(run: RunDir, header: Header, config: Config, env_steps: int) -> Details:
    """Return the message of `begin`: what a tracker should know about the run."""
    run_facts = run.facts()
    header_fields = dataclasses.asdict(header)
    del header_fields["run_path"]
    return {
        "id": run.id,
        "logs": str(run.logs),
        "project": config.project_id or config.env_id,
        "group": str(run_facts.get("group") or ""),
        "tags": [*config.tags],
        "notes": config.notes,
        "config": {**to_plain(config), "git_hash": str(run_facts.get("git_hash", "")), "run": header_fields},
        "resumed_at": env_steps,
    }


def outcome_details(run: RunDir, outcome: Outcome) -> Details:
    """Return the message of `end`; `curve` and `report` are paths, "" if the file does not exist."""
    curve_path = run.logs / "curve.svg"
    fields = ("result", "reason", "test_mean", "test_episodes", "val_best", "goal", "seconds")
    return {
        **{name: getattr(outcome, name) for name in fields},
        "verdict": outcome.verdict_words,
        "sentence": outcome.sentence(),
        "alerts": [alert.sentence() for alert in outcome.alerts],
        "curve": str(curve_path) if curve_path.exists() else "",
        "report": str(run.report) if run.report.exists() else "",
    }
