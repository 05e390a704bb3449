"""How fast are the compiled environments, compared with Gymnasium and others? Prints env steps per second.

    python -m lab.bench.envs --all --json FILE --plot FILE
    python -m lab.bench.envs --families             each backend that can run each family (families.py)

All contenders of a size are timed in turns, in CPU seconds; a figure is the median of its turns. Everything runs on one
thread. On a machine that other programs use, too, the ratios are worth more than the figures.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import gymnasium
import numpy as np
import torch

from lab.bench.families import Contender, Spell, families, in_turns, of_contract, of_gymnasium
from lab.bench.measure import Figures, machine, median_of
from lab.bench.packages import gymnax, package
from lab.bench.plot import dots_svg, short
from lab.bench.ratio import MIN_TURNS, ratio_of
from lab.smoke_test_envs import random_actions
from stride import envs_fast
from stride.commands.usage import parser_of
from stride.envs_fast.vec_env import VecEnv
from stride.envs_fast.world import fast_id
from stride.utils import entry
from stride.utils.durable_file import write_json
from stride.utils.provenance import git_hash
from stride.utils.user_error import UserError, nearest

STEPS = 64  # of each world in a kernel call
# most worlds of a peer that keeps a Python object for each; if the objects are large (all but classic control)
MAX_WORLDS, MAX_LARGE_WORLDS = 4096, 256
OURS = ("ours, T steps", "ours, 1 step", "ours, Gymnasium")
GYMNASIUM = ("gymnasium native", "gymnasium sync")
PEERS = (*GYMNASIUM, "package, sync", "gymnax, T steps")
SIZES, ALL_SIZES = (16, 256, 4096), (16, 256, 4096, 65536)
PACKAGED = ("MinAtar/", "MiniGrid-", "bsuite/", "popgym-")  # not in --all: they are compared with their packages
LIMIT, FRACTION = "memory limit", "fraction of limit"


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--env", default="CartPole-v1", metavar="ID[,ID...]", help="fast environments")
    parser.add_argument(
        "--all", action="store_true", help="Gymnasium's and our own environments, and 65536 worlds as well"
    )
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N", help="numbers of worlds (default 16 256 4096)")
    parser.add_argument("--seconds", type=float, default=0.2, metavar="S", help="length of one timing")
    parser.add_argument("--repeats", type=int, default=MIN_TURNS, metavar="N", help="timings per figure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the figures as SVG")
    parser.add_argument("--families", nargs="?", const="", metavar="NAME,..", help="every backend of these; none: all")
    parser.add_argument("--worlds", type=int, default=8, metavar="N", help="stepped by each backend of a family")
    args = parser.parse_args(argv)
    if args.repeats < 1 or not args.seconds > 0:
        parser.error("--repeats takes a number from 1, --seconds one above 0")
    if min(args.sizes or [1]) < 1:
        parser.error("--sizes takes numbers from 1")
    if args.worlds < 1:
        parser.error("--worlds takes a number from 1")
    if args.families is not None:
        return families(args.families, args.worlds, args.seconds, args.repeats, args.json)
    ids = [name for name in envs_fast.WORLDS if not name.startswith(PACKAGED)] if args.all else args.env.split(",")
    for env_id in ids:
        if env_id not in envs_fast.WORLDS:
            raise UserError(f"no fast environment {env_id!r}{nearest(env_id, envs_fast.WORLDS)}")

    torch.set_num_threads(1)
    print(machine(1))
    print(f"env steps per second, median of {args.repeats} x {args.seconds:g} s in turns")
    sizes = args.sizes or (ALL_SIZES if args.all else SIZES)
    figures: dict[str, dict[int, dict[str, float]]] = {}
    ratios: dict[str, dict[int, dict[str, dict[str, float]]]] = {}
    for env_id in ids:
        figures[env_id], ratios[env_id] = {}, {}
        for size in sizes:
            figures[env_id][size], ratios[env_id][size] = measure(env_id, size, args.repeats, args.seconds)
        print("\n".join(lines_of(env_id, figures[env_id], ratios[env_id])), flush=True)
    if args.json:
        record = {"machine": machine(1), "commit": git_hash(), "clock": "CPU seconds", "steps_per_second": figures}
        write_json(args.json, record | {"ratios": ratios})
    if args.plot:
        args.plot.write_text(picture(figures), encoding="utf-8")
    return 0


def picture(figures: dict[str, dict[int, dict[str, float]]]) -> str:
    """Return an SVG of each environment at the largest size that Gymnasium's loop was timed with."""
    slow = GYMNASIUM[1]
    rows_of = {env_id: [(size, row) for size, row in rows.items() if slow in row] for env_id, rows in figures.items()}
    lines = {f"{env_id}, {rows[-1][0]:,}": rows[-1][1] for env_id, rows in rows_of.items() if rows}
    return dots_svg("Env steps per second on one thread, and of how many worlds", lines, (OURS[0], OURS[-1]), slow)


