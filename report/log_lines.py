"""The sink that writes down what happened: timed lines of run.log, which a resumed run goes on with.

About 40 lines of progress, however long a run is; beside them every evaluation, alert and video, the test and the end.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from stride.config.schema import Config
from stride.report.dashboard import header_facts
from stride.runstore.history import RATE, STEPS, TRAIN, VAL, Event
from stride.runstore.outcome import Header, Outcome
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import mapping
from stride.runstore.run_log import NOTE
from stride.trainer_callbacks.sink import Sink
from stride.utils.typography import score

LINES = 40  # of progress, in a whole run
TEST = "test/roll/ep_rew/mean"

log = logging.getLogger("stride")


class LogLines(Sink):
    """Lines for the file alone; what a person at the terminal should read, others say there."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._told = 0  # parts of the budget

    def begin(self, header: Header, config: Config) -> None:
        self._budget = config.max_timesteps
        facts = self._run.facts()
        versions = {**mapping(facts.get("versions")), "git": str(facts.get("git_hash", ""))[:12]}
        _note(f"{header.config_id}")
        for label, words in header_facts(header):
            _note(f"{label}: {words}")
        _note("versions: " + ", ".join(f"{name} {version}" for name, version in versions.items() if version))
        _note("host: " + ", ".join(f"{name} {value}" for name, value in mapping(facts.get("host")).items()))

    def row(self, row: Mapping[str, float]) -> None:
        part = int(row.get(STEPS, 0) * LINES / max(1, self._budget))
        if TEST in row:
            _note(f"test {_scored('test', row)}")
        elif VAL in row or part > self._told:
            words = [f"{row[STEPS]:,.0f} steps, {100 * row[STEPS] / max(1, self._budget):.0f}%"]
            words += [f"return {score(row[TRAIN])}"] if TRAIN in row else []
            words += [f"evaluation {_scored('val', row)}"] if VAL in row else []
            words += [f"{row[RATE]:,.0f} steps/s"] if RATE in row else []
            _note(", ".join(words))
        self._told = max(self._told, part)

    def alert(self, event: Event) -> None:
        advice = f": {event.alert.means} {event.alert.tip}" if event.begins else ""
        log.log(NOTE, f"alert {event.sentence()} at {event.env_steps:,} steps{advice}")

    def media(self, video: Path) -> None:
        _note(f"video {video.name}")

    def end(self, outcome: Outcome | None) -> None:
        """Of an error the traceback is in the file."""
        if outcome is None:
            return
        for alert in outcome.alerts:
            _note(f"alert in this run: {alert.sentence()}")
        _note(outcome.lost or outcome.sentence())


def _scored(stage: str, row: Mapping[str, float]) -> str:
    """Mean and deviation, of how many episodes."""
    mean, spread, episodes = (row.get(f"{stage}/roll/{name}") for name in ("ep_rew/mean", "ep_rew/std", "episodes"))
    words = "without an end of an episode" if mean is None else score(mean)
    words += "" if spread is None else f" +- {score(spread)}"
    return words + ("" if episodes is None else f" over {episodes:.0f} episodes")


def _note(line: str) -> None:
    log.log(NOTE, line)
