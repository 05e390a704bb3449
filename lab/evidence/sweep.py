"""Are the settings that config/sweeps/cartpole.yaml finds good on fresh seeds, and how many env steps does it take?

    python -m lab.evidence.sweep --searches 3 --record

Each search has its own seed, for its trials and its sampler. For comparison, as many trials as one search has are drawn
at random from the same ranges and trained to the end: how many of them are good tells how wide the ranges are. With
--record, this writes docs/results/sweeps/cartpole.json and its section of docs/scale.md.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from lab.faults.record import record
from stride.commands.usage import called, parser_of
from stride.config.yaml_file import read_yaml
from stride.report.sweep_result import Finalist
from stride.utils import entry
from stride.utils.durable_file import read_json, write_json
from stride.utils.provenance import PROJECT, git_hash
from stride.utils.typography import score
from stride.utils.user_error import UserError

FILE = PROJECT / "config" / "sweeps" / "cartpole.yaml"
RESULT, PAGE = PROJECT / "docs" / "results" / "sweeps" / "cartpole.json", PROJECT / "docs" / "scale.md"
GOAL, FIRST_SEED = 475.0, 100  # mean return of CartPole's own goal; the seed of the first search
COMPLETE = 1  # a trial's state in Optuna's journal
MIN_SOLVED = 4  # fresh seeds on which a search's winner must be good
MAX_STEPS_SHARE = 0.45  # a search may take this fraction of the env steps of training all its trials to the end


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--searches", type=int, default=3, metavar="N", help="how many (default 3)")
    parser.add_argument("--record", action="store_true", help="write the figures down")
    arguments, commit = parser.parse_args(argv), git_hash()
    shipped = read_yaml(FILE)
    with tempfile.TemporaryDirectory(prefix="stride-sweep-") as folder:
        results = [
            searched(Path(folder), {**shipped, "seeds": [FIRST_SEED + number]}) for number in range(arguments.searches)
        ]
        plain = {key: value for key, value in shipped.items() if key != "rungs"}
        at_random = searched(Path(folder), {**plain, "method": "random", "seeds": [FIRST_SEED], "confirm": 0})
    n_good = sum(value >= GOAL for value in at_random["values"])
    lines = [*map(sentence, results)]
    lines.append(f"{n_good} of {len(at_random['values'])} trials drawn at random and trained to the end reach {GOAL:g}")
    print("\n".join(lines))
    if arguments.record:
        RESULT.parent.mkdir(parents=True, exist_ok=True)
        write_json(RESULT, {"command": called(), "git_hash": commit, "searches": results, "at_random": at_random})
        record("sweep", "What a search finds", lines, commit, PAGE)
    return 0 if all(map(holds, results)) else 1


def searched(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Run one search by its settings; return its result, and under "values" the final scores of complete trials."""
    name = f"{settings['method']}-{settings['seeds'][0]}"
    file, root = folder / f"{name}.yaml", folder / name
    file.write_text(yaml.safe_dump(settings, sort_keys=False))
    command = [sys.executable, "-m", "stride.commands.sweep", str(file)]
    process = subprocess.run(command, env={**os.environ, "STRIDE_RUNS": str(root)}, cwd=PROJECT, check=False)
    if process.returncode:
        raise UserError(f"the search {name} ended with {process.returncode}")
    result_folder = root / "sweeps" / name
    journal = [json.loads(line) for line in (result_folder / "journal.log").read_text().splitlines()]
    values = [line["values"][0] for line in journal if line.get("state") == COMPLETE and line.get("values")]
    return {"seed": settings["seeds"][0], **read_json(result_folder / "result.json"), "values": values}


def holds(result: dict[str, Any]) -> bool:
    """Whether a search's winner is good on fresh seeds, and the search was cheap enough."""
    solved = Finalist(**result["finalists"][0]).solved
    return solved >= MIN_SOLVED and result["env_steps"] <= MAX_STEPS_SHARE * result["full_env_steps"]


def sentence(result: dict[str, Any]) -> str:
    """Return a sentence about a search's result."""
    best, trials = Finalist(**result["finalists"][0]), sum(result["trials"].values())
    share = f"{100 * result['env_steps'] / result['full_env_steps']:.0f} %"
    fresh = f"{best.solved} of {len(result['fresh_seeds'])} fresh seeds solved"
    return (
        f"seed {result['seed']}: the winner of {trials} trials has {score(best.search)} in the search and "
        f"{score(best.mean)} confirmed, **{fresh}**; **{share}** of the env steps of {trials} full trainings"
    )


if __name__ == "__main__":
    entry.run(main)
