"""The sink that brings a run to a tracker of others: a thread and a bounded queue of its own, and no error ends a run.

What the training waits for is an append to a list. No thread writes to the terminal: what a person should know of a
tracker is told by `end`, in the thread that trains; run.log has its errors at once.
"""

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from threading import Event as Flag
from threading import Thread

from stride.config.loader import to_plain
from stride.config.schema import Config
from stride.report.trackers.mailbox import MOST, Mailbox
from stride.report.trackers.tracker import ALERT, BEGIN, END, ROW, VIDEO, Facts, Tracker
from stride.runstore.history import STEPS, Event
from stride.runstore.outcome import UNENDED, Header, Outcome
from stride.runstore.run_dir import RunDir
from stride.runstore.run_log import NOTE
from stride.trainer_callbacks.sink import Sink
from stride.utils.one_line import describe_error
from stride.utils.user_error import UserError
from stride.utils.video_file import VideoError

PATIENCE = 5.0  # seconds that the end of a training waits for a tracker
HURRY = 0.3  # the same after a signal: whoever sent it may send SIGKILL next

log = logging.getLogger("stride")


class Courier(Sink):
    """One for each tracker, so that one that stalls holds up none of the others."""

    def __init__(self, tracker: Tracker, run: RunDir, env_steps: int = 0, most: int = MOST) -> None:
        """`env_steps`: where a resumed run goes on."""
        self._tracker, self._run, self._steps = tracker, run, env_steps
        self._box = Mailbox(most)
        self._trouble = ""
        self._delivered = Flag()  # all of it, or it was given up

    def begin(self, header: Header, config: Config) -> None:
        self._box.put({"call": BEGIN, "facts": facts_of(self._run, header, config, self._steps)})
        Thread(target=self._deliver, name=f"to {self._tracker.title}", daemon=True).start()

    def row(self, row: Mapping[str, float]) -> None:
        self._steps = int(row.get(STEPS, self._steps))
        self._box.put({"call": ROW, "step": self._steps, "values": dict(row)})

    def media(self, video: Path) -> None:
        self._box.put({"call": VIDEO, "step": self._steps, "path": str(video)})

    def alert(self, event: Event) -> None:
        if event.begins:
            alert = event.alert
            text = " ".join(filter(None, (event.sentence().removeprefix("! "), alert.means, alert.tip)))
            self._box.put({"call": ALERT, "step": event.env_steps, "title": alert.title, "text": text})

    def end(self, outcome: Outcome | None) -> None:
        self._box.put({"call": END, "facts": outcome and ended_of(self._run, outcome)})
        hurried = outcome is None or outcome.reason in UNENDED
        whole = self._delivered.wait(HURRY if hurried else PATIENCE)
        tracker, lost = self._tracker, self._box.lost
        late = "" if whole else "it is slow, what is left goes on in the background"
        dropped = f"it was too slow, {lost:,} rows were dropped" if lost else ""
        troubles = "; ".join(filter(None, (tracker.remark, self._trouble, dropped, late)))
        if tracker.where:
            log.info(f"{tracker.title}: {tracker.where}")
        if troubles:
            log.warning(f"{tracker.title}: {troubles}; metrics.csv has every row")

    def _deliver(self) -> None:
        """The thread: one piece of news after the other, until the end or the first error."""
        try:
            call = ""
            while call != END:
                news = self._box.take()
                self._tracker.tell(news)
                call = news["call"]
        except (OSError, UserError, VideoError) as error:  # a full disk, a process that is gone, a film that is none
            self._trouble = f"given up, {describe_error(error)}"
            log.log(NOTE, f"{self._tracker.title}: {self._trouble}")
        finally:
            self._delivered.set()


def facts_of(run: RunDir, header: Header, config: Config, env_steps: int) -> Facts:
    """What a tracker is told at the beginning."""
    facts = run.facts()
    told = {name: value for name, value in dataclasses.asdict(header).items() if name != "run_path"}
    plain = to_plain(config)
    return {
        "id": run.id,
        "logs": str(run.logs),
        "project": config.project_id or config.env_id,
        "group": str(facts.get("group") or ""),
        "tags": [*config.tags],
        "notes": config.notes,
        "config": plain | {"git_hash": str(facts.get("git_hash", "")), "run": told},
        "resumed_at": env_steps,
    }


def ended_of(run: RunDir, outcome: Outcome) -> Facts:
    """And at the end; `curve` and `report` are paths, "" where there is none."""
    curve, page = run.logs / "curve.svg", run.report
    return {
        "result": outcome.result,
        "verdict": outcome.verdict_words,
        "sentence": outcome.sentence(),
        "reason": outcome.reason,
        "test_mean": outcome.test_mean,
        "test_episodes": outcome.test_episodes,
        "val_best": outcome.val_best,
        "goal": outcome.goal,
        "seconds": outcome.seconds,
        "alerts": [alert.sentence() for alert in outcome.alerts],
        "curve": str(curve) if curve.exists() else "",
        "report": str(page) if page.exists() else "",
    }
