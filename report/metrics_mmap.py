"""The sink that monitors look at: metrics.mmap of a run (docs/metrics_file.md), from its begin to its end.

A resumed run begins a new file with the rows it goes on from. Where none can be made the training does without.
"""

import logging
from collections.abc import Mapping

from stride.config.metrics import load_metrics
from stride.config.schema import Config
from stride.runstore.history import STEPS, Event
from stride.runstore.metrics_layout import BEGUN, NAME
from stride.runstore.metrics_writer import MetricsWriter
from stride.runstore.outcome import FAILED, Header, Outcome
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.sink import Sink
from stride.trainer_callbacks.watch import past_rows

ITERATIONS, UPDATES = "train/clock/iterations", "train/clock/updates"
SPARE = 16  # metrics beyond those that are declared
TOLD = ("config_id", "algo_id", "engine", "env_backend", "device", "n_envs", "seed", "parameters", "goal", "threads")

log = logging.getLogger("stride")


class MetricsMmap(Sink):
    """Copies numbers; a row costs tens of microseconds, however many look."""

    def __init__(self, run: RunDir, env_steps: int = 0) -> None:
        """`env_steps`: where a resumed run goes on."""
        self._run, self._first = run, env_steps
        self._writer: MetricsWriter | None = None
        self._open: set[tuple[str, str]] = set()
        self._alerts = 0

    def begin(self, header: Header, config: Config) -> None:
        facts = {name: vars(header)[name] for name in TOLD} | {"first_step": self._first}
        try:
            path = self._run.path / NAME
            self._writer = MetricsWriter(path, self._run.id, facts, metrics=len(load_metrics()) + SPARE)
        except OSError as error:
            log.warning(f"{NAME} cannot be made ({error.strerror}): monitors will read metrics.csv")
            return
        self._writer.max_timesteps = config.max_timesteps
        for row in past_rows(self._run, self._first) if self._first else ():
            self.row(row)
        self._writer.say("", BEGUN)

    def row(self, row: Mapping[str, float]) -> None:
        if self._writer:
            self._writer.iterations = int(row.get(ITERATIONS, self._writer.iterations))
            self._writer.updates = int(row.get(UPDATES, self._writer.updates))
            self._writer.row(row.get(STEPS, self._writer.env_steps), row)

    def beat(self, clock: Mapping[str, int], playing: str) -> None:
        if self._writer:
            self._writer.progress(clock["env_steps"], clock["iterations"], clock["updates"], playing)

    def alert(self, event: Event) -> None:
        if event.begins:
            self._open.add(event.alert.key)
            self._alerts += 1
        else:
            self._open.discard(event.alert.key)
        if self._writer:
            self._writer.say(event.sentence(), alerts=(len(self._open), self._alerts))

    def end(self, outcome: Outcome | None) -> None:
        if self._writer and outcome:
            self._writer.end(outcome.result, outcome.lost or outcome.sentence())
        elif self._writer:
            self._writer.end(FAILED, "an error ended it: run.log has it")
