"""One run of the campaign in its own process: claims it, trains (or resumes), plays 100 episodes, writes the record.

    python -m lab.evidence.run CartPole-v1:ppo 3                        what `lab.evidence campaign` starts
    python -m lab.evidence.run CartPole-v1:ppo 3 --tenth FILE.json      the first tenth, what `check` starts

The claim belongs to this process, so no second process repeats the run if the campaign's process dies. A training that
was killed resumes at its last checkpoint, as long as the code is the same. Exit code 75: another process has the run.
"""

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from lab.evidence.file import TEST_CONFIGS, Record, this_machine
from lab.evidence.receipts import TENTH, first_tenth, last_return, loaded_sources, restamped, sources_hash
from lab.evidence.rows import row_of, settings
from lab.evidence.runs import Curve, Run, Store, keep
from lab.evidence.seed import find_run, measure
from stride.commands import train
from stride.commands.usage import parser_of
from stride.runstore.metrics_table import read_csv
from stride.utils import entry, kernel_folder
from stride.utils.durable_file import write_json
from stride.utils.provenance import called, git_hash, source_hash, versions
from stride.utils.user_error import UserError


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("variant")
    parser.add_argument("seed", type=int)
    parser.add_argument("--tenth", type=Path, metavar="FILE", help="train the first tenth only, write its receipt here")
    given = parser.parse_args(argv)
    run = Run(row_of(given.variant), given.seed)
    if given.tenth:
        write_json(given.tenth, tenth(run))
        return 0
    return keep(Store(), run, lambda: trained_by_its_commit(run))


def group() -> str:
    """Return the group of runs of today's code: a training resumes only in its own group.

    A commit that changes records only leaves the group as it is.
    """
    return f"evidence-{source_hash('stride', 'report')[:10]}"


def train_words(run: Run, *more: str) -> list[str]:
    """Return the arguments of `stride train` for a run."""
    config_file = TEST_CONFIGS.get(run.row.variant)
    config = ["--config", str(config_file)] if config_file else []
    arguments = [run.row.variant, "--seed", str(run.seed), "--group", group(), "--quiet", *config]
    return [*arguments, *run.row.overrides, *more]


def trained_by_its_commit(run: Run) -> tuple[Record, Curve] | int:
    """Train a run as `trained` does; UserError if the code on disk changed during the training."""
    result = trained(run)
    if not isinstance(result, int):
        record, curve = result
        if restamped(record, curve["sources"]):
            raise UserError(
                f"the code is not that of {record['git_hash'][:10]}, which began the run: nothing is recorded"
            )
    return result


def trained(run: Run) -> tuple[Record, Curve] | int:
    """Train a run in this process; return its record and curve.

    Return an exit code instead if a person stopped the training, or if its arguments were wrong.
    """
    words = train_words(run)
    with called("train", [word for word in words if word != "--quiet"]):
        code = train.command(words)
    if code not in (0, 1):
        return code
    sources = loaded_sources()
    run_dir = find_run(group(), run.row.variant, run.seed)
    receipt = receipt_of(run, sources)
    if code:
        line = run_dir.facts().get("failure") or "no reason was written"
        return {**receipt, "status": "failed", "solved": False, "code": code, "line": line}, {"sources": sources}
    record = measure(run_dir)
    rows, curve = read_csv(run_dir.metrics_csv), {**record.pop("curve"), "sources": sources}
    record |= {"tenth": first_tenth(rows, run.row.config().max_timesteps)}
    # the commit at which the training began; the code was the same until its end
    return {**receipt, **record, "core_seconds": round(time.process_time(), 1)}, curve


def receipt_of(run: Run, sources: list[str]) -> dict[str, Any]:
    """Return the part of a record that says what it is of: settings, budget, code, machine, versions."""
    return {
        "variant": run.row.variant, "seed": run.seed, "settings": settings(run.row),
        "budget": run.row.config().max_timesteps, "git_hash": git_hash(), "sources": sources_hash(sources),
        "machine": this_machine(), "processor": processor_class(), "threads": 1, "versions": versions(),
    }  # fmt: skip


def processor_class() -> str:
    """Return what equal bits depend on: the compiler's name for the processor, and the instruction set of torch."""
    return f"{kernel_folder.NAME}, {torch.backends.cpu.get_cpu_capability()}"


def tenth(run: Run) -> dict[str, Any]:
    """Train the first tenth of a run in a temporary folder, and return its receipt with its hash and last return."""
    budget = run.row.config().max_timesteps
    with tempfile.TemporaryDirectory(prefix="stride-tenth-") as folder:
        os.environ["STRIDE_RUNS"] = folder
        code = train.command(train_words(run, "--pause-at", str(budget // TENTH)))
        if code:
            raise SystemExit(code)
        rows = read_csv(find_run(group(), run.row.variant, run.seed).metrics_csv)
    receipt = receipt_of(run, loaded_sources())
    return {**receipt, "tenth": first_tenth(rows, budget), "last": last_return(rows, budget)}


if __name__ == "__main__":
    entry.run(main)
