"""Compares Stride with the fastest peers, for docs/benchmarks: rows with a goal, timed by whole call and by fit.

    python -m lab.bench.beside                        every row: prints a Markdown table and writes docs/benchmarks
    python -m lab.bench.beside ppo-8 face-16          some rows; the others stay in the file
    python -m lab.bench.beside --avx2                 on a processor with AVX-512, everybody with AVX2

Every contender has its own process and trains once untimed. Turns alternate; a ratio is the median of its turns with a
95 % interval. Peers are timed by learn() alone, made and compiled before. A row that is published needs at least 7
turns on a machine without other work. `--json FILE` writes somewhere else.
"""

import argparse
import datetime
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from lab.bench import cases, envs, peers
from lab.bench.cases import Case
from lab.bench.limit import limit_of
from lab.bench.measure import Figures, instruction_set, machine, median_of
from lab.bench.ratio import MIN_TURNS
from lab.bench.table import MS, Record, cells, file_of, markdown, read
from lab.bench.turns import Length, in_turns, ratios_of
from lab.host import AVX2
from stride.commands.usage import parser_of
from stride.utils import entry
from stride.utils.durable_file import write_json
from stride.utils.provenance import git_hash
from stride.utils.user_error import UserError, nearest

SAC_WITHOUT = ("eager", "sb3, 1")  # left out; SBX is twice as fast as SB3, which is timed with all threads only
# overrides for HalfCheetah, so that a training is as long as Pendulum's
CHEETAH_KEYS = ("learning_starts=100", "epoch_iterations=1000", "hidden_dims=[256,256]", "batch_size=256")


class Row(NamedTuple):
    """A training with its goal."""

    make: Callable[[int], Case]  # takes the number of threads
    unit: str
    goal: float  # least ratio to the rate of `against`; for the unit "ms an update", most milliseconds
    against: str = ""  # a peer; "": the best one
    without: tuple[str, ...] = ("eager", "cleanrl")  # contenders with one of these in their names are left out


def ppo(n_envs: int) -> Callable[[int], Case]:
    return lambda threads: cases.ppo_case(cases.ppo_setting("CartPole-v1", n_envs, threads))


def dreamer(threads: int) -> Case:
    [case] = cases.dreamer_cases(threads, ("0.19 M weights",))
    return case


def cheetah(algo_id: str, threads: int) -> Case:
    """Return the case of HalfCheetah with two layers of 256 and batches of 256, whatever the variant has."""
    return cases.replay_case(algo_id, threads, "HalfCheetah-v5", CHEETAH_KEYS)


ROWS: dict[str, Row] = {
    "ppo-8": Row(ppo(8), "env steps/s", 1.8),
    "ppo-256": Row(ppo(256), "env steps/s", 3.0),
    "ppo-2048": Row(ppo(2048), "env steps/s", 3.0),
    "sac-pendulum": Row(lambda threads: cases.replay_case("sac", threads), "updates/s", 1.7, "sbx", SAC_WITHOUT),
    "sac-cheetah": Row(partial(cheetah, "sac"), "updates/s", 1.7, "sbx", SAC_WITHOUT),
    "td3-cheetah": Row(partial(cheetah, "td3"), "updates/s", 1.7, "sbx", SAC_WITHOUT),
    "dqn": Row(lambda threads: cases.replay_case("dqn", threads), "env steps/s", 4.0),
    "pong": Row(cases.pong_case, "env steps/s", 1.6, "sb3", ("bf16", "cleanrl")),
    "dreamer": Row(dreamer, MS, 25.0, without=()),
}
FACES = {"face-16": 16, "face-256": 256, "face-4096": 4096}  # CartPole as a Gymnasium VectorEnv; environments
FACE, FACE_GOAL = (envs.OURS[-1], *envs.GYMNASIUM), 10.0  # contenders; least ratio to Gymnasium's own
NAMES = (*ROWS, *FACES)


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(NAMES)} (default all)")
    parser.add_argument("--avx2", action="store_true", help="no wider vectors than AVX2, for everybody")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="threads and cores, for all")
    parser.add_argument("--turns", type=int, default=MIN_TURNS, metavar="N", help="how many (default 7)")
    parser.add_argument("--seconds", type=float, default=4.0, metavar="S", help="length of a timed training of ppo")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write the record")
    args = parser.parse_args(argv)
    args.rows = args.rows or [*NAMES]
    if unknown := [name for name in args.rows if name not in NAMES]:
        raise UserError(f"no row {unknown[0]!r}{nearest(unknown[0], NAMES)}; there are {', '.join(NAMES)}")
    if args.turns < 1 or args.threads < 1 or not args.seconds > 0:
        raise UserError("--turns and --threads take a number from 1, --seconds one above 0")
    if args.avx2 and not AVX2.items() <= os.environ.items():  # imports have read them: start anew
        command = [sys.executable, "-m", "lab.bench.beside", *argv]
        return subprocess.run(command, env={**os.environ, **AVX2}, check=False).returncode
    return measure(args)


