"""The sink that writes run.log: lines with times, to which a resumed run appends.

It logs about 40 lines of progress, however long a run is, and every evaluation, alert, video, the test and the end.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from stride.config.schema import Config
from stride.report.console import header_facts
from stride.runstore.history import RATE, STEPS, TRAIN, VAL, Event
from stride.runstore.outcome import Header, Outcome
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import mapping
from stride.runstore.run_log import NOTE
from stride.trainer_callbacks.sink import Sink
from stride.utils.typography import score

PROGRESS_LINES = 40  # lines about progress in a complete run
TEST = "test/roll/ep_rew/mean"

log = logging.getLogger("stride")


class LogLines(Sink):
    """Writes lines to run.log only; other sinks print what a person at the terminal should read."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._lines = 0  # lines about progress that were due up to the last row

    def begin(self, header: Header, config: Config) -> None:
        self._budget = max(1, config.max_timesteps)
        facts = self._run.facts()
        _note(f"{header.config_id}")
        for label, text in header_facts(header):
            _note(f"{label}: {text}")
        versions = {**mapping(facts.get("versions")), "git": str(facts.get("git_hash", ""))[:12]}
        for label, values in (("versions", versions), ("host", mapping(facts.get("host")))):
            pairs = [f"{name} {value}" for name, value in values.items() if value or label == "host"]
            _note(f"{label}: {', '.join(pairs)}")

    def row(self, row: Mapping[str, float]) -> None:
        due_lines = int(row.get(STEPS, 0) * PROGRESS_LINES / self._budget)
        if TEST in row:
            _note(f"test {_stage_score('test', row)}")
        elif VAL in row or due_lines > self._lines:
            parts = [f"{row[STEPS]:,.0f} steps, {100 * row[STEPS] / self._budget:.0f}%"]
            if TRAIN in row:
                parts.append(f"return {score(row[TRAIN])}")
            if VAL in row:
                parts.append(f"evaluation {_stage_score('val', row)}")
            if RATE in row:
                parts.append(f"{row[RATE]:,.0f} steps/s")
            _note(", ".join(parts))
        self._lines = max(self._lines, due_lines)

    def alert(self, event: Event) -> None:
        advice = f": {event.alert.means} {event.alert.tip}" if event.begins else ""
        _note(f"alert {event.sentence()} at {event.env_steps:,} steps{advice}")

    def media(self, video: Path) -> None:
        _note(f"video {video.name}")

    def end(self, outcome: Outcome | None) -> None:
        """Log the alerts and the result; after an error its traceback is in run.log already."""
        if outcome is None:
            return
        for alert in outcome.alerts:
            _note(f"alert in this run: {alert.sentence()}")
        _note(outcome.lost or outcome.sentence())


def _stage_score(stage: str, row: Mapping[str, float]) -> str:
    """Format the score of a stage, "val" or "test": `243.1 +- 12.0 over 20 episodes`."""
    mean = row.get(f"{stage}/roll/ep_rew/mean")
    deviation = row.get(f"{stage}/roll/ep_rew/std")
    episodes = row.get(f"{stage}/roll/episodes")
    text = "no finished episode" if mean is None else score(mean)
    if deviation is not None:
        text += f" +- {score(deviation)}"
    if episodes is not None:
        text += f" over {episodes:.0f} episodes"
    return text


def _note(line: str) -> None:
    """Log a line at the level that only run.log shows."""
    log.log(NOTE, line)
