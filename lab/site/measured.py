"""Makes README's measured table, the line below its picture, and its sample of a training's output.

Figures come from evidence files and are never typed by hand. The sample is recorded by a training.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from lab.bench import table as table_of_peers
from lab.evidence.families import all_evidence
from lab.evidence.file import summary
from lab.evidence.runs import Store
from lab.faults.record import replaced
from lab.resumed import FIGURES as RESUMED
from lab.resumed import sentence
from lab.site.tables import own_vector_env
from stride.utils.durable_file import read_json
from stride.utils.places import PROJECT

BENCHMARKS, RESULTS = PROJECT / "docs" / "benchmarks", PROJECT / "docs" / "results"
OURS = "fused_cpu"
SOLVED_FIRST = "CartPole-v1-ppo"


class Row(NamedTuple):
    """A line of the table: what was measured, the figure, and the file that holds it with its machine."""

    what: str
    figure: str
    source: Path
    machine: str

    @property
    def line(self) -> str:
        path = self.source.relative_to(PROJECT).as_posix()
        return f"| {self.what} | {self.figure} | [{self.source.name}]({path}): {self.machine} |"


def resumed() -> str:
    """Return the line below README's picture."""
    return sentence(read_json(RESUMED))


def with_sample(page: str) -> str:
    """Return README with the present output of its first training."""
    return replaced(page, "sample", f"```\n{sample()}\n```")


def sample() -> str:
    """Run README's first training and return its output, without the commands that it proposes at its end."""
    with tempfile.TemporaryDirectory(prefix="readme-") as folder:
        environment = {**os.environ, "STRIDE_RUNS": folder}
        command = [sys.executable, "train.py", "CartPole-v1:ppo"]
        ended = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=True)
    return shown(ended.stdout)


def shown(text: str) -> str:
    """Return the part of a training's output that README shows, with the run in `runs/`."""
    printed = text.partition("\n  next\n")[0].strip("\n")
    return re.sub(r"(?m)^(  run +)\S*/(\S+)$", r"\1runs/\2", printed)


def table() -> str:
    """Return README's table."""
    rows = [start_to_solved(), seeds(), *trainings(), *on_a_gpu(), *off_policy(), environments(), exported()]
    return "\n".join(["| what | measured | file and machine |", "|---|---|---|", *(row.line for row in rows)])


def machine_of(data: dict[str, Any]) -> str:
    """Return processor, cores, instruction set and threads; "older code" if the benchmark does not name its commit."""
    machine = data["machine"]
    if isinstance(machine, dict):
        return f"{machine['cpu']}, {machine['cores']} cores"
    first: str = machine.splitlines()[0]
    return first if "commit" in data else f"{first}, older code"


def start_to_solved() -> Row:
    file = BENCHMARKS / "train.json"
    data = read_json(file)
    solve = data["solve"]
    figure = f"{solve['median_seconds']:.1f} s, median of {len(solve['seeds'])} seeds, {solve['solved']} solved"
    return Row("CartPole-v1:ppo, from the shell to solved and tested", figure, file, machine_of(data))


def seeds() -> Row:
    """Count the shipped variants that were solved with each of their seeds."""
    files = all_evidence(Store(), [RESULTS])
    summaries = [summary(evidence.finished()) for evidence in files]
    solved = sum(found["solved"] == found["finished"] for found in summaries)
    first = RESULTS / f"{SOLVED_FIRST}.json"
    machine = machine_of(read_json(first))
    figure = f"{solved} of {len(files)}; [all, with those that failed](docs/results.md)"
    return Row("Shipped variants solved on every seed tried (1 to 20 seeds)", figure, first, machine)