def measure(args: argparse.Namespace) -> int:
    """Measure and print the rows one by one; the file is written after each."""
    file = args.json or file_of(instruction_set())
    print(machine(args.threads, *peers.PACKAGES), flush=True)
    if missing := peers.missing():
        print(missing, flush=True)
    limits = [limit_of(count) for count in sorted({1, args.threads})]
    print("\n".join(f"limit: {limit}" for limit in limits), flush=True)
    conditions = {
        "commit": git_hash(),
        "date": datetime.date.today().isoformat(),
        "turns": args.turns,
        "limits": [limit._asdict() for limit in limits],
    }
    measured: dict[str, Record] = {}
    for name in args.rows:
        print(f"\n{name}", flush=True)
        try:
            record = record_of(name, args, limits[-1].registers)
        except UserError as error:  # its environment's package is not installed
            print(f"  left out: {error}", flush=True)
            continue
        measured[name] = conditions | record
        print(f"  {'; '.join(filter(None, cells(measured[name])))}", flush=True)
        rows = (read(file) if file.is_file() else {}) | measured
        write_json(file, {"rows": {row: rows[row] for row in NAMES if row in rows}})
    if measured:
        print(f"\n{markdown(measured)}\n\nwritten to {file}")
    return 0


def record_of(name: str, args: argparse.Namespace, limit: float) -> Record:
    if name in FACES:
        return face_record(FACES[name], args)
    return training_record(ROWS[name], args, limit)


def training_record(row: Row, args: argparse.Namespace, limit: float) -> Record:
    case = row.make(args.threads)
    first, *others = case.contenders
    names = [first, *(name for name in others if not any(word in name for word in row.without))]
    contenders = {name: case.contenders[name] for name in names}
    length = Length(case.warm, case.iterations, args.seconds)
    table = in_turns(contenders, case.config.iteration_steps, length, args.threads, args.turns)
    updates = table[first]["updates"] / table[first]["env_steps"]
    share = table[first]["fit"]["median"] * case.flops * (updates if case.of_an_update else 1) / limit
    if row.unit != "env steps/s":
        table = {name: in_updates(figures, updates, row.unit) for name, figures in table.items()}
    ratios = {name: ratios_of(table, first, name) for name in names[1:]}
    return {
        "title": case.title,
        "unit": row.unit, "goal": row.goal, "against": row.against, "clock": "whole", "ours": first,
        "machine": machine(args.threads, *peers.PACKAGES), "missing": peers.missing(), "contenders": table,
        "ratios": ratios, "share": share,
    }  # fmt: skip


def in_updates(figures: Figures, updates: float, unit: str) -> Figures:
    """Return figures with updates instead of env steps per second; for the unit MS, by the time of updates alone."""
    alone = [1e3 / ms for ms in figures["update_ms"]["all"]] if unit == MS else []
    rates = {}
    for clock in ("whole", "fit", "cpu"):
        rates[clock] = median_of(alone or [rate * updates for rate in figures[clock]["all"]])
    return {**figures, **rates}


def face_record(worlds: int, args: argparse.Namespace) -> Record:
    """Time CartPole with random actions on one thread, `seconds` / 10 a turn."""
    ours, *others = FACE
    turns = envs.turns_of("CartPole-v1", worlds, FACE, args.turns, args.seconds / 10)
    table = {name: envs.figures_of(spells) for name, spells in turns.items()}
    return {
        "title": f"CartPole-v1 behind Gymnasium's face, {worlds:,} worlds, random actions", "unit": "env steps/s",
        "goal": FACE_GOAL, "against": others[0], "clock": "cpu", "ours": ours, "machine": machine(1), "missing": "",
        "contenders": table, "ratios": {name: ratios_of(table, ours, name) for name in others}, "share": None,
    }  # fmt: skip


if __name__ == "__main__":
    entry.run(main)
