"""Which settings are the best over several tasks? Trains every candidate of a file on every task with every seed.

    python -m lab.evidence.candidates lab/evidence/continuous.yaml --processes 2
    python -m lab.evidence.candidates lab/evidence/continuous.yaml --processes 0       the table of what is there

The score of a training is the mean return of 100 episodes with its final weights. A candidate's place on a task is its
mean over the seeds, scaled so that the task's worst candidate has 0 and its best 1; candidates are ranked by the mean
of their places. A result is a line of JSON in docs/results/candidates/. A training that has a line there is not
repeated; one that was killed continues at its last checkpoint.
"""

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import stride.agents.algorithms  # noqa: F401  # makes every algorithm's keys known
from lab.evidence.aggregate import area
from lab.evidence.file import configured
from lab.evidence.report import score_text, table
from lab.evidence.rows import WHOLE
from stride.commands.usage import parser_of
from stride.config.yaml_file import read_yaml
from stride.runstore.many.process_pool import run_all
from stride.utils import entry
from stride.utils.durable_file import read_json
from stride.utils.provenance import PROJECT, source_hash
from stride.utils.typography import duration

RESULTS = PROJECT / "docs" / "results" / "candidates"
RECORD_KEYS = ("env_steps", "seconds", "engine", "git_hash", "run")  # of a seed's record, copied into the result
Result = Mapping[str, Any]  # the fields of a Trial, "final", "area" and RECORD_KEYS


class Trial(NamedTuple):
    """One training: a candidate's settings on a task with a seed."""

    candidate: str
    task: str  # ENV:VARIANT and the task's own settings: "bsuite/DeepSea-v0:ppo env_kwargs.size=20"
    seed: int
    settings: list[str]

    @property
    def arguments(self) -> tuple[str, list[str]]:
        """ENV:VARIANT, and all settings: the candidate's and the task's."""
        variant, *own = self.task.split()
        return variant, [*self.settings, *own]

    @property
    def group(self) -> str:
        """The group of its run; the name depends on settings and code, so a run of other ones is not continued."""
        text = json.dumps([self.arguments, source_hash()])
        return f"{self.candidate}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("file", type=Path, help="YAML: algorithm, tasks, seeds, common, candidates")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N", help="how many side by side")
    parser.add_argument("--tasks", nargs="+", metavar="ENV", help="only these")
    parser.add_argument("--steps", type=int, metavar="N", help="another budget, to try it")
    given = parser.parse_args(argv)
    trials = [*trials_of(read_yaml(given.file), given.tasks, given.steps)]
    path = RESULTS / f"{given.file.stem}.jsonl"
    failed = train(trials, path, given.processes) if given.processes else 0
    print(ranking([result for result in read(path) if trial_of(result) in trials]))
    return 1 if failed else 0


def trials_of(plan: Mapping[str, Any], tasks: Sequence[str] | None, steps: int | None) -> Iterator[Trial]:
    """Yield the trainings of a file's `plan`, on these `tasks` only and with a budget of `steps` if they are given.

    They go seed by seed and task by task, so that a search that is stopped early has compared all candidates.
    """
    for seed in plan["seeds"]:
        for task in tasks or plan["tasks"]:
            for name, candidate_keys in plan["candidates"].items():
                keys = {**plan["common"], **candidate_keys, **({"max_timesteps": steps} if steps else {})}
                settings = [f"{key}={yaml_text(value)}" for key, value in keys.items()]
                env_id, *task_settings = task.split()
                label = " ".join([f"{env_id}:{plan['algorithm']}", *task_settings])
                yield Trial(name, label, seed, [*WHOLE, *settings])


def yaml_text(value: object) -> str:
    """Return a value of the file as it is written on a command line."""
    return value if isinstance(value, str) else json.dumps(value)


def train(trials: Sequence[Trial], path: Path, processes: int) -> int:
    """Train the trials that have no result in `path`, add each result at once; return how many failed."""
    done = [trial_of(result) for result in read(path)]
    trials = [trial for trial in trials if trial not in done]
    for trial in trials:
        configured(*trial.arguments)  # a wrong key is an error before anything is trained
    path.parent.mkdir(parents=True, exist_ok=True)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="stride-candidates-") as folder:
        records = [Path(folder, f"{number}.json") for number in range(len(trials))]
        commands = [
            [sys.executable, "-m", "lab.evidence.seed", variant, str(trial.seed), trial.group, str(record), *settings]
            for trial, record in zip(trials, records, strict=True)
            for variant, settings in [trial.arguments]
        ]
        for number, ended in enumerate(run_all(commands, processes), 1):
            trial, record = trials[ended.index], records[ended.index]
            name = f"{number} of {len(trials)}: {trial.candidate} on {trial.task}, seed {trial.seed}"
            if ended.returncode:
                failed += 1
                print(f"{name}: FAILED: {(ended.output_tail.strip().splitlines() or ['no word'])[-1]}", flush=True)
                continue
            result = result_of(trial, read_json(record))
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
            print(f"{name}: {score_text(result['final'])}, {duration(result['seconds'])}", flush=True)
    return failed


def result_of(trial: Trial, record: Mapping[str, Any]) -> Result:
    """Return a trial's result; "final": mean of 100 episodes of the final weights, "area": mean height of the curve."""
    kept, final = {key: record[key] for key in RECORD_KEYS}, record["final"]["mean"]
    curve = record["curve"]["val"] or record["curve"]["train"] or [[record["env_steps"], final]]
    return {**trial._asdict(), "final": final, "area": area(curve), **kept}


def read(path: Path) -> list[Result]:
    """Return the results in a file of JSON lines; [] if there is none."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def trial_of(result: Result) -> Trial:
    return Trial(*(result[name] for name in Trial._fields))


def ranking(results: Sequence[Result]) -> str:
    """Return a Markdown table with a row for each candidate, the best one first."""
    names, tasks = (list(dict.fromkeys(result[key] for result in results)) for key in ("candidate", "task"))
    final, areas = shares(results, "final"), shares(results, "area")
    rows: list[Sequence[str]] = [("candidate", "final", "area", "seeds", *tasks, "time")]
    for name in sorted(names, key=lambda name: -final[name]):
        own = [result for result in results if result["candidate"] == name]
        means = [[result["final"] for result in own if result["task"] == task] for task in tasks]
        texts = [score_text(fmean(values)) if values else "" for values in means]
        spent = duration(sum(result["seconds"] for result in own))
        rows.append((name, f"{final[name]:.3f}", f"{areas[name]:.3f}", str(len(own)), *texts, spent))
    return table(rows)


def shares(results: Sequence[Result], key: str) -> dict[str, float]:
    """Return candidate -> its place between a task's worst (0) and best (1), the mean over its tasks.

    `key`: "final" or "area".
    """
    places: dict[str, list[float]] = {}
    for task in {result["task"] for result in results}:
        means: dict[str, list[float]] = {}
        for result in results:
            if result["task"] == task:
                means.setdefault(result["candidate"], []).append(result[key])
        heights = {name: fmean(values) for name, values in means.items()}
        low, high = min(heights.values()), max(heights.values())
        for name, height in heights.items():
            places.setdefault(name, []).append((height - low) / (high - low) if high > low else 1.0)
    return {name: fmean(values) for name, values in places.items()}


if __name__ == "__main__":
    entry.run(main)