def trainings() -> list[Row]:
    """Return rates of whole trainings by PPO beside Stable-Baselines3 and the best other library."""
    if files := table_of_peers.files(BENCHMARKS):
        return [beside(files[0])]
    file = BENCHMARKS / "train.json"
    data = read_json(file)
    rows = []
    for envs in (8, 2048):
        rates = {name: rate["median"] for name, rate in data["tables"][f"CartPole-v1, {envs} x 128"].items()}
        others = {name: rate for name, rate in rates.items() if name not in (OURS, "eager")}
        best = max(others, key=lambda name: others[name])
        theirs = f"{table_of_peers.label(best)} {thousands(others[best])}"
        figure = f"{thousands(rates[OURS])}; SB3 {thousands(rates['sb3'])}; {theirs}"
        rows.append(Row(f"PPO, {envs} environments: env steps per second", figure, file, machine_of(data)))
    return rows


def on_a_gpu() -> list[Row]:
    """Return the rates of PPO on GPUs, at the number of environments that others publish."""
    rows = []
    for file in sorted(BENCHMARKS.glob("gpu-*-speed.json")):
        data = read_json(file)
        rate = data["checks"]["speed"]["figures"]["ppo"]["fused_gpu, 4096 worlds"]["env_steps_per_second"]
        figure = f"{thousands(rate)}; [bits, kernels, what is missing](docs/gpu.md#measured)"
        rows.append(Row("PPO on a GPU, 4096 environments: env steps per second", figure, file, data["gpu"]))
    return rows


SHOWN = {  # rows of lab.bench.beside
    "ppo-8": "PPO, CartPole, 8 environments", "ppo-2048": "2048 environments", "dqn": "DQN, CartPole",
    "sac-pendulum": "SAC, Pendulum",
}  # fmt: skip


def thousands(rate: float) -> str:
    return f"{round(rate / 1000) * 1000:,}"


def beside(file: Path) -> Row:
    """Return rates of some rows of lab.bench.beside, and their ratio to the best other library."""
    records = table_of_peers.read(file)
    rows = [row for row in SHOWN if row in records]
    figure = "; ".join(f"{SHOWN[row]} {table_of_peers.summary(records[row])}" for row in rows)
    machines = dict.fromkeys(machine_of(records[row]) for row in rows)
    return Row("Whole trainings beside the fastest peer", figure, file, "; ".join(machines))


def off_policy() -> list[Row]:
    if table_of_peers.files(BENCHMARKS):  # then they are among the trainings
        return []
    file = BENCHMARKS / "offpolicy.json"
    data = read_json(file)
    tasks = {"dqn": "DQN on CartPole", "sac": "SAC on Pendulum"}
    figure = ", ".join(f"{task} {data[name]['ratio']['median']:.1f}" for name, task in tasks.items())
    return [Row("Whole trainings: times as fast as SB3", figure, file, machine_of(data))]


def environments() -> Row:
    """Compare our environments, with Gymnasium's interface, with SyncVectorEnv at the largest count that both have.

    CartPole is also compared with Gymnasium's own vector environment, which no other environment has.
    """
    file = BENCHMARKS / "envs.json"
    data = read_json(file)
    ratios = []
    for sizes in data["steps_per_second"].values():
        both = [rates for rates in sizes.values() if "gymnasium sync" in rates]
        ratios.append(both[-1]["ours, Gymnasium"] / both[-1]["gymnasium sync"])
    figure = f"{min(ratios):,.0f} to {max(ratios):,.0f}, median {statistics.median(ratios):,.0f}"
    own = ", ".join(f"{ratio:.1f} with {size}" for size, ratio in own_vector_env(data).items())
    figure += f"; CartPole beside Gymnasium's own vector environment: {own} copies"
    what = f"{len(ratios)} compiled environments: times as fast as Gymnasium's SyncVectorEnv"
    return Row(what, figure, file, machine_of(data))


def exported() -> Row:
    file = BENCHMARKS / "export.json"
    data = read_json(file)
    rows = data["rows"]
    worst = max(row["worst"] for row in rows)
    first = rows[0]
    speed = f"MLP {first['ms']['onnx']:.3f} ms a call, torch {first['torch_ms']:.3f} ms"
    figure = f"at most {worst:.1e} from the original; {speed}"
    return Row(f"{len(rows)} policies exported to ONNX and torch", figure, file, machine_of(data))
