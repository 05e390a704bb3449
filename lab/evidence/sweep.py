"""Is what config/sweeps/cartpole.yaml finds good on seeds that it has not seen, and what does finding it take?

    python -m lab.evidence.sweep --searches 3 --record

Each search has another seed, for its trials and its sampler. Beside them as many trials as one of them has, drawn at
random from the same ranges and trained to the end: how many of those are good says how wide the ranges are. Writes
docs/results/sweeps/cartpole.json and its section of docs/scale.md.
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
GOAL, FIRST = 475.0, 100  # CartPole's own; the first search's seed
COMPLETE = 1  # a trial's state in Optuna's journal
SEEDS, SHARE = 4, 0.45  # fresh seeds on which a winner must be good, and what finding it may take of full trainings


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--searches", type=int, default=3, metavar="N", help="how many (default 3)")
    parser.add_argument("--record", action="store_true", help="write the figures down")
    asked, commit = parser.parse_args(argv), git_hash()
    shipped = read_yaml(FILE)
    with tempfile.TemporaryDirectory(prefix="stride-sweep-") as folder:
        found = [searched(Path(folder), {**shipped, "seeds": [FIRST + number]}) for number in range(asked.searches)]
        plain = {key: value for key, value in shipped.items() if key != "rungs"}
        whole = searched(Path(folder), {**plain, "method": "random", "seeds": [FIRST], "confirm": 0})
    good = sum(value >= GOAL for value in whole["values"])
    lines = [*map(words, found)]
    lines.append(f"{good} of {len(whole['values'])} trials drawn at random and trained to the end reach {GOAL:g}")
    print("\n".join(lines))
    if asked.record:
        RESULT.parent.mkdir(parents=True, exist_ok=True)
        write_json(RESULT, {"command": called(), "git_hash": commit, "searches": found, "at_random": whole})
        record("sweep", "What a search finds", lines, commit, PAGE)
    return 0 if all(map(holds, found)) else 1


def searched(folder: Path, told: dict[str, Any]) -> dict[str, Any]:
    """The result of a search of its own, and what its trials came to at the end."""
    name = f"{told['method']}-{told['seeds'][0]}"
    file, root = folder / f"{name}.yaml", folder / name
    file.write_text(yaml.safe_dump(told, sort_keys=False))
    command = [sys.executable, "-m", "stride.commands.sweep", str(file)]
    ended = subprocess.run(command, env={**os.environ, "STRIDE_RUNS": str(root)}, cwd=PROJECT, check=False)
    if ended.returncode:
        raise UserError(f"the search {name} ended with {ended.returncode}")
    place = root / "sweeps" / name
    journal = [json.loads(line) for line in (place / "journal.log").read_text().splitlines()]
    values = [line["values"][0] for line in journal if line.get("state") == COMPLETE and line.get("values")]
    return {"seed": told["seeds"][0], **read_json(place / "result.json"), "values": values}


def holds(found: dict[str, Any]) -> bool:
    solved = Finalist(**found["finalists"][0]).solved
    return solved >= SEEDS and found["env_steps"] <= SHARE * found["full_env_steps"]


def words(found: dict[str, Any]) -> str:
    best, trials = Finalist(**found["finalists"][0]), sum(found["trials"].values())
    share = f"{100 * found['env_steps'] / found['full_env_steps']:.0f} %"
    fresh = f"{best.solved} of {len(found['fresh_seeds'])} fresh seeds solved"
    return (
        f"seed {found['seed']}: the winner of {trials} trials has {score(best.search)} in the search and "
        f"{score(best.mean)} confirmed, **{fresh}**; **{share}** of the env steps of {trials} full trainings"
    )


if __name__ == "__main__":
    entry.run(main)