def measure(
    env_id: str, size: int, repeats: int, seconds: float
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Return env steps per second of every contender, and the ratio of our rate to each peer's.

    Also the rate that memory bandwidth allows (LIMIT) and the share of it that the kernel reaches (FRACTION). Rates are
    by CPU seconds of this process: other programs of a shared machine do not count.
    """
    turns = turns_of(env_id, size, tuple(MAKERS), repeats, seconds)
    rates = {name: [spell.env_steps / spell.cpu for spell in spells] for name, spells in turns.items()}
    medians = {name: statistics.median(values) for name, values in rates.items()}
    ratios = {peer: ratio_of(rates[against(peer)], rates[peer])._asdict() for peer in PEERS if peer in rates}
    return {**medians, FRACTION: medians[OURS[0]] / medians[LIMIT]}, ratios


def turns_of(env_id: str, size: int, names: Sequence[str], repeats: int, seconds: float) -> dict[str, list[Spell]]:
    """Time those of the named contenders that exist for this environment and size."""
    by_name = {name: MAKERS[name](env_id, size) for name in names}
    contenders = {name: contender for name, contender in by_name.items() if contender is not None}
    turns = in_turns(contenders, size, seconds, repeats, time.process_time)
    for contender in contenders.values():
        contender.close()
    return turns


def figures_of(spells: Sequence[Spell]) -> Figures:
    """Return figures in the form of lab.bench.turns; a timing has no parts, so "fit" is the same as "whole"."""
    wall = median_of([spell.env_steps / spell.wall for spell in spells])
    seconds = median_of([spell.wall for spell in spells])
    return {
        "env_steps": spells[0].env_steps, "whole": wall, "fit": wall,
        "cpu": median_of([spell.env_steps / spell.cpu for spell in spells]),
        "whole_seconds": seconds, "fit_seconds": seconds,
        "cpu_seconds": median_of([spell.cpu for spell in spells]),
    }  # fmt: skip


def lines_of(
    env_id: str, figures: dict[int, dict[str, float]], ratios: dict[int, dict[str, dict[str, float]]]
) -> Iterator[str]:
    """Yield a table to print: a line for each contender and for each ratio, a column for each number of worlds."""
    yield f"\n{env_id + ', worlds':<30}" + "".join(f"{size:>10,}" for size in figures)
    for name in MAKERS:
        if any(name in row for row in figures.values()):
            cells = [short(row[name]) if name in row else "-" for row in figures.values()]
            yield f"{name:<30}" + "".join(f"{cell:>10}" for cell in cells)
    yield f"{FRACTION:<30}" + "".join(f"{row[FRACTION]:>10.0%}" for row in figures.values())
    for peer in PEERS:
        if any(peer in row for row in ratios.values()):
            cells = [f"{row[peer]['median']:,.1f}x" if peer in row else "-" for row in ratios.values()]
            yield f"{against(peer) + ' / ' + peer:<30}" + "".join(f"{cell:>10}" for cell in cells)


def against(peer: str) -> str:
    """Return our contender for a peer: Gymnasium's loops meet our Gymnasium interface, others meet the kernel."""
    return OURS[-1] if peer in GYMNASIUM else OURS[0]


def kernel(env_id: str, size: int) -> Contender:
    """Return our kernel: STEPS steps in one call, into the same buffers each time."""
    env = envs_fast.make(env_id, size, seed=0)
    actions, buffers = actions_of(env), env.trajectory(STEPS)
    return Contender(lambda: env.advance(actions, buffers), env.close, steps=STEPS)


def single(env_id: str, size: int) -> Contender:
    """Return our environments with a call for each step."""
    return of_contract(envs_fast.make(env_id, size, seed=0))


def face(env_id: str, size: int) -> Contender:
    """Return our environments as a Gymnasium VectorEnv."""
    return of_gymnasium(gymnasium.make_vec(fast_id(env_id), num_envs=size))


def sync(env_id: str, size: int) -> Contender | None:
    """Return Gymnasium's loop over Python objects; None for environments that only Stride has, or too many worlds."""
    if envs_fast.WORLDS[env_id].gym_state is None:
        return None
    is_classic = "classic_control" in str(gymnasium.spec(env_id).entry_point)
    if size > (MAX_WORLDS if is_classic else MAX_LARGE_WORLDS):
        return None
    make = lambda: gymnasium.make(env_id, disable_env_checker=True)  # noqa: E731
    return of_gymnasium(gymnasium.vector.SyncVectorEnv([make] * size))


def native(env_id: str, size: int) -> Contender | None:
    """Return Gymnasium's own vectorised version of an environment; None if it has none."""
    if envs_fast.WORLDS[env_id].gym_state is None or gymnasium.spec(env_id).vector_entry_point is None:
        return None
    return of_gymnasium(gymnasium.make_vec(env_id, num_envs=size, vectorization_mode="vector_entry_point"))


def copying(env_id: str, size: int) -> Contender:
    """Return a copy of as many bytes as STEPS steps must move at least: the limit of memory bandwidth.

    A step reads the actions, writes the results, and reads and writes the state once.
    """
    env = envs_fast.make(env_id, size)
    obs, reward, terminated, truncated, *_ = env.trajectory(1).arrays
    inside = sum(array.nbytes for array in (env.state, env.ages, env.returns))
    across = actions_of(env)[0].nbytes + sum(array.nbytes for array in (obs, reward, terminated, truncated))
    half = max((2 * inside + across) // 2, 1)  # a copied byte is read once and written once
    source, target = (np.ones((STEPS, half), np.uint8) for _ in range(2))
    return Contender(lambda: np.copyto(target, source), env.close, steps=STEPS)


def actions_of(env: VecEnv) -> torch.Tensor:
    return torch.stack([*random_actions(env.action_space, STEPS, env.num_envs)])


MAKERS: dict[str, Callable[[str, int], Contender | None]] = {
    OURS[0]: kernel, OURS[1]: single, OURS[2]: face, GYMNASIUM[0]: native, GYMNASIUM[1]: sync,
    PEERS[2]: package, PEERS[3]: gymnax, LIMIT: copying,
}  # fmt: skip


if __name__ == "__main__":
    entry.run(main)
