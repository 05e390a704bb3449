"""How long does an exported policy take for one action, compared with torch? Milliseconds for each kind of file.

    python -m lab.bench.export                 a line for each policy
    python -m lab.bench.export --record        and in docs/export.md's table, docs/benchmarks/export.json

Each policy is trained very briefly, as its weights do not change the time. First each file is compared with the run's
own player on real episodes, as `stride export` does. A figure is the median of 200 calls, the best of some turns.
"""

import re
from typing import NamedTuple

import torch

from lab.bench.measure import machine
from stride.agents.trained.loading import LoadedRun, load_run
from stride.commands import train
from stride.commands.train_arguments import parse_arguments
from stride.commands.usage import parser_of
from stride.export.files import Kind, built, facts_of, milliseconds, runner
from stride.export.graph import deployed
from stride.export.verify import compare, samples
from stride.runstore.run_names import temporary_runs
from stride.utils import entry
from stride.utils.durable_file import replacing, write_json
from stride.utils.provenance import PROJECT, git_hash
from stride.utils.user_error import UserError

PAGE = PROJECT / "docs" / "export.md"
FIGURES = PROJECT / "docs" / "benchmarks" / "export.json"
MARK = re.compile(r"(<!-- timing -->\n).*?(<!-- /timing -->)", re.S)
OBSERVATIONS, TURNS = 1000, 5  # that a file is compared on; timings of 200 calls each
KINDS: tuple[Kind, ...] = ("onnx", "torch")
SHORT_RUN = ("eval_freq_epochs=null", "test_episodes=0", "early_stop_on_eval_threshold=false", "engine=eager", "-q")
POLICIES = {
    "MLP, choices": ("CartPole-v1:ppo", "max_timesteps=256"),
    "MLP, torques": ("Pendulum-v1:ppo", "n_steps=64", "batch_size=1.0", "max_timesteps=256"),
    "CNN on 4 x 84 x 84": ("CartPole-v1:ppo_pixels", "n_envs=2", "n_steps=4", "batch_size=1.0", "max_timesteps=8"),
    "LSTM": ("CartPole-v1:ppo_lstm", "max_timesteps=1024"),
    "DQN": ("CartPole-v1:dqn", "learning_starts=128", "max_timesteps=256"),
    "SAC": ("Pendulum-v1:sac", "learning_starts=128", "max_timesteps=256"),
}


class Row(NamedTuple):
    """One policy: milliseconds by kind of file, and the largest difference from the player that any file showed."""

    policy: str
    variant: str
    torch_ms: float
    ms: dict[str, float]
    worst: float
    observations: int


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--record", action="store_true", help="write docs/export.md's table and its figures")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    print(machine(1, "onnxruntime"), flush=True)
    rows = []
    for name, arguments in POLICIES.items():
        rows.append(row := measured(name, trained(arguments)))
        times_text = "  ".join(f"{kind} {ms:.3f} ms" for kind, ms in row.ms.items())
        print(f"{row.policy:<20} {times_text}  torch {row.torch_ms:.3f} ms, at most {row.worst:.1e} apart", flush=True)
    if args.record:
        record(rows)
    return 0


def record(rows: list[Row]) -> None:
    """Write the figures, and the table of docs/export.md."""
    facts = {"machine": machine(1, "onnxruntime"), "commit": git_hash()}
    write_json(FIGURES, {**facts, "rows": [row._asdict() for row in rows]})
    with replacing(PAGE) as file:
        file.write(with_table(PAGE.read_text(encoding="utf-8"), rows).encode())


def trained(arguments: tuple[str, ...]) -> LoadedRun:
    """Train very briefly and return the run; its folder is deleted, its weights are in memory."""
    with temporary_runs():
        if train.train(parse_arguments([*arguments, *SHORT_RUN])):
            raise UserError(f"training {arguments[0]} failed")
        return load_run("@last", "last")


def measured(name: str, loaded: LoadedRun) -> Row:
    policy = deployed(loaded)
    observations = samples(loaded, policy.face, OBSERVATIONS)
    times: dict[str, float] = {}
    torch_times, worst = [], 0.0
    for kind in KINDS:
        data = built(policy, kind, facts_of(loaded, policy))
        run = runner(policy, kind, data)
        worst = max(worst, compare(run, policy.face, observations).worst)
        pairs = [milliseconds(run, policy, observations) for _ in range(TURNS)]
        times[kind] = min(mine for mine, _ in pairs)
        torch_times += [other for _, other in pairs]
    variant = f"{loaded.config.env_id}:{loaded.config.variant}"
    return Row(name, variant, min(torch_times), times, worst, len(observations))


def with_table(page: str, rows: list[Row]) -> str:
    """Return the page with these rows as its table; UserError if it has no marks for a table."""
    table = ["| policy | run | `--onnx` | `--torch` | torch | furthest |", f"|{'---|' * 6}"]
    for row in rows:
        times = [f"{row.ms[kind]:.3f} ms" if kind in row.ms else "" for kind in KINDS]
        cells = [row.policy, row.variant, *times, f"{row.torch_ms:.3f} ms", f"{row.worst:.1e}"]
        table.append(f"| {' | '.join(cells)} |")
    if not MARK.search(page):
        raise UserError(f"{PAGE.name} has no place for the table: <!-- timing --> and <!-- /timing -->")
    return MARK.sub(lambda found: found[1] + "\n".join(table) + "\n" + found[2], page)


if __name__ == "__main__":
    entry.run(main)
