"""Runs the commands of three people's first day, and checks that each works and that a page teaches it.

    python -m lab.paths                     a student, an engineer with a repository, a researcher with a paper
    python -m lab.paths engineer            one of them

Each person starts in an empty folder with its own runs. A command is a fault if its exit code is not 0, or if its page
does not contain the text `taught`; then the exit code is 1.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from stride.commands.usage import parser_of
from stride.utils import entry
from stride.utils.places import PROJECT
from stride.utils.user_error import UserError, nearest


class Step(NamedTuple):
    """A command as a person types it, and the page that teaches it."""

    command: str
    page: str  # path in the checkout
    taught: str  # text that the page must contain


PLANT = """\
import gymnasium
import numpy as np

class Plant(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-1, 1)
        return self.observe(), {}

    def step(self, action):
        self.place = float(np.clip(self.place + (0.1 if action else -0.1), -1, 1))
        return self.observe(), -abs(self.place), False, False, {}

    def observe(self):
        return np.array([self.place, 1.0], np.float32)

gymnasium.register("Plant-v0", Plant, max_episode_steps=20)
"""
PLANT_YAML = "env_id: Plant-v0\nspec: {goal: -6}\nppo: {max_timesteps: 20_000, n_steps: 64}\n"
README, COMMANDS, RUNS = "README.md", "docs/commands.md", "docs/runs.md"
OWN, PUBLISH = "docs/your_environment.md", "docs/guides/publish.md"
CARTPOLE = "train.py CartPole-v1:ppo"
PATHS = {
    "student": (
        Step(f"python {CARTPOLE}", README, CARTPOLE),
        Step(
            "python run_play.py --run-id @last --headless --episodes 20", COMMANDS, "run_play.py --headless --episodes"
        ),
        Step(f"python {CARTPOLE} --help", COMMANDS, f"{CARTPOLE} --help"),
        Step(f"python {CARTPOLE} policy_lr=lin_3e-3 hidden_dims=[128,128]", COMMANDS, "policy_lr=lin_3e-3 hidden_dims"),
        Step("stride runs list", RUNS, "stride runs list"),
        Step("stride monitor --once", "docs/monitor.md", "stride monitor --once"),
        Step("python run_publish.py --dry-run", PUBLISH, "run_publish.py --dry-run"),
    ),
    "engineer": (
        Step("stride new --here", OWN, "stride new --here"),
        Step("stride check-env Plant-v0 --seconds 5", OWN, "stride check-env Plant-v0"),
        Step("stride train Plant-v0:ppo", OWN, "`Plant-v0:ppo`"),
        Step("stride train --resume @last --max-timesteps 24000", COMMANDS, "train.py --resume @last --max-timesteps"),
        Step("stride play --headless --episodes 20", COMMANDS, "run_play.py --headless --episodes"),
        Step("stride export @last --torch", "docs/export.md", "stride export @last --torch"),
        Step("stride runs show @last", RUNS, "runs show @last"),
    ),
    "researcher": (
        Step(
            "stride train CartPole-v1:ppo -m gamma=0.98,0.9 --seed 1-5 --group discounts max_timesteps=20_000",
            "docs/scale.md",
            "-m policy_lr=1e-3,3e-4 gamma=0.98,0.99 --seed 1-5 --group",
        ),
        Step("stride play --run-id group:discounts", COMMANDS, "run_play.py --run-id group:NAME"),
        Step("stride runs export --by variant --format latex --filter group=discounts", RUNS, "--format latex"),
        Step("stride runs export --filter group=discounts", RUNS, "runs export"),
        Step("stride verify @last", RUNS, "stride verify @last"),
    ),
}


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("person", nargs="?", default="", help=f"{', '.join(PATHS)} (default: all)")
    person = parser.parse_args(argv).person
    if person and person not in PATHS:
        raise UserError(f"there is no path of {person!r}{nearest(person, PATHS)}")
    faults = 0
    for name in [person] if person else PATHS:
        with tempfile.TemporaryDirectory() as folder:
            faults += walk(name, Path(folder))
    return 1 if faults else 0


def walk(name: str, folder: Path) -> int:
    """Run the commands of a person in a folder; return the number of those that failed or that no page teaches."""
    if name == "engineer":
        (folder / "plant.py").write_text(PLANT)
        (folder / "configs").mkdir()
        (folder / "configs" / "Plant-v0.yaml").write_text(PLANT_YAML)
    faults, total = 0, 0.0
    print(f"{name}:")
    for step in PATHS[name]:
        start = time.perf_counter()
        ended = subprocess.run(typed(step.command), cwd=folder, env=environment(folder), capture_output=True, text=True)
        seconds = time.perf_counter() - start
        total += seconds
        problem = "" if ended.returncode == 0 else f"  exit code {ended.returncode}: {ended.stderr.strip()[-300:]}"
        if step.taught not in (PROJECT / step.page).read_text(encoding="utf-8"):
            problem += f"  {step.taught!r} is not in {step.page}"
        faults += bool(problem)
        print(f"  {seconds:6.1f} s  {step.command}  ({step.page}){problem}", flush=True)
    print(f"  {total:6.1f} s in all, {len(PATHS[name])} commands, {faults} faults")
    return faults


def typed(command: str) -> list[str]:
    """Return the command with this checkout's Python and full paths of its scripts: it runs elsewhere."""
    program, *arguments = command.split()
    if program == "python":
        return [sys.executable, str(PROJECT / arguments[0]), *arguments[1:]]
    return [sys.executable, "-m", "stride", *arguments]


def environment(folder: Path) -> dict[str, str]:
    """Return the environment variables of a person who has installed Stride: no variables of ours, another home."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("STRIDE_")}
    return own | {"PYTHONPATH": str(PROJECT), "HOME": str(folder / "home")}


if __name__ == "__main__":
    entry.run(main)
