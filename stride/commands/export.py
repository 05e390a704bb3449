"""Write a trained policy into one file: stride export @last --onnx (--help shows all flags)

Top to bottom: arguments -> loaded run -> file -> check on 1,000 observations of real episodes that the file answers as
the run's player does; if it does not, there is no file.
"""

from stride.utils import quick_start  # isort: skip  # before all others

import sys

from stride.commands.run_arguments import SUFFIXES, look_for_run, parse_export, plain_name
from stride.utils import entry

if __name__ == "__main__":
    entry.begin(look_for_run(parse_export), "loading torch ...")  # here, as the imports below take seconds

import stride.utils.lean_lightning  # isort: skip  # noqa: F401  # before any import of Lightning

from functools import partial
from pathlib import Path
from typing import cast

import torch

from stride.agents.trained.loading import load_run
from stride.envs_gym.gym_env import EnvError
from stride.export.files import Kind, export
from stride.export.verify import TOLERANCE, DifferenceError

quick_start.loaded()

say = partial(print, flush=True)


def main(argv: list[str]) -> int:
    arguments = parse_export(argv)
    loaded = load_run(arguments.run_id, arguments.checkpoint)
    torch.set_num_threads(1)  # a call with one observation is fastest so, and may be timed
    for note in loaded.notes:
        say(note)
    name = plain_name(loaded.config.env_id, loaded.config.variant)
    path = Path(arguments.out or f"{name}{SUFFIXES[arguments.kind]}")
    say(f"exporting  {loaded.run.id}, {loaded.checkpoint}, as {path}")
    likeness = export(loaded, cast(Kind, arguments.kind), path, say, arguments.time)
    description = f"{likeness.observations:,} observations of {likeness.episodes} real episodes"
    remark = "; all actions equal" if likeness.are_choices else ""
    say(f"verified   at most {likeness.worst:.1e} from the policy on {description}; allowed {TOLERANCE:g}{remark}")
    say(f"written    {path}, {path.stat().st_size:,} bytes")
    return 0


def command(argv: list[str]) -> int:
    """Run main and return the exit code; 1: the file differs or the environment failed, 2: another error."""
    return entry.ended(main, argv, EnvError, DifferenceError)


if __name__ == "__main__":
    quick_start.leave(command(sys.argv[1:]))
