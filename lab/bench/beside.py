"""Stride beside the fastest peers, the rows of a goal each: the whole call of a training, its fit, and its ratio.

    python -m lab.bench.beside                        every row: prints a Markdown table and writes docs/benchmarks
    python -m lab.bench.beside ppo-8 face-16          some rows; the others stay in the file
    python -m lab.bench.beside --avx2                 on a processor with AVX-512, everybody with AVX2

Every contender has a process of its own and is warm before anything counts. Turns alternate; a ratio is the median of
its turns with a 95 % interval. Peers are timed by learn() alone, made and compiled before. A row that is published has
at least 7 turns on a machine without other work. `--json FILE` writes somewhere else.
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

SAC_WITHOUT = ("eager", "sb3, 1")  # SBX is twice as fast as SB3, which is timed with all threads only
# of HalfCheetah, as long as Pendulum's
BODY = ("learning_starts=100", "epoch_iterations=1000", "hidden_dims=[256,256]", "batch_size=256")


class Row(NamedTuple):
    """A training with its goal."""

    make: Callable[[int], Case]  # of so many threads
    unit: str
    goal: float  # how many times the rate of `against`; of "ms an update" the milliseconds
    against: str = ""  # a peer; "": the best one
    without: tuple[str, ...] = ("eager", "cleanrl")  # who has one of these words in the name is left out


def ppo(n_envs: int) -> Callable[[int], Case]:
    return lambda threads: cases.ppo_case(cases.ppo_setting("CartPole-v1", n_envs, threads))


def dreamer(threads: int) -> Case:
    [case] = cases.dreamer_cases(threads, ("0.19 M weights",))
    return case


def cheetah(algo_id: str, threads: int) -> Case:
    """Of 256 x 2 and batch 256, whatever the variant has."""
    return cases.replay_case(algo_id, threads, "HalfCheetah-v5", BODY)


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
FACES = {"face-16": 16, "face-256": 256, "face-4096": 4096}  # CartPole behind Gymnasium's face; how many worlds
FACE, FACE_GOAL = (envs.OURS[-1], *envs.GYMNASIUM), 10.0
NAMES = (*ROWS, *FACES)


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(NAMES)} (default all)")
    parser.add_argument("--avx2", action="store_true", help="no wider vectors than AVX2, for everybody")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="threads and cores, for all")
    parser.add_argument("--turns", type=int, default=MIN_TURNS, metavar="N", help="how many (default 7)")
    parser.add_argument("--seconds", type=float, default=4.0, metavar="S", help="length of a timed training of ppo")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write the record")
    asked = parser.parse_args(argv)
    asked.rows = asked.rows or [*NAMES]
    if wrong := [name for name in asked.rows if name not in NAMES]:
        raise UserError(f"no row {wrong[0]!r}{nearest(wrong[0], NAMES)}; there are {', '.join(NAMES)}")
    if asked.turns < 1 or asked.threads < 1 or not asked.seconds > 0:
        raise UserError("--turns and --threads take a number from 1, --seconds one above 0")
    if asked.avx2 and not AVX2.items() <= os.environ.items():  # they are read by imports
        words = [sys.executable, "-m", "lab.bench.beside", *argv]
        return subprocess.run(words, env={**os.environ, **AVX2}, check=False).returncode
    return measure(asked)


def measure(asked: argparse.Namespace) -> int:
    """Each row in turn; the file is written after each."""
    file = asked.json or file_of(instruction_set())
    print(machine(asked.threads, *peers.PACKAGES), flush=True)
    if missing := peers.missing():
        print(missing, flush=True)
    limits = [limit_of(count) for count in sorted({1, asked.threads})]
    print("\n".join(f"limit: {limit}" for limit in limits), flush=True)
    where = {
        "commit": git_hash(),
        "date": datetime.date.today().isoformat(),
        "turns": asked.turns,
        "limits": [limit._asdict() for limit in limits],
    }
    measured: dict[str, Record] = {}
    for name in asked.rows:
        print(f"\n{name}", flush=True)
        try:
            record = record_of(name, asked, limits[-1].registers)
        except UserError as error:  # its environment is not installed
            print(f"  left out: {error}", flush=True)
            continue
        measured[name] = where | record
        print(f"  {'; '.join(filter(None, cells(measured[name])))}", flush=True)
        rows = (read(file) if file.is_file() else {}) | measured
        write_json(file, {"rows": {row: rows[row] for row in NAMES if row in rows}})
    if measured:
        print(f"\n{markdown(measured)}\n\nwritten to {file}")
    return 0


def record_of(name: str, asked: argparse.Namespace, limit: float) -> Record:
    if name in FACES:
        return face_record(FACES[name], asked)
    return training_record(ROWS[name], asked, limit)


def training_record(row: Row, asked: argparse.Namespace, limit: float) -> Record:
    case = row.make(asked.threads)
    first, *others = case.contenders
    names = [first, *(name for name in others if not any(word in name for word in row.without))]
    contenders = {name: case.contenders[name] for name in names}
    length = Length(case.warm, case.iterations, asked.seconds)
    table = in_turns(contenders, case.config.iteration_steps, length, asked.threads, asked.turns)
    updates = table[first]["updates"] / table[first]["env_steps"]
    share = table[first]["fit"]["median"] * case.flops * (updates if case.of_an_update else 1) / limit
    if row.unit != "env steps/s":
        table = {name: in_updates(figures, updates, row.unit) for name, figures in table.items()}
    ratios = {name: ratios_of(table, first, name) for name in names[1:]}
    return {
        "title": case.title,
        "unit": row.unit, "goal": row.goal, "against": row.against, "clock": "whole", "ours": first,
        "machine": machine(asked.threads, *peers.PACKAGES), "missing": peers.missing(), "contenders": table,
        "ratios": ratios, "share": share,
    }  # fmt: skip


def in_updates(figures: Figures, updates: float, unit: str) -> Figures:
    """Figures with updates instead of env steps per second; of "ms an update" those of learning alone."""
    alone = [1e3 / ms for ms in figures["update_ms"]["all"]] if unit == MS else []
    rates = {}
    for clock in ("whole", "fit", "cpu"):
        rates[clock] = median_of(alone or [rate * updates for rate in figures[clock]["all"]])
    return {**figures, **rates}


def face_record(worlds: int, asked: argparse.Namespace) -> Record:
    """Random actions on one thread, `seconds` / 10 a turn."""
    ours, *others = FACE
    turns = envs.turns_of("CartPole-v1", worlds, FACE, asked.turns, asked.seconds / 10)
    table = {name: envs.figures_of(spells) for name, spells in turns.items()}
    return {
        "title": f"CartPole-v1 behind Gymnasium's face, {worlds:,} worlds, random actions", "unit": "env steps/s",
        "goal": FACE_GOAL, "against": others[0], "clock": "cpu", "ours": ours, "machine": machine(1), "missing": "",
        "contenders": table, "ratios": {name: ratios_of(table, ours, name) for name in others}, "share": None,
    }  # fmt: skip


if __name__ == "__main__":
    entry.run(main)
